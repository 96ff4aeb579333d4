"""A decoder layer, a multi-token-prediction layer, and what the engine does not model of a job."""

from collections.abc import Iterator
from functools import lru_cache

from projector.job import (
    Attention,
    DecoderLayer,
    DenseMLP,
    LatentAttention,
    MixtureOfExperts,
    ModelArchitecture,
    TrainingJob,
    UnmodelledMixer,
    UnmodelledMLP,
)
from projector.job.architecture import runs_of
from projector.layers.adapters import with_adapters
from projector.layers.attention import attention_operations
from projector.layers.blocks import norm, residual
from projector.layers.ends import prediction_head, prediction_input
from projector.layers.factored_attention import factored
from projector.layers.latent_attention import latent_attention_operations
from projector.layers.megatron_local import as_local_layers_keep
from projector.layers.mlp import mlp_operations
from projector.layers.modules import as_classes_keep
from projector.layers.moe import moe_operations
from projector.layers.shapes import Shapes, shapes_of
from projector.operations import Operation
from projector.parallelism import Layout

_UNMODELLED = (UnmodelledMixer, UnmodelledMLP)


def layer_operations(layer: DecoderLayer, job: TrainingJob, layout: Layout) -> tuple[Operation, ...]:
    """Operations of a decoder layer on one device for one micro batch, in forward order.

    Equal layers of equal shapes are described once. A mixer or feed-forward block that is not modelled has none.
    """
    return shaped_layer(layer, shapes_of(job, layout))


@lru_cache(maxsize=512)
def shaped_layer(layer: DecoderLayer, shapes: Shapes) -> tuple[Operation, ...]:
    """Operations of a decoder layer from sizes alone."""
    operations = (*_mixer_half(layer, shapes), *_feed_forward_half(layer, shapes))
    operations = as_local_layers_keep(as_classes_keep(operations, layer, shapes), layer, shapes)
    return with_adapters(operations, shapes)


def _mixer_half(layer: DecoderLayer, shapes: Shapes) -> Iterator[Operation]:
    match layer.mixer:
        case Attention():
            yield norm("input_layernorm", shapes, keeps_output=False)
            yield from factored(attention_operations(layer.mixer, shapes), layer.mixer, shapes)
        case LatentAttention():
            yield norm("input_layernorm", shapes, keeps_output=True, only_for_weights=True)
            yield from latent_attention_operations(layer.mixer, shapes)
        case _:
            return
    if layer.post_norms:
        yield norm("post_attention_layernorm", shapes, keeps_output=False)
    yield residual("self_attention.residual", "self_attention", shapes)


def _feed_forward_half(layer: DecoderLayer, shapes: Shapes) -> Iterator[Operation]:
    match layer.feed_forward:
        case DenseMLP():
            yield norm("pre_mlp_layernorm", shapes, keeps_output=False)
            yield from mlp_operations(layer.feed_forward, shapes)
        case MixtureOfExperts():
            yield norm("pre_mlp_layernorm", shapes, keeps_output=True)
            yield from moe_operations(layer.feed_forward, shapes)
        case _:
            return
    if layer.post_norms:
        yield norm("post_mlp_layernorm", shapes, keeps_output=False)
    yield residual("mlp.residual", "mlp", shapes)


def mtp_operations(job: TrainingJob, layout: Layout) -> tuple[Operation, ...]:
    """Operations of one multi-token-prediction layer, its pass through the shared output layer included.

    DeepSeek-V3's module (arXiv 2412.19437, section 2.2): the layer is of the kind of the last decoder layer.
    """
    return shaped_prediction(job.model.layers[-1], shapes_of(job, layout))


@lru_cache(maxsize=64)
def shaped_prediction(layer: DecoderLayer, shapes: Shapes) -> tuple[Operation, ...]:
    """Operations of a multi-token-prediction layer from sizes alone."""
    return (
        *with_adapters(prediction_input(shapes), shapes),
        *shaped_layer(layer, shapes),
        *with_adapters(prediction_head(shapes), shapes),
    )


def unmodelled_blocks(model: ModelArchitecture) -> dict[str, tuple[int, ...]]:
    """Mixers and feed-forward blocks without operations, by name, with the indices of the layers that hold them."""
    distinct = {id(layer): layer for _, layer in runs_of(model.layers)}
    unmodelled = {
        key: names
        for key, layer in distinct.items()
        if (names := [block.name for block in (layer.mixer, layer.feed_forward) if isinstance(block, _UNMODELLED)])
    }
    where: dict[str, list[int]] = {}
    for index, layer in enumerate(model.layers) if unmodelled else ():
        for name in unmodelled.get(id(layer), ()):
            where.setdefault(name, []).append(index)
    return {name: tuple(indices) for name, indices in where.items()}
