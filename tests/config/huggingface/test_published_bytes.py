"""What a run keeps of each parameter is what the authors of its framework publish, once divided over its ranks."""

import json
from typing import Any

import pytest

from projector.api import Question, project
from projector.projection import StageMemory
from tests.config.huggingface.builders import LLAMA

RANKS, PER_NODE = 16, 8
"""Data-parallel ranks, on two nodes."""
ADAM = 4 + 4 + 4
"""Master weight and both moments of mixed-precision Adam (arXiv 1910.02054, section 3.1)."""


def deepspeed(stage: int, kind: str = "bf16", **others: object) -> dict[str, Any]:
    return {"ds.json": {"zero_optimization": {"stage": stage, **others}, kind: {"enabled": True}}}


def accelerate(kind: str, *, precision: str = "bf16", **sections: object) -> dict[str, Any]:
    return {"accelerate.yaml": {"distributed_type": kind, "mixed_precision": precision, **sections}}


def fsdp(strategy: str, *, precision: str = "bf16", **sections: object) -> dict[str, Any]:
    return accelerate("FSDP", precision=precision, fsdp_config={"fsdp_sharding_strategy": strategy}, **sections)


ZERO = {
    "nothing divided": (deepspeed(0, "fp16"), (2, 2, ADAM)),
    "optimizer state divided": (deepspeed(1, "fp16"), (2, 2, ADAM / RANKS)),
    "gradients too": (deepspeed(2, "fp16"), (2, 2 / RANKS, ADAM / RANKS)),
    "weights too": (deepspeed(3, "fp16"), (2 / RANKS, 2 / RANKS, ADAM / RANKS)),
    "bf16, optimizer state divided": (deepspeed(1), (2, 2, ADAM / RANKS)),
    "bf16, gradients too": (deepspeed(2), (2, 2 / RANKS, ADAM / RANKS)),
    "bf16, weights too": (deepspeed(3), (2 / RANKS, 2 / RANKS, ADAM / RANKS)),
    "by accelerate": (
        accelerate("DEEPSPEED", deepspeed_config={"zero_stage": 2}),
        (2, 2 / RANKS, ADAM / RANKS),
    ),
    "weights in groups of 8 (MiCS)": (deepspeed(3, mics_shard_size=8), (2 / 8, 2 / 8, ADAM / 8)),
    "state in host memory": (deepspeed(2, offload_optimizer={"device": "cpu"}), (2, 0, 0)),
}
"""DeepSpeed: bytes of weights, gradients and optimizer state (arXiv 1910.02054, section 3.1 and figure 1)."""
ACCUMULATING = {
    "gradients accumulated in fp32": (
        {"ds.json": {**deepspeed(2)["ds.json"], "data_types": {"grad_accum_dtype": "fp32"}}},
        (2, 4 / RANKS, ADAM / RANKS),
    ),
}
"""DeepSpeed where gradients are wider than the paper's."""
SHARDED = {
    "FULL_SHARD": (fsdp("FULL_SHARD"), (4 / RANKS, 4 / RANKS, 8 / RANKS)),
    "FULL_SHARD by its number": (fsdp("1"), (4 / RANKS, 4 / RANKS, 8 / RANKS)),
    "FULL_SHARD in fp32": (fsdp("FULL_SHARD", precision="no"), (4 / RANKS, 4 / RANKS, 8 / RANKS)),
    "HYBRID_SHARD": (fsdp("HYBRID_SHARD"), (4 / PER_NODE, 4 / PER_NODE, 8 / PER_NODE)),
    "NO_SHARD": (fsdp("NO_SHARD"), (4, 4, 8)),
    "FSDP2": (
        accelerate("FSDP", fsdp_config={"fsdp_version": 2, "fsdp_reshard_after_forward": True}),
        (4 / RANKS, 4 / RANKS, 8 / RANKS),
    ),
    "FSDP2 in 4 copies": (
        accelerate(
            "FSDP",
            fsdp_config={"fsdp_version": 2},
            parallelism_config={"parallelism_config_dp_replicate_size": 4, "parallelism_config_dp_shard_size": 4},
        ),
        (4 / 4, 4 / 4, 8 / 4),
    ),
    # Weights stay whole in bf16 behind their fp32 shards (torch/distributed/fsdp/api.py ShardingStrategy).
    "SHARD_GRAD_OP": (fsdp("SHARD_GRAD_OP"), (2, 4 / RANKS, ADAM / RANKS)),
    "HYBRID_SHARD_ZERO2": (fsdp("HYBRID_SHARD_ZERO2"), (2, 4 / PER_NODE, ADAM / PER_NODE)),
    "DistributedDataParallel in fp32": (accelerate("MULTI_GPU", precision="no"), (4, 4, 8)),
}
"""PyTorch: fp32 weights, gradients and Adam's moments, each divided (arXiv 2304.11277, section 4.4)."""


def stage(files: dict[str, Any], **overrides: str) -> StageMemory:
    question = Question(
        text=json.dumps(LLAMA),
        companions={name: json.dumps(content) for name, content in files.items()},
        overrides={"seq_length": "4096", "micro_batch_size": "1", **overrides},
        nodes=RANKS // PER_NODE,
        devices_per_node=PER_NODE,
        performance=False,
    )
    memory = project(question).memory
    assert memory is not None
    return memory.stages[0]


def kept(held: StageMemory) -> list[float]:
    """Bytes per parameter of weights, gradients and optimizer state."""
    sizes = {part.name: part.size_bytes for part in held.components}
    return [sizes.get(name, 0) / held.parameters for name in ("weights", "gradients", "optimizer state")]


@pytest.mark.parametrize(("files", "wanted"), ZERO.values(), ids=ZERO)
def test_zero_keeps_what_its_paper_says(files: dict[str, Any], wanted: tuple[float, ...]) -> None:
    assert kept(stage(files)) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(("files", "wanted"), ACCUMULATING.values(), ids=ACCUMULATING)
def test_gradients_are_as_wide_as_deepspeed_accumulates_them(files: dict[str, Any], wanted: tuple[float, ...]) -> None:
    assert kept(stage(files)) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(("files", "wanted"), SHARDED.values(), ids=SHARDED)
def test_pytorch_keeps_fp32_and_divides_it(files: dict[str, Any], wanted: tuple[float, ...]) -> None:
    assert kept(stage(files)) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize(
    "bytes_per_moment", [pytest.param(1 + 4 / 256, id="adamw_8bit"), pytest.param(4, id="adamw_torch")]
)
def test_the_optimizer_decides_the_moments(bytes_per_moment: float) -> None:
    """Eight-bit moments share an fp32 scale among 256 (arXiv 2110.02861)."""
    name = {4: "adamw_torch"}.get(round(bytes_per_moment), "adamw_8bit")
    assert kept(stage(deepspeed(1), optim=name))[2] == pytest.approx((4 + 2 * bytes_per_moment) / RANKS, rel=1e-6)
