"""Distinct, valid layouts of public models, whose memory is projected in order to time it."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from projector import catalog
from projector.answer import with_device_defaults
from projector.catalog import Device
from projector.errors import InputError
from projector.job import (
    Batch,
    ModelArchitecture,
    Parallelism,
    Recompute,
    RecomputeGranularity,
    RecomputeMethod,
    Sharding,
    Software,
    Target,
    TrainingJob,
)
from projector.parallelism import Layout, resolve

MODELS = (
    "llama3.1-8b",
    "llama3.1-70b",
    "llama3.1-405b",
    "qwen2.5-72b",
    "mixtral-8x7b-v0.1",
    "mixtral-8x22b-v0.1",
    "qwen3-30b-a3b",
    "qwen3-235b-a22b",
    "deepseek-v2",
    "deepseek-v3",
)
"""Dense models and models with experts, some with latent attention, of 8 to 671 billion parameters."""

_DEGREES: dict[str, tuple[Any, ...]] = {
    "tensor": (1, 2, 4, 8),
    "pipeline": (1, 2, 4, 8, 16),
    "virtual_pipeline": (1, 1, 2, 4, 8),
    "context": (1, 1, 2, 4),
    "sharding": (Sharding.OPTIMIZER, Sharding.OPTIMIZER, Sharding.NONE, Sharding.PARAMETERS),
}
_EXPERT = (1, 2, 4, 8, 16, 32)
_MICRO = (1, 1, 2, 4)
_SEQUENCE = (2048, 4096, 8192, 16384)
_NODES = (16, 32, 64, 128)
_MICRO_BATCHES = (8, 16, 32, 64)
_RECOMPUTE = (
    Recompute(),
    Recompute(granularity=RecomputeGranularity.SELECTIVE),
    Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.UNIFORM, layers=1),
    Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.BLOCK, layers=2),
)


_ENDS: dict[str, Any] = {"embedding_counts_as_layer": True, "loss_counts_as_layer": True}
"""With 126 layers these make 128 places."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A job, laid out on a GPU."""

    job: TrainingJob
    layout: Layout
    device: Device


def distinct(count: int, *, seed: int = 1) -> Iterator[Case]:
    """`count` cases of which no two are equal; the same for the same seed."""
    random_ = random.Random(seed)
    device = catalog.device("B200")
    seen: set[TrainingJob] = set()
    while len(seen) < count:
        job = _drawn(random_)
        nodes = random_.choice(_NODES)
        layout = _laid_out(job, nodes)
        if layout is not None and job not in seen:
            seen.add(job)
            yield Case(job=with_device_defaults(job, device), layout=layout, device=device)


def largest() -> Iterator[tuple[str, Case]]:
    """The largest models over as many stages and model chunks as their layers allow, by name."""
    device = catalog.device("B200")
    for name, degrees in (
        ("llama3.1-405b", Parallelism(tensor=8, pipeline=16, virtual_pipeline=8, **_ENDS)),
        ("deepseek-v3", Parallelism(pipeline=16, virtual_pipeline=4, expert=64, pipeline_layout="E|(t|)*61,m|L")),
    ):
        job = TrainingJob(
            model=_architecture(name),
            parallelism=degrees,
            batch=Batch(micro=1, sequence_length=4096, micro_batches=64),
        )
        layout = resolve(job, Target(device=device.name, nodes=128, devices_per_node=8))
        yield name, Case(job=with_device_defaults(job, device), layout=layout, device=device)


def _architecture(name: str) -> ModelArchitecture:
    architecture = catalog.model(name).architecture
    assert architecture is not None
    return architecture


def _drawn(random_: random.Random) -> TrainingJob:
    model = _architecture(random_.choice(MODELS))
    degrees = Parallelism(**{name: random_.choice(values) for name, values in _DEGREES.items()})
    if model.expert_blocks:
        degrees = replace(degrees, expert=random_.choice(_EXPERT), expert_tensor=random_.choice((1, degrees.tensor)))
    return TrainingJob(
        model=model,
        parallelism=degrees,
        batch=Batch(
            micro=random_.choice(_MICRO),
            sequence_length=random_.choice(_SEQUENCE),
            micro_batches=random_.choice(_MICRO_BATCHES),
        ),
        recompute=random_.choice(_RECOMPUTE),
        software=Software(expert_capacity_factor=random_.choice((None, 1.0))) if model.expert_blocks else Software(),
    )


def _laid_out(job: TrainingJob, nodes: int) -> Layout | None:
    """The layout on so many hosts of eight GPUs, None where it is none."""
    try:
        return resolve(job, Target(device="B200", nodes=nodes, devices_per_node=8))
    except InputError:
        return None
