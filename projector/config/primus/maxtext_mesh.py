"""MaxText's mesh: degrees of each axis inside a slice (`ici_`) and across slices (`dcn_`) -> parallel degrees.

What each axis divides is the table `logical_axis_rules` of src/maxtext/configs/base.yml (AI-Hypercomputer/maxtext
0.2.5): `fsdp`, `context` and `expert` shard dense weights, `data`, `fsdp` and `expert` the batch, `expert` the experts.
On GPUs a slice is one host; one axis of either kind may be -1 and takes what the others leave.
"""

from dataclasses import dataclass
from math import prod

from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.errors import ConfigurationError, LayoutImpossible, NotAvailable
from projector.job import DEFAULT_DEVICES_PER_NODE

_AXES = ("data", "fsdp", "tensor", "context", "pipeline", "expert", "sequence")
_STRANGE = (
    "fsdp_transpose",
    "tensor_transpose",
    "tensor_sequence",
    "context_usp_ulysses",
    "context_autoregressive",
    "autoregressive",
    "diloco",
)
"""Axes whose meaning the engine has no counterpart for; almost always 1."""
_REST = -1
_MAXIMUM_DEGREE = 2**20
"""Most GPUs along an axis; no cluster has a million."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mesh:
    """The degrees that the axes come to."""

    tensor: int
    """Tensor parallel."""
    pipeline: int
    """Pipeline stages."""
    expert: int
    """Expert parallel."""
    context: int
    """Sequence and context axes together: both divide tokens and share one batch."""
    shard: int | None
    """Ranks that share one copy of the weights; 1 for none, None for all ranks with the same weights."""
    devices_per_node: int
    """GPUs of a slice."""
    nodes: int | None
    """Slices, where every axis across them is stated."""


def mesh(keys: Keys, notes: Notes) -> Mesh:
    """Read the axes; raises `LayoutImpossible` for what does not come out, `NotAvailable` for axes of another kind."""
    for axis in _STRANGE:
        for kind in ("ici", "dcn"):
            key = f"{kind}_{axis}_parallelism"
            if keys.integer(key, 1, minimum=_REST) != 1:
                expected = "1; data, fsdp, tensor, context, pipeline and expert axes are read"
                raise NotAvailable(f"the axis {axis} cannot be read", place=keys.place(key), expected=expected)
    inside, across = _degrees(keys, "ici", fallback={"fsdp": _REST}), _degrees(keys, "dcn", fallback={"data": _REST})
    inside, devices = _filled(inside, keys, notes)
    free = _free(across)
    if free not in {None, "data", "fsdp"}:
        place = keys.place(f"dcn_{free}_parallelism")
        raise NotAvailable("-1 across slices depends on their number", place=place, expected="the degree itself")
    both = {axis: inside[axis] * across[axis] for axis in _AXES}
    context = both["context"] * both["sequence"]
    return Mesh(
        tensor=both["tensor"],
        pipeline=both["pipeline"],
        expert=both["expert"],
        context=context,
        shard=_shard(inside, across, keys),
        devices_per_node=devices,
        nodes=None if free is not None else prod(across.values()),
    )


def _degrees(keys: Keys, kind: str, *, fallback: dict[str, int]) -> dict[str, int]:
    degrees = {axis: keys.integer(f"{kind}_{axis}_parallelism", fallback.get(axis, 1), minimum=_REST) for axis in _AXES}
    for axis, degree in degrees.items():
        key = f"{kind}_{axis}_parallelism"
        if degree == 0:
            keys.wrong(key, "an integer of at least 1, or -1 for the rest")
        if degree == _REST and axis != _free(degrees):
            expected = f"one -1 among the {kind} axes"
            raise ConfigurationError("a second axis of -1", place=keys.place(key), expected=expected)
    return degrees


def _free(degrees: dict[str, int]) -> str | None:
    """The first axis that takes what the others leave."""
    return next((axis for axis, degree in degrees.items() if degree == _REST), None)


def _filled(inside: dict[str, int], keys: Keys, notes: Notes) -> tuple[dict[str, int], int]:
    """The axes of a slice with the free one filled, and the GPUs of the slice."""
    free = _free(inside)
    if free is None:
        return inside, prod(inside.values())
    stated = prod(degree for degree in inside.values() if degree != _REST)
    key = f"ici_{free}_parallelism"
    if DEFAULT_DEVICES_PER_NODE % stated:
        message = f"{DEFAULT_DEVICES_PER_NODE} GPUs of a host do not divide over axes of {stated}"
        raise LayoutImpossible(message, place=keys.place(key), expected="the degree itself instead of -1")
    notes.assume(
        f"{key} {DEFAULT_DEVICES_PER_NODE // stated}",
        f"-1 takes the rest of a host of {DEFAULT_DEVICES_PER_NODE} GPUs; state it",
    )
    return {**inside, free: DEFAULT_DEVICES_PER_NODE // stated}, DEFAULT_DEVICES_PER_NODE


def _shard(inside: dict[str, int], across: dict[str, int], keys: Keys) -> int | None:
    """Ranks that share one copy of the weights; None for all, where nothing but sharding axes divides the batch."""
    axes = ("fsdp", "expert", "context", "sequence")
    replicas = inside["data"] * across["data"]
    if replicas == 1:
        return None if _free(across) == "fsdp" else prod(inside[axis] * across[axis] for axis in axes)
    if _free(across) == "fsdp":
        expected = "the degree itself instead of -1, or data axes of 1"
        raise NotAvailable("-1 beside replicas", place=keys.place("dcn_fsdp_parallelism"), expected=expected)
    return prod(inside[axis] * across[axis] for axis in axes)


def pipeline_micro_batches(keys: Keys, axes: Mesh) -> int:
    """Micro batches in which a step passes the pipeline: as many as stages, twice that with delayed forwarding."""
    stated = keys.integer("num_pipeline_microbatches", _REST, minimum=_REST)
    delayed = keys.boolean("pipeline_delay_activation_forwarding")
    if axes.pipeline == 1:
        return 1
    return axes.pipeline * (2 if delayed else 1) if stated == _REST else stated


def pipeline_repeats(keys: Keys, axes: Mesh, *, layers: int) -> int:
    """How often a micro batch passes every stage (model chunks a stage).

    Raises `LayoutImpossible` when the layers do not divide.
    """
    repeats = keys.integer("num_pipeline_repeats", _REST, minimum=_REST)
    each = keys.integer("num_layers_per_pipeline_stage", 1, minimum=1)
    inside = keys.integer("pipeline_parallel_layers", _REST, minimum=_REST)
    if axes.pipeline == 1:
        return 1
    if inside not in {_REST, layers}:
        expected = "-1, for all layers"
        raise NotAvailable(
            f"a pipeline of {inside} layers of {layers}",
            place=keys.place("pipeline_parallel_layers"),
            expected=expected,
        )
    if repeats == _REST:
        repeats = max(1, layers // (axes.pipeline * each))
    if repeats * axes.pipeline * each != layers:
        message = f"{layers} layers are not {axes.pipeline} stages x {each} layers x {repeats} repeats"
        expected = "num_layers_per_pipeline_stage that divides"
        raise LayoutImpossible(message, place=keys.place("num_layers_per_pipeline_stage"), expected=expected)
    return repeats
