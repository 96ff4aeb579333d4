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
from projector.layers.blocks import norm
from projector.layers.ends import prediction_head, prediction_input
from projector.layers.factored_attention import factored
from projector.layers.hyper_connections import head, mixed_input, mixed_output
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
    halves = (("self_attention", _mixer_half(layer, shapes)), ("mlp", _feed_forward_half(layer, shapes)))
    operations = tuple(each for component, half in halves for each in _connected(component, tuple(half), shapes))
    operations = as_local_layers_keep(as_classes_keep(operations, layer, shapes), layer, shapes)
    return with_adapters(operations, shapes)


def _connected(component: str, half: tuple[Operation, ...], shapes: Shapes) -> tuple[Operation, ...]:
    """A half of a layer between what it reads of the residual streams and what it adds to them."""
    if not half:
        return ()
    ahead = () if shapes.streams == 1 else (mixed_input(component, shapes),)
    return *ahead, *half, mixed_output(f"{component}.residual", component, shapes)


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


@lru_cache(maxsize=64)
def shaped_prediction(layer: DecoderLayer, shapes: Shapes) -> tuple[Operation, ...]:
    """Operations of one multi-token-prediction layer, its pass through the shared output layer included.

    DeepSeek-V3's module (arXiv 2412.19437, section 2.2): the layer is of the kind of the last decoder layer.
    """
    return (
        *with_adapters(prediction_input(shapes), shapes),
        *shaped_layer(layer, shapes),
        *(() if shapes.streams == 1 else (head("multi_token_prediction", shapes),)),
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
