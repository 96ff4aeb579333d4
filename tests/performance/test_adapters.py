"""Fine-tuning with adapters skips the products of frozen weights' gradients, and their reduction."""

from dataclasses import replace

import pytest

from projector.job import LowRankAdapters, Sharding
from projector.projection import PerformanceProjection
from tests.performance.jobs import LLAMA_8B, LLAMA_70B, a_job, part, project

TUNED = LowRankAdapters(rank=16, targets=("linear_qkv",))


def traffic(found: PerformanceProjection) -> dict[tuple[str, str], int]:
    return {(call.group, call.collective): call.message_bytes for call in found.communication}


def test_only_the_gradients_of_adapters_travel() -> None:
    found = traffic(project(a_job(LLAMA_8B, job={"adapters": replace(TUNED, targets=("linear_qkv", "linear_proj"))})))
    trained = 32 * 16 * (4096 + 6144 + 4096 + 4096)
    assert found == {("data", "reduce_scatter"): 4 * trained, ("data", "all_gather"): 2 * trained}


def test_full_sharding_gathers_frozen_weights_and_scatters_gradients_of_adapters() -> None:
    changes = {"sharding": Sharding.PARAMETERS, "batch": 8}
    whole, tuned = (traffic(project(a_job(LLAMA_8B, job=job, **changes))) for job in ({}, {"adapters": TUNED}))  # type: ignore[arg-type]
    assert tuned["data", "all_gather"] >= whole["data", "all_gather"]
    assert tuned["data", "reduce_scatter"] < 0.01 * whole["data", "reduce_scatter"]


def test_a_step_takes_about_two_thirds() -> None:
    """Two of three equal products are left; attention's backward stays whole."""
    whole, tuned = (project(a_job(LLAMA_70B, tensor=8, job=job)) for job in ({}, {"adapters": TUNED}))
    ratio = part(tuned, "matrix products") / part(whole, "matrix products")
    assert ratio == pytest.approx(2 / 3, rel=0.06)
    assert part(tuned, "attention") == part(whole, "attention")
    assert part(tuned, "optimizer step") < 0.02 * part(whole, "optimizer step")


def test_model_flops_do_not_count_products_that_are_not_done() -> None:
    whole, tuned = (project(a_job(LLAMA_70B, tensor=8, job=job)) for job in ({}, {"adapters": TUNED}))
    work = [found.tflops_per_device * found.iteration_seconds for found in (whole, tuned)]
    assert work[1] == pytest.approx(work[0] * 2 / 3, rel=0.01)
