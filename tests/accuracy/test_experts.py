"""The columns that speak of experts become what the sources' own files say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from projector.job import ExpertBackend, ExpertDispatch
from tests.accuracy.experts import experts
from tests.accuracy.rows import Row, load

ROWS = load(Path(__file__).with_name("ground_truth.yaml"))
BLOCK = {"experts": 8, "topk": 2, "expert_ffn": 1024}


def fields(source: str, **model: Any) -> dict[str, Any]:  # noqa: ANN401 - any column
    row: Row = next(row for row in ROWS if row.source == source)
    changed = replace(row, model={**row.model, "ffn": 2048, **model}, train={"seq": 1024})
    return experts(changed, modern=False, sync_free=False, deepep=False)


def test_a_source_that_pads_its_experts_to_a_capacity_says_so_in_its_launch_script() -> None:
    padded, dense = fields("simumax-b200-v1.2", moe=BLOCK), fields("simumax-b200-v1.2")
    assert (padded["expert_capacity_factor"], padded["permute_fusion"]) == (1.0, True)
    assert (dense["expert_capacity_factor"], dense["permute_fusion"]) == (None, False)


@pytest.mark.parametrize(
    ("model", "wide", "fused"),
    [
        ({"moe": BLOCK, "mla": {"kv_lora": 512}}, True, True),
        ({"moe": BLOCK}, True, False),
        ({"moe": BLOCK | {"expert_ffn": 2048}}, False, False),
    ],
    ids=["latent attention", "a width of their own", "the dense width"],
)
def test_megatrons_tests_state_a_router_in_fp32_where_experts_have_their_own_width(
    model: dict[str, Any],
    wide: bool,  # noqa: FBT001 - a case
    fused: bool,  # noqa: FBT001 - a case
) -> None:
    found = fields("megatron-ci-golden", **model)
    assert (found["router_in_fp32"], found["permute_fusion"]) == (wide, fused)


def test_dispatcher_and_backend_are_read_from_the_model() -> None:
    block = BLOCK | {"dispatcher": "allgather", "grouped_gemm": False}
    found = fields("megatron-ci-golden", moe=block)
    assert (found["expert_dispatch"], found["expert_backend"]) == (ExpertDispatch.ALL_GATHER, ExpertBackend.SEQUENTIAL)
