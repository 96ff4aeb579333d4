"""Small jobs to lay out, by the names of what varies."""

from collections.abc import Sequence
from typing import Any

from projector.job import (
    Attention,
    Batch,
    DecoderLayer,
    DenseMLP,
    MixtureOfExperts,
    ModelArchitecture,
    Parallelism,
    Target,
    TrainingJob,
)

DENSE = DecoderLayer(
    mixer=Attention(heads=64, key_value_heads=8, head_dim=128), feed_forward=DenseMLP(ffn=28672, gated=True)
)
"""A layer of Llama-3 70B."""
MOE = DecoderLayer(
    mixer=Attention(heads=48, key_value_heads=8, head_dim=128),
    feed_forward=MixtureOfExperts(experts=8, top_k=2, expert_ffn=16384),
)
"""A layer of Mixtral 8x22B."""


def model(layers: Sequence[DecoderLayer] = (DENSE,) * 80, **changes: Any) -> ModelArchitecture:  # noqa: ANN401 - any field
    """Llama-3 70B, or with other layers and fields."""
    fields: dict[str, Any] = {"name": "test", "hidden": 8192, "vocabulary": 128256} | changes
    return ModelArchitecture(layers=tuple(layers), **fields)


def mixtral(layers: int = 56) -> ModelArchitecture:
    """Mixtral 8x22B."""
    return model((MOE,) * layers, hidden=6144, vocabulary=32000)


def job(
    architecture: ModelArchitecture | None = None,
    *,
    micro: int = 1,
    global_: int = 64,
    sequence: int = 4096,
    layout: Parallelism | None = None,
    **changes: Any,  # noqa: ANN401 - any field
) -> TrainingJob:
    """A job; `changes` are further fields of `TrainingJob`."""
    return TrainingJob(
        model=architecture or model(),
        parallelism=layout or Parallelism(),
        batch=Batch(micro=micro, global_=global_, sequence_length=sequence),
        **changes,
    )


def target(nodes: int = 1, devices_per_node: int = 8, **changes: Any) -> Target:  # noqa: ANN401 - any field
    """Nodes of MI300X."""
    return Target(nodes=nodes, devices_per_node=devices_per_node, **({"device": "MI300X"} | changes))
