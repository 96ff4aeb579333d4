"""Exact parameter counts: of the model as published, per component, and of the fullest device."""

from collections.abc import Iterable, Sequence

from projector.identity import remembered
from projector.job import TrainingJob
from projector.layers import ADAPTERS
from projector.memory.stages import ChunkOperations, described_stages, distinct_parts
from projector.operations import Held, Operation, Operations, Weight, held_by
from projector.parallelism import Layout
from projector.projection import ComponentParameters, ParameterCounts, StageComponent

PREDICTION = "multi_token_prediction"


def count_parameters(job: TrainingJob, layout: Layout) -> ParameterCounts:
    """Count every weight once for the model, and as held for the device with most of them.

    `total` is what the published model has: no vocabulary padding, no multi-token prediction, no adapters, and no
    stored state that is not learnt, such as a router's balance bias.
    """
    return counted(described_stages(job, layout))


def counted(stages: Sequence[Sequence[ChunkOperations]]) -> ParameterCounts:
    """Counts of described stages."""
    chunks = [chunk for stage in stages for chunk in stage]
    main = [weight for chunk in chunks for weight in _published((chunk.embedding, *chunk.layers, chunk.output))]
    extra = [weight for chunk in chunks for weight in _published(chunk.predictions)]
    return ParameterCounts(
        total=sum(weight.full_elements * weight.full_copies for weight in main),
        vocabulary_padding=sum(weight.padding_elements for weight in main),
        multi_token_prediction=sum(weight.full_elements * weight.full_copies for weight in extra),
        active=sum(weight.full_elements * weight.active_copies for weight in main),
        per_device_max=max(stage_parameters(stage).total for stage in stages),
        components=_components(stages),
        stages=tuple(_stage_components(stage) for stage in stages),
    )


def stage_parameters(stage: Sequence[ChunkOperations]) -> Held:
    """Parameters of one device of a stage before data-parallel sharding, padding and adapters included."""
    return _added(((count, _held(part)) for count, part in distinct_parts(stage)))


def trained_parameters(stage: Sequence[ChunkOperations]) -> Held:
    """Of `stage_parameters`, those that have gradient and optimizer state."""
    return _added(((count, _trained(part)) for count, part in distinct_parts(stage)))


@remembered
def _held(part: Operations) -> Held:
    return held_by(part).plus(held_by(part, frozen=True))


@remembered
def _trained(part: Operations) -> Held:
    return held_by(part)


def _added(counts: Iterable[tuple[int, Held]]) -> Held:
    dense = expert = 0
    for count, held in counts:
        dense += count * held.dense
        expert += count * held.expert
    return Held(dense=dense, expert=expert)


def _published(parts: Iterable[Sequence[Operation]]) -> list[Weight]:
    """Weights of the model itself."""
    return _weights([[operation for operation in part if operation.component != ADAPTERS] for part in parts])


def _weights(parts: Iterable[Sequence[Operation]]) -> list[Weight]:
    return [weight for part in parts for operation in part for weight in operation.weights if weight.trainable]


def _components(stages: Sequence[Sequence[ChunkOperations]]) -> tuple[ComponentParameters, ...]:
    """Rows of the component tree, in the order of a forward pass."""
    full: dict[str, int] = {}
    held: dict[str, int] = {}
    activation: dict[str, int] = {}
    for stage in stages:
        here: dict[str, int] = {}
        for chunk in stage:
            for path, operations in _named_parts(chunk):
                once: dict[str, int] = {}
                for operation in operations:
                    name = f"{path}.{operation.component}" if path else operation.component
                    full.setdefault(name, 0)
                    for weight in _weights([[operation]]):
                        full[name] += weight.full_elements * weight.full_copies
                        here[name] = here.get(name, 0) + (0 if weight.shared else weight.elements)
                    once[name] = once.get(name, 0) + sum(tensor.size_bytes for tensor in operation.saves)
                for name, size in once.items():
                    activation[name] = max(activation.get(name, 0), size)
        for name, count in here.items():
            held[name] = max(held.get(name, 0), count)
    return tuple(
        ComponentParameters(
            name=name,
            parameters=count,
            parameters_per_device_max=held.get(name, 0),
            activation_bytes=activation.get(name, 0),
        )
        for name, count in full.items()
    )


def layer_branch(layer: Sequence[Operation]) -> str:
    """The branch of the component tree that a decoder layer belongs to."""
    return "moe_layer" if any(operation.component == "experts" for operation in layer) else "dense_layer"


def _stage_components(stage: Sequence[ChunkOperations]) -> tuple[StageComponent, ...]:
    """Parameters of one device of a stage, by component; they add up to those of `stage_parameters`."""
    sizes: dict[str, int] = {}
    for count, part in distinct_parts(stage):
        for operation in part:
            held = sum(weight.elements for weight in operation.weights if weight.trainable and not weight.shared)
            sizes[operation.component] = sizes.get(operation.component, 0) + count * held
    return tuple(StageComponent(name=name, parameters=size) for name, size in sizes.items() if size)


def _named_parts(chunk: ChunkOperations) -> list[tuple[str, Sequence[Operation]]]:
    """Parts of a chunk with the name of their branch of the tree."""
    layers = [(layer_branch(layer), layer) for layer in chunk.layers]
    predictions = [(PREDICTION, layer) for layer in chunk.predictions]
    return [("", chunk.embedding), *layers, *predictions, ("", chunk.output)]
