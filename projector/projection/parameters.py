"""Parameters of the model, counted, and the component tree."""

from collections.abc import Sequence
from typing import NamedTuple

from projector.projection.memory import SAVED, StageMemory


class ComponentParameters(NamedTuple):
    """A row of the component tree."""

    name: str
    """Path with dots, such as `moe_layer.experts`."""
    parameters: int
    """Parameters of the whole model in it, without padding."""
    parameters_per_device_max: int
    """Parameters of it on the device that holds most of it, padding included."""
    activation_bytes: int
    """Activations kept for backward on one device for one micro batch, one layer (without recomputation)."""


class StageComponent(NamedTuple):
    """Parameters of a component on one device of a stage."""

    name: str
    """Component, such as `self_attention`."""
    parameters: int
    """Before data-parallel sharding, padding included."""


def component_tree(stage: StageMemory, parameters: Sequence[StageComponent]) -> tuple[tuple[str, int, int], ...]:
    """Name, parameters and saved bytes at the peak of every component of a stage.

    The parameters add up to the stage's, the bytes to those of its parts called `saved activations`.
    """
    counts = {each.name: each.parameters for each in parameters}
    saved: dict[str, int] = {}
    for part in stage.components:
        if part.name.startswith(SAVED):
            name = part.name.removeprefix(SAVED)
            saved[name] = saved.get(name, 0) + part.size_bytes
    return tuple((name, counts.get(name, 0), saved.get(name, 0)) for name in (counts | saved))


class ParameterCounts(NamedTuple):
    """Parameters of the model, exactly."""

    total: int
    """As the published model counts them: no padding, no multi-token prediction."""
    vocabulary_padding: int
    """Added by padding the vocabulary."""
    multi_token_prediction: int
    """Added by multi-token-prediction layers."""
    active: int
    """Parameters a token passes (top-k experts; token table not counted, output layer counted)."""
    per_device_max: int
    """Of the stage with most parameters, per device before data-parallel sharding, padding included."""
    components: tuple[ComponentParameters, ...]
    """The component tree."""
    stages: tuple[tuple[StageComponent, ...], ...] = ()
    """The same for one device of each pipeline stage; they add up to the stage's parameters."""
