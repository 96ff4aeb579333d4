"""Jobs to project: builders with the facts of public models, changed by keyword."""

from typing import Any

from projector.catalog import HardwareOverrides, MeasuredRates, device
from projector.job import (
    Attention,
    Batch,
    DecoderLayer,
    DenseMLP,
    MixtureOfExperts,
    ModelArchitecture,
    NormKind,
    Parallelism,
    PositionKind,
    Software,
    Target,
    TrainingJob,
)
from projector.parallelism import resolve
from projector.performance import project_performance
from projector.projection import PerformanceProjection

LLAMA_8B = ModelArchitecture(
    name="llama3.1-8b",
    hidden=4096,
    layers=(DecoderLayer(mixer=Attention(heads=32, key_value_heads=8, head_dim=128), feed_forward=DenseMLP(ffn=14336)),)
    * 32,
    vocabulary=128256,
)
LLAMA_70B = ModelArchitecture(
    name="llama3.1-70b",
    hidden=8192,
    layers=(DecoderLayer(mixer=Attention(heads=64, key_value_heads=8, head_dim=128), feed_forward=DenseMLP(ffn=28672)),)
    * 80,
    vocabulary=128256,
)
MIXTRAL = ModelArchitecture(
    name="mixtral-8x7b",
    hidden=4096,
    layers=(
        DecoderLayer(
            mixer=Attention(heads=32, key_value_heads=8, head_dim=128),
            feed_forward=MixtureOfExperts(experts=8, top_k=2, expert_ffn=14336),
        ),
    )
    * 32,
    vocabulary=32000,
)


def gpt(layers: int, hidden: int, heads: int, vocabulary: int) -> ModelArchitecture:
    """A model of the GPT-3 family: plain attention, four times as wide a block, tied and learned embeddings."""
    layer = DecoderLayer(
        mixer=Attention(heads=heads, key_value_heads=heads, head_dim=hidden // heads, bias_qkv=True, bias_output=True),
        feed_forward=DenseMLP(ffn=4 * hidden, gated=False, bias=True),
    )
    return ModelArchitecture(
        name=f"gpt-{layers}x{hidden}",
        hidden=hidden,
        layers=(layer,) * layers,
        vocabulary=vocabulary,
        tied_embeddings=True,
        norm=NormKind.LAYER,
        position=PositionKind.LEARNED,
        max_position=2048,
    )


def a_job(
    model: ModelArchitecture = LLAMA_8B,
    *,
    micro: int = 1,
    batch: int = 128,
    sequence: int = 8192,
    software: Software | None = None,
    job: dict[str, Any] | None = None,
    **parallelism: Any,  # noqa: ANN401 - any field of Parallelism
) -> TrainingJob:
    """A job; other keywords are degrees of `Parallelism`, `job` further fields of `TrainingJob`."""
    return TrainingJob(
        model=model,
        parallelism=Parallelism(**parallelism),
        batch=Batch(micro=micro, global_=batch, sequence_length=sequence),
        software=software or Software(overlap_gradient_reduce=True, overlap_parameter_gather=True),
        **(job or {}),
    )


def project(
    job: TrainingJob,
    name: str = "MI300X",
    *,
    nodes: int = 1,
    per_node: int = 8,
    schedule: str = "auto",
    overrides: HardwareOverrides | None = None,
    rates: MeasuredRates | None = None,
) -> PerformanceProjection:
    """The time half of the answer."""
    target = Target(device=name, nodes=nodes, devices_per_node=per_node)
    layout = resolve(job, target)
    return project_performance(job, target, layout, device(name), schedule=schedule, overrides=overrides, rates=rates)


def part(projection: PerformanceProjection, name: str) -> float:
    """Seconds of a waterfall step, 0 when there is none."""
    return next((step.seconds for step in projection.waterfall if step.name == name), 0.0)
