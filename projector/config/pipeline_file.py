"""Reading a file of given chunk times: a pipeline to schedule, without a model (docs/schedule.md).

Two forms are read: the project's own `pipeline:` map, and the file of Primus's stand-alone pipeline simulation with its
`schedulers:` list (AMD-AGI/Primus primus/core/projection/configs/pp_simulation.yaml and
performance_projection/simulator.py).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from projector.config.nearest import nearest
from projector.config.overrides import parse_override
from projector.config.safe_yaml import parse_mapping
from projector.errors import ConfigurationError, shown
from projector.job import Schedule
from projector.projection import ChunkDurations, PipelinePhase
from projector.provenance import Assumption

_HEAD = r"(?m)^(?:pipeline|schedulers)[ \t]*:"
"""The section that every such file has, and no training configuration."""
_SECOND = 1e3
"""Milliseconds of a second."""
_GIB = 2**30
"""Bytes of a GiB, which Primus calls GB."""
_LARGEST = 1e9
"""Largest time in milliseconds and size in GiB: more than a week, and more than any device holds."""
_SHORTEST = 1e-6
"""Shortest forward pass in milliseconds; no kernel is as short."""
_MOST_CHUNKS = 2048
"""Most model chunks of all stages together; a model of a million million parameters has 64 stages."""
_MOST_MICRO_BATCHES = 10**9
"""Most micro batches of a run."""
_ENTRIES: TypeAlias = Mapping[str, Any]

_KEYS = (
    "stages",
    "chunks",
    "micro_batches",
    "schedule",
    "times_ms",
    "transfer_ms",
    "blocking_sends",
    "micro_batch_group",
    "pending_micro_batches",
)
_TIMES = ("forward", "backward", "backward_input", "backward_weight", "activation_gib")
_PRIMUS_TIMES = ("fwd_time", "bwd_time", "wgrad_time")
_PRIMUS_KEYS = (*_PRIMUS_TIMES, "chunk_time_ms", "schedulers", "print_simulation_result", "output_dir")
_PRIMUS_IGNORED = ("print_simulation_result", "output_dir")
_PRIMUS_SCHEDULER = ("name", "class", "pp_size", "vpp_size", "micro_batches", "memory_config")
_PRIMUS_CHUNK = ("fwd", "bwd", "wgrad", "activation")
_CLASSES = {
    "Schedule1F1B": Schedule.ONE_F_ONE_B,
    "ScheduleInterleaved1F1B": Schedule.INTERLEAVED,
    "ScheduleZeroBubble": Schedule.ZERO_BUBBLE,
    "ScheduleZBVFormatted": Schedule.ZBV_FORMATTED,
}
"""Schedules by Primus's class (primus/core/pipeline_parallel/scheduler/algorithms)."""
_GREEDY = {"half": Schedule.ZBV_GREEDY_HALF, "min": Schedule.ZBV_GREEDY_MIN}
"""Schedules of Primus's `ScheduleZBVGreedy` by its `memory_config`."""


class PipelineCase(NamedTuple):
    """A schedule to run over given chunk times."""

    name: str
    """What the file calls it."""
    schedule: str
    """`auto`, `all` or a schedule by name."""
    phase: PipelinePhase
    """The chunks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PipelineFile:
    """What a file of given chunk times says."""

    cases: tuple[PipelineCase, ...]
    """Schedules in the order of the file."""
    assumed: tuple[Assumption, ...] = ()
    """What the file leaves open."""
    ignored: tuple[str, ...] = ()
    """Keys that change nothing."""


def is_pipeline_file(text: str) -> bool:
    """Whether a text holds chunk times rather than a training configuration."""
    return re.search(_HEAD, text) is not None


def read_pipeline_file(text: str, *, name: str, overrides: Mapping[str, str] | None = None) -> PipelineFile:
    """Read a file of given chunk times; `overrides` replace its keys by name.

    Raises `ConfigurationError` that names the key, its value and what would be right.
    """
    entries = parse_mapping(text, name=name)
    changes = {key: parse_override(key, text).value for key, text in (overrides or {}).items()}
    if "schedulers" in entries:
        return _of_primus(entries, changes, name)
    for key in entries:
        if key != "pipeline":
            raise ConfigurationError("is not a known key", place=f"{name}: {key}", expected="pipeline alone")
    return _own(entries["pipeline"], changes, f"{name}: pipeline")


def _own(section: object, changes: _ENTRIES, place: str) -> PipelineFile:
    """The project's own form."""
    entries = {**_mapping(section, place, _KEYS), **changes}
    _known(entries, _KEYS, place)
    chunks = _count(entries, "chunks", place, default=1)
    times = entries.get("times_ms")
    stated = len(times) if isinstance(times, Sequence) and not isinstance(times, str) else None
    stages = _count(entries, "stages", place, default=stated)
    if stages * chunks > _MOST_CHUNKS:
        raise ConfigurationError(
            f"{stages} stages x {chunks} chunks", place=place, expected=f"at most {_MOST_CHUNKS} together"
        )
    halved: list[str] = []

    def durations(entry: object, where: str) -> tuple[ChunkDurations, float | None]:
        return _times(entry, where, halved)

    read = _by_chunk(times, stages, chunks, f"{place}.times_ms", durations)
    transfer = _number(entries, "transfer_ms", place, default=0.0) / _SECOND
    phase = PipelinePhase(
        chunks=tuple(tuple(one for one, _ in rank) for rank in read),
        micro_batches=_count(entries, "micro_batches", place, most=_MOST_MICRO_BATCHES),
        transfer_seconds=(transfer if stages > 1 else 0.0,) * stages,
        blocking=_switch(entries, "blocking_sends", place),
        group=_optional_count(entries, "micro_batch_group", place),
        pending=_optional_count(entries, "pending_micro_batches", place),
        activation_bytes=_activations(read, f"{place}.times_ms"),
    )
    names = entries.get("schedule") or "auto"
    listed = names if isinstance(names, list) else [names]
    cases = [PipelineCase(str(each), _named(each, f"{place}.schedule"), phase) for each in listed]
    return PipelineFile(cases=tuple(cases), assumed=_halves(halved))


def _of_primus(entries: _ENTRIES, changes: _ENTRIES, name: str) -> PipelineFile:
    """Primus's form: times of a whole stage, or of each chunk, and a list of schedulers."""
    shared = {key: value for key, value in changes.items() if key not in _PRIMUS_SCHEDULER}
    entries = {**entries, **shared}
    _known(entries, _PRIMUS_KEYS, name)
    schedulers = entries["schedulers"]
    if not isinstance(schedulers, list) or not schedulers:
        raise ConfigurationError(shown(schedulers), place=f"{name}: schedulers", expected="a list of schedulers")
    cases = []
    for index, each in enumerate(schedulers):
        place = f"{name}: schedulers[{index}]"
        inner = {key: value for key, value in changes.items() if key in _PRIMUS_SCHEDULER}
        scheduler = {**_mapping(each, place, _PRIMUS_SCHEDULER), **inner}
        schedule = _primus_schedule(scheduler, place)
        label = scheduler.get("name")
        cases.append(
            PipelineCase(
                label if isinstance(label, str) and label else schedule.value,
                schedule.value,
                _primus_phase(entries, scheduler, place, name),
            )
        )
    ignored = tuple(key for key in _PRIMUS_IGNORED if key in entries)
    return PipelineFile(cases=tuple(cases), ignored=ignored)


def _primus_phase(entries: _ENTRIES, scheduler: _ENTRIES, place: str, name: str) -> PipelinePhase:
    stages = _count(scheduler, "pp_size", place)
    chunks = _count(scheduler, "vpp_size", place, default=1)
    if stages * chunks > _MOST_CHUNKS:
        expected = f"pp_size x vpp_size of at most {_MOST_CHUNKS}"
        raise ConfigurationError(f"{stages} x {chunks}", place=place, expected=expected)
    given = entries.get("chunk_time_ms")
    if given is None:
        forward, back, weight = (
            _number(entries, key, name, least=_SHORTEST if key == "fwd_time" else 0.0) / _SECOND / chunks
            for key in _PRIMUS_TIMES
        )
        one = ChunkDurations(forward=forward, backward_input=back, backward_weight=weight)
        read: list[list[tuple[ChunkDurations, float | None]]] = [[(one, None)] * chunks] * stages
    else:
        read = _by_chunk(given, stages, chunks, f"{name}: chunk_time_ms", _primus_times)
    return PipelinePhase(
        chunks=tuple(tuple(one for one, _ in rank) for rank in read),
        micro_batches=_count(scheduler, "micro_batches", place, most=_MOST_MICRO_BATCHES),
        transfer_seconds=(0.0,) * stages,
        activation_bytes=_activations(read, f"{name}: chunk_time_ms"),
    )


def _primus_schedule(scheduler: _ENTRIES, place: str) -> Schedule:
    """The schedule that a class of Primus writes, or that the scheduler's name says where no class stands."""
    path = scheduler.get("class")
    if path is None:
        return Schedule(_named(scheduler.get("name"), f"{place}.name", only=tuple(Schedule)))
    cls = str(path).rpartition(".")[2]
    if cls == "ScheduleZBVGreedy":
        memory = scheduler.get("memory_config")
        if not isinstance(memory, str) or memory not in _GREEDY:
            raise ConfigurationError(shown(memory), place=f"{place}.memory_config", expected="half or min")
        return _GREEDY[memory]
    if cls not in _CLASSES:
        known = (*_CLASSES, "ScheduleZBVGreedy")
        raise ConfigurationError(
            f"{shown(path)} is not a known class", place=f"{place}.class", expected=nearest(cls, known)
        )
    return _CLASSES[cls]


_READ: TypeAlias = Callable[[object, str], tuple[ChunkDurations, float | None]]


def _by_chunk(
    given: object, stages: int, chunks: int, place: str, read: _READ
) -> list[list[tuple[ChunkDurations, float | None]]]:
    """Times by stage and chunk: from one map for all, one for each stage, or one for each chunk of each stage."""
    if not isinstance(given, list):
        return [[read(given, place)] * chunks] * stages
    if len(given) != stages:
        raise ConfigurationError(f"has {len(given)} entries", place=place, expected=f"one for each of {stages} stages")
    found = []
    for rank, entry in enumerate(given):
        where = f"{place}[{rank}]"
        if not isinstance(entry, list):
            found.append([read(entry, where)] * chunks)
            continue
        if len(entry) != chunks:
            expected = f"one for each of {chunks} model chunks"
            raise ConfigurationError(f"has {len(entry)} entries", place=where, expected=expected)
        found.append([read(one, f"{where}[{index}]") for index, one in enumerate(entry)])
    return found


def _times(entry: object, place: str, halved: list[str]) -> tuple[ChunkDurations, float | None]:
    """A chunk's times in the project's own form; places whose backward pass is not divided go into `halved`."""
    times = _mapping(entry, place, _TIMES)
    whole = "backward" in times
    if whole and ("backward_input" in times or "backward_weight" in times):
        expected = "backward, or backward_input and backward_weight"
        raise ConfigurationError("states the backward pass twice", place=place, expected=expected)
    forward = _number(times, "forward", place, least=_SHORTEST) / _SECOND
    if whole:
        halved.append(place)
        back = weight = _number(times, "backward", place) / _SECOND / 2
    else:
        back, weight = (_number(times, key, place) / _SECOND for key in ("backward_input", "backward_weight"))
    kept = None if "activation_gib" not in times else _number(times, "activation_gib", place) * _GIB
    return ChunkDurations(forward=forward, backward_input=back, backward_weight=weight), kept


def _primus_times(entry: object, place: str) -> tuple[ChunkDurations, float | None]:
    """A chunk's times in Primus's form, where the weight gradient takes as long as the rest unless it is stated."""
    times = _mapping(entry, place, _PRIMUS_CHUNK)
    back = _number(times, "bwd", place) / _SECOND
    weight = _number(times, "wgrad", place, default=back * _SECOND) / _SECOND
    kept = None if "activation" not in times else _number(times, "activation", place) * _GIB
    forward = _number(times, "fwd", place, least=_SHORTEST) / _SECOND
    return ChunkDurations(forward=forward, backward_input=back, backward_weight=weight), kept


def _activations(
    read: list[list[tuple[ChunkDurations, float | None]]], place: str
) -> tuple[tuple[float, ...], ...] | None:
    """What a micro batch keeps by stage and chunk, where all of them or none say."""
    kept = [[size for _, size in rank] for rank in read]
    stated = [size for rank in kept for size in rank if size is not None]
    if not stated:
        return None
    if len(stated) != sum(map(len, kept)):
        raise ConfigurationError(
            "some chunks state what they keep and others do not", place=place, expected="all or none"
        )
    return tuple(tuple(size or 0.0 for size in rank) for rank in kept)


def _halves(places: list[str]) -> tuple[Assumption, ...]:
    if not places:
        return ()
    why = "say backward_input and backward_weight where a schedule separates them"
    return (Assumption(what="half of the backward pass is that of the weights", why=why),)


def _named(value: object, place: str, *, only: tuple[str, ...] = ("auto", "all", *Schedule)) -> str:
    if not isinstance(value, str) or value not in only:
        expected = nearest(value, only) if isinstance(value, str) else f"one of {', '.join(only)}"
        raise ConfigurationError(f"{shown(value)} is not a schedule", place=place, expected=expected)
    return value


def _mapping(entry: object, place: str, known: Sequence[str]) -> _ENTRIES:
    if not isinstance(entry, Mapping):
        raise ConfigurationError(f"{shown(entry)} is not a map", place=place, expected=f"keys {', '.join(known)}")
    _known(entry, known, place)
    return entry


def _known(entries: _ENTRIES, known: Sequence[str], place: str) -> None:
    for key in entries:
        if key not in known:
            raise ConfigurationError("is not a known key", place=_at(place, key), expected=nearest(str(key), known))


def _count(entries: _ENTRIES, key: str, place: str, *, default: int | None = None, most: int = _MOST_CHUNKS) -> int:
    value = entries.get(key, default)
    if value is None:
        raise ConfigurationError("is missing", place=_at(place, key), expected="a whole number, 1 or more")
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        expected = f"expected a whole number from 1 to {most}"
        raise ConfigurationError(shown(value), place=_at(place, key), expected=expected)
    return value


def _optional_count(entries: _ENTRIES, key: str, place: str) -> int | None:
    return None if entries.get(key) is None else _count(entries, key, place, most=_MOST_MICRO_BATCHES)


def _number(entries: _ENTRIES, key: str, place: str, *, default: float | None = None, least: float = 0.0) -> float:
    value = entries.get(key, default)
    if value is None:
        raise ConfigurationError("is missing", place=_at(place, key), expected="a number of milliseconds")
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= _LARGEST:
        expected = f"expected a number from {least:g} to {_LARGEST:g}"
        raise ConfigurationError(shown(value), place=_at(place, key), expected=expected)
    return float(value)


def _switch(entries: _ENTRIES, key: str, place: str) -> bool:
    value = entries.get(key, False)
    if not isinstance(value, bool):
        raise ConfigurationError(shown(value), place=_at(place, key), expected="true or false")
    return value


def _at(place: str, key: str) -> str:
    """The place of a key: behind the file's name, or inside what stands in it."""
    return f"{place}.{key}" if ": " in place else f"{place}: {key}"
