"""Settings of torch's caching allocator, which jobs state in environment variables and not among their values.

Sources: PyTorch 2.4 to 2.12, c10/cuda/CUDAAllocatorConfig.h and c10/core/AllocatorConfig.cpp (names, values, the order
in which the variables are looked at), c10/cuda/CUDACachingAllocator.cpp (`PYTORCH_NO_CUDA_MEMORY_CACHING`).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from projector.config.notes import Notes
from projector.errors import ConfigurationError, shown
from projector.provenance import ConfigValue, LoadedConfiguration, Source

SETTINGS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Variables with settings; the first that is set counts."""
UNCACHED = "PYTORCH_NO_CUDA_MEMORY_CACHING"
"""Variable that turns the cache off."""
VARIABLES = (*SETTINGS, UNCACHED)
"""What this module reads of an environment."""
SMALLEST_SPLIT_MIB = 20
"""Smallest `max_split_size_mb` that torch takes (`kLargeBuffer`)."""
LONGEST = 1000
"""Characters of a variable; a list of everything that torch knows has half as many."""
_MIB = 1 << 20
_PIECES = re.compile(r"(?:\[[^\]]*\]|[^,\[])+")
"""Settings between commas; a list in brackets is one value."""
_MIB_COUNT = re.compile(r"\d{1,9}", re.ASCII)
_SPLIT, _EXPANDABLE = "max_split_size_mb", "expandable_segments"
_WITHOUT_INFLUENCE = frozenset({"release_lock_on_cudamalloc", "release_lock_on_hipmalloc", "backend:native"})
"""Settings that change neither what is allocated nor what is reserved; those of pinned host memory neither."""
_OTHER: Mapping[str, tuple[str, bool]] = {
    "backend": ("the driver's pool hands out memory, whose holes are not known here", True),
    "roundup_power2_divisions": ("sizes are rounded up, so that more memory is allocated than is projected", True),
    "per_process_memory_fraction": ("the run may use less than the GPU's memory, which the verdict counts", True),
    "garbage_collection_threshold": ("unused blocks go back to the device earlier; less may be reserved", False),
    "max_non_split_rounding_mb": ("blocks above max_split_size_mb are given to smaller requests", False),
}
"""Settings that are not modelled: their effect, and whether it can change the verdict."""


def stated(texts: Mapping[str, object], *, file: str) -> dict[str, ConfigValue]:
    """The allocator's variables among those that a file sets."""
    return {
        name: ConfigValue(key=name, value=str(texts[name]), source=Source.EXPERIMENT, file=file)
        for name in VARIABLES
        if name in texts
    }


def with_allocator_settings(loaded: LoadedConfiguration, variables: Mapping[str, str]) -> LoadedConfiguration:
    """What was read, with the settings that the file's own environment states, else the variables given from outside.

    Raises `ConfigurationError` for a value with which torch does not start.
    """
    given = {
        name: ConfigValue(key=name, value=variables[name], source=Source.VARIABLE)
        for name in VARIABLES
        if name in variables
    }
    environment = {name: value for name, value in {**given, **loaded.environment}.items() if value.value}
    if not environment:
        return loaded
    notes = Notes()
    expandable, split_bytes = _settings(environment, notes)
    software = replace(loaded.job.software, expandable_segments=expandable, maximum_split_bytes=split_bytes)
    return replace(
        loaded,
        job=replace(loaded.job, software=software),
        values={**loaded.values, **environment},
        ignored=tuple(key for key in loaded.ignored if key.rpartition(".")[2] not in environment),
        assumed=(*loaded.assumed, *notes.assumed),
        unmodelled=(*loaded.unmodelled, *notes.unmodelled),
    )


def _settings(environment: Mapping[str, ConfigValue], notes: Notes) -> tuple[bool, int | None]:
    """Whether segments grow, and from which size on blocks are not split; the rest becomes notes."""
    uncached = environment.get(UNCACHED)
    if uncached is not None and str(uncached.value) != "0":
        effect = "every tensor is taken from the device and given back to it; more is counted as reserved than is"
        notes.not_modelled(UNCACHED, where=_place(uncached), effect=effect, decides=False, overstates=True)
    chosen = [environment[name] for name in SETTINGS if name in environment]
    if not chosen:
        return False, None
    value = chosen[0]
    if any(other.value != value.value for other in chosen):
        why = f"{' and '.join(each.key for each in chosen)} differ, and torch's versions prefer different ones"
        notes.assume(f"allocator settings of {value.key}", why)
    expandable, split_bytes = False, None
    for name, text in _pieces(value, notes):
        if name == _EXPANDABLE:
            expandable = _switch(text, value)
        elif name == _SPLIT:
            split_bytes = _split_bytes(text, value)
        else:
            _note_other(name, text, value, notes)
    if expandable and split_bytes is not None:
        effect = "segments that grow are projected without it"
        notes.not_modelled(f"{_SPLIT} beside {_EXPANDABLE}", where=_place(value), effect=effect, decides=False)
        split_bytes = None
    return expandable, split_bytes


def _pieces(value: ConfigValue, notes: Notes) -> Iterator[tuple[str, str]]:
    """Names and values of the settings of a variable."""
    whole = str(value.value).replace(" ", "")
    if len(whole) > LONGEST:
        message, expected = f"{len(whole)} characters", f"at most {LONGEST}"
        raise ConfigurationError(message, place=_place(value), expected=expected)
    if "$" in whole:
        effect = "it holds a variable that nothing gives; torch's defaults count"
        notes.not_modelled(f"{value.key}={whole}", where=_place(value), effect=effect, decides=False)
        return
    for piece in _PIECES.findall(whole):
        name, _, text = piece.partition(":")
        yield name, text


def _switch(text: str, value: ConfigValue) -> bool:
    if text not in {"True", "False"}:
        raise _wrong(_EXPANDABLE, text, value, "True or False")
    return text == "True"


def _split_bytes(text: str, value: ConfigValue) -> int:
    if not _MIB_COUNT.fullmatch(text) or int(text) < SMALLEST_SPLIT_MIB:
        raise _wrong(_SPLIT, text, value, f"a whole number of MiB, at least {SMALLEST_SPLIT_MIB}")
    return int(text) * _MIB


def _wrong(name: str, text: str, value: ConfigValue, expected: str) -> ConfigurationError:
    return ConfigurationError(f"{name} is {shown(text)}", place=_place(value), expected=expected)


def _note_other(name: str, text: str, value: ConfigValue, notes: Notes) -> None:
    if name.startswith("pinned_") or not _WITHOUT_INFLUENCE.isdisjoint((name, f"{name}:{text}")):
        return
    effect, decides = _OTHER.get(name, ("it is not known here; memory may differ from what is projected", False))
    notes.not_modelled(f"{name}:{text}", where=_place(value), effect=effect, decides=decides)


def _place(value: ConfigValue) -> str:
    return f"{value.file}: {value.key}" if value.file else f"the variable {value.key}"
