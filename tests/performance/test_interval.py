"""The interval of time: what measured runs say of the job's modes, and what was left open."""

from dataclasses import replace
from typing import Any

import pytest

from projector import catalog
from projector.api import Question
from projector.api import project as ask
from projector.job import Software, TrainingJob
from projector.performance import Unstated, with_unstated
from projector.performance.interval import confidence_of
from projector.performance.modes import modes_of
from projector.projection import Confidence, PerformanceProjection
from tests.performance.jobs import LLAMA_8B, MIXTRAL, a_job, part, project


def listed(mode: str) -> tuple[float, float]:
    found = catalog.measured_times()[mode]
    return found.below_percent, found.above_percent


def reached(found: PerformanceProjection) -> tuple[float, float]:
    """How far the interval reaches, in percent of the iteration."""
    expected = found.iteration_seconds
    lower, upper = found.iteration_seconds_lower, found.iteration_seconds_upper
    return 100 * (expected - lower) / expected, 100 * (upper - expected) / expected


def test_a_dense_job_has_the_interval_of_its_widest_mode() -> None:
    found = project(a_job(LLAMA_8B), "H100")
    kinds = listed("dense layers of megatron-te on NVIDIA GPUs"), listed("dense layers on H100")
    assert reached(found) == pytest.approx([max(ends) for ends in zip(*kinds, strict=True)])


def test_a_rate_is_highest_where_the_iteration_is_shortest() -> None:
    found = project(a_job(LLAMA_8B), "H100")
    rate = found.tokens_per_second_per_device
    assert found.at_least(rate) < rate < found.at_most(rate)
    assert found.at_most(rate) * found.iteration_seconds_lower == pytest.approx(rate * found.iteration_seconds)


@pytest.mark.parametrize(
    ("job", "device", "modes"),
    [
        (a_job(LLAMA_8B), "MI300X", ("dense layers of megatron-te on AMD GPUs", "dense layers on MI300X")),
        (a_job(MIXTRAL), "GB200", ("experts of megatron-te on NVIDIA GPUs",)),
        (a_job(LLAMA_8B, software=Software(deterministic=True)), "H100", ("deterministic kernels",)),
        (
            a_job(replace(LLAMA_8B, hidden=512), software=Software(deterministic=True)),
            "H100",
            ("deterministic kernels of small models",),
        ),
    ],
    ids=["dense", "experts", "deterministic", "small"],
)
def test_modes_of_a_job(job: TrainingJob, device: str, modes: tuple[str, ...]) -> None:
    assert modes_of(job, catalog.device(device)) == modes


def test_nobody_measured_a_gpu_so_the_widest_interval_holds_and_confidence_is_low() -> None:
    found = project(a_job(LLAMA_8B), "B300")
    assert found.confidence is Confidence.LOW
    assert "no measured run with dense layers on B300 is published" in found.confidence_reasons
    widest = max(listed(mode)[1] for mode in catalog.measured_times() if "GPUs" in mode and mode.startswith("dense"))
    assert reached(found)[1] >= min(widest, 30)


def test_unstated_model_chunks_may_spare_the_bubble_and_what_of_gradients_is_exposed() -> None:
    found = project(a_job(LLAMA_8B, batch=16, pipeline=4), nodes=2)
    wider = with_unstated(found, [Unstated.VIRTUAL_STAGES])
    spared = part(found, "pipeline bubble") + part(found, "exposed data-parallel communication")
    (one,) = [each for each in wider.uncertainties if Unstated.VIRTUAL_STAGES in each.name]
    assert one.below_seconds == pytest.approx(spared * (1 - 1 / 8))
    assert one.above_seconds == 0
    assert 0 < wider.iteration_seconds_lower < found.iteration_seconds_lower
    assert wider.iteration_seconds == found.iteration_seconds
    assert f"{Unstated.VIRTUAL_STAGES} not stated" in wider.confidence_reasons


def test_unstated_attention_kernels_may_take_twice_as_long() -> None:
    found = project(a_job(LLAMA_8B))
    wider = with_unstated(found, [Unstated.ATTENTION])
    added = wider.iteration_seconds_upper - found.iteration_seconds_upper
    assert added == pytest.approx(part(found, "attention"))


def test_an_unstated_dispatcher_may_spare_half_of_the_exchange_of_tokens() -> None:
    found = project(a_job(MIXTRAL, expert=8, sequence_parallel=True), "H100")
    wider = with_unstated(found, [Unstated.DISPATCHER])
    (one,) = [each for each in wider.uncertainties if Unstated.DISPATCHER in each.name]
    assert one.below_seconds == pytest.approx(part(found, "exposed expert-parallel communication") / 2)


@pytest.mark.parametrize("left", [Unstated.DISPATCHER, Unstated.VIRTUAL_STAGES, Unstated.HOST])
def test_what_does_not_concern_a_job_widens_nothing(left: Unstated) -> None:
    found = project(a_job(LLAMA_8B))
    assert reached(with_unstated(found, [left])) == pytest.approx(reached(found))


@pytest.mark.parametrize(
    ("device", "confidence"), [("B200", Confidence.MEDIUM), ("H100", Confidence.MEDIUM), ("MI300X", Confidence.MEDIUM)]
)
def test_confidence_says_why(device: str, confidence: Confidence) -> None:
    found = project(a_job(LLAMA_8B), device)
    assert found.confidence is confidence
    assert found.confidence_reasons
    assert confidence_of(found) == (found.confidence, found.confidence_reasons)


def asked(model: str, device: str, **question: Any) -> PerformanceProjection:  # noqa: ANN401 - fields of a question
    overrides = {"micro_batch_size": "1", "global_batch_size": "64", "seq_length": "4096"}
    text = f'{{"model": "{model}"}}'
    found = ask(Question(text=text, device=device, memory=False, overrides=overrides, **question)).performance
    assert found is not None
    return found


def left_open(found: PerformanceProjection) -> set[str]:
    return {reason.removesuffix(" not stated") for reason in found.confidence_reasons if reason.endswith("not stated")}


def test_a_megatron_job_on_amd_leaves_its_attention_kernels_open() -> None:
    assert left_open(asked("llama3.1-8b", "MI300X")) == {Unstated.ATTENTION}
    assert left_open(asked("llama3.1-8b", "H100")) == set()


def test_experts_leave_the_host_open_unless_it_is_stated() -> None:
    assert left_open(asked("mixtral-8x7b", "H100")) == {Unstated.HOST}
    assert left_open(asked("mixtral-8x7b", "H100", host_factor=1.2)) == set()
