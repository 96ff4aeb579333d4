"""What remains of a file's keys once a job is made of the others: switches that are not modelled, keys without effect.

Nothing is dropped silently: a key is read, or ignored by name, or reported.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from projector.config.keys import Keys
from projector.config.nearest import nearest
from projector.config.notes import Notes
from projector.config.safe_yaml import MAXIMUM_DEPTH
from projector.provenance import Unmodelled

_NAMED = 50
"""Unknown keys that are named one by one; a file with more is not one of the kind it is taken for."""
_TELLING = frozenset({
    "accumulation", "batch", "dualpipe", "dualpipev", "expert", "experts", "fp4", "fp8", "fsdp", "gbs", "lora", "mbs",
    "offload", "offloading", "parallel", "parallelism", "recompute", "recomputation", "seq", "seqlen", "shard",
    "sharding", "zero",
})  # fmt: skip
"""Words in the name of a key that speak of what decides memory, whatever framework or fork it is from."""
_HINTS, _LONGEST_KEY = 20, 100
"""How many unknown keys get a suggestion, and the characters of a key that may have one: looking for it takes long."""
_COMPARED, _MISSPELT = 500, 0.85
"""How many unknown keys are compared with those that decide, and the similarity (of `difflib`, 1 for equal) from which
a key is taken for another one misspelt: a letter or two of a long name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Switch:
    """A key, or a section, whose effect the engine does not know unless it has a value that switches it off."""

    key: str
    """Dotted name."""
    neutral: tuple[object, ...]
    """Values without effect; absent counts as off."""
    what: str
    """What it switches on, for the report."""
    effect: str
    """What the answer lacks because of it."""
    decides: bool
    """Whether memory may be wrong by more than the stated interval."""
    overstates: bool = False
    """Whether more memory is counted than the run needs."""


def switch(item: Mapping[str, Any]) -> Switch:
    """A switch from its entry in a data file."""
    return Switch(**{**item, "neutral": tuple(item["neutral"])})


def note_switches(keys: Keys, notes: Notes, switches: Iterable[Switch]) -> None:
    """Note the switches that are on; a section is on when a value in it is."""
    for each in switches:
        stated = _stated(keys, each.key)
        if all(_is_off(value, each.neutral) for value in stated.values()):
            continue
        shown = f": {stated[each.key]}" if each.key in stated else ""
        notes.not_modelled(
            f"{each.what} ({each.key}{shown})",
            where=keys.place(next(iter(stated))),
            effect=each.effect,
            decides=each.decides,
            overstates=each.overstates,
        )


def _stated(keys: Keys, key: str) -> dict[str, object]:
    """The value of a key, or those of a section."""
    if key in keys.sections:
        inside = {name: value.value for name, value in keys.values.items() if name.startswith(f"{key}.")}
        keys.read |= inside.keys()
        return inside
    return {key: keys.raw(key) if keys.is_usable(key) else None}


def _is_off(value: object, neutral: tuple[object, ...]) -> bool:
    return value is None or any(value == off and type(value) is type(off) for off in neutral)


def left_over(  # noqa: PLR0913 - what tells the meaning of a key that nobody read
    keys: Keys,
    notes: Notes,
    *,
    known: Collection[str],
    file: str,
    spellings: Mapping[str, str] | None = None,
    strict: bool = True,
) -> list[str]:
    """Keys that a person wrote and nothing has read: those `known`, alone or by section, else noted as unknown.

    An unknown key that is nearly one which is read and not stated decides: it may have been meant. So does one whose
    name speaks of what decides memory, unless the framework itself passes over unknown keys (`strict` False).
    `spellings` are other names of keys.
    """
    ignored: list[str] = []
    unknown: list[str] = []
    for key, value in keys.values.items():
        # An empty section says nothing.
        if key in keys.read or value.value == {} or not keys.stated_by_person(key):
            continue
        is_known = value.value is None or key in known or any(section in known for section in sections_of(key))
        (ignored if is_known else unknown).append(key)
    if unknown:
        meant = _meant(keys, unknown, spellings or {})
        telling = [key for key in unknown if strict and _is_telling(key)]
        _note_unknown(keys, notes, unknown, _Judged(known=known, file=file, meant=meant, telling=telling))
    return sorted(ignored)


def _meant(keys: Keys, unknown: Sequence[str], spellings: Mapping[str, str]) -> dict[str, str]:
    """The key that each unknown one nearly is, of those that are read and not stated."""
    open_ = {key for key in keys.read if key not in keys.values and key not in keys.sections}
    names = {_folded(key): key for key in open_}
    names |= {_folded(name): name for name, key in spellings.items() if key in open_}
    found: dict[str, str] = {}
    if not unknown:
        return found
    from difflib import get_close_matches  # noqa: PLC0415 - for keys that nobody knows

    for key in unknown[:_COMPARED]:
        if len(key) <= _LONGEST_KEY:
            nearly = get_close_matches(_folded(key), names, n=1, cutoff=_MISSPELT)
            found.update((key, names[name]) for name in nearly)
    return found


def _is_telling(key: str) -> bool:
    last = key[-_LONGEST_KEY:].rpartition(".")[2]
    return not _TELLING.isdisjoint(_folded(last).split("_"))


def _folded(key: str) -> str:
    return key.lower().replace("-", "_")


class _Judged(NamedTuple):
    """What is known of the keys that nobody read."""

    known: Collection[str]
    """Names to suggest."""
    file: str
    """Where a key stands that no file holds."""
    meant: Mapping[str, str]
    """The key that an unknown one nearly is."""
    telling: Sequence[str]
    """Unknown ones whose names speak of what decides memory."""


def _note_unknown(keys: Keys, notes: Notes, unknown: Sequence[str], judged: _Judged) -> None:
    first = dict.fromkeys([*judged.meant, *judged.telling])
    named = [*first, *(key for key in unknown if key not in first)][:_NAMED]
    for index, key in enumerate(named):
        hint = f" (did you mean {judged.meant[key]}?)" if key in judged.meant else ""
        if not hint and index < _HINTS and len(key) <= _LONGEST_KEY:
            hint = f" ({nearest(key, judged.known)})"
        where = keys.values[key].file or judged.file
        effect = f"not a key that the project knows of; it has no influence here{hint}"
        notes.unmodelled.append(Unmodelled(what=key[:_LONGEST_KEY], where=where, effect=effect, decides=key in first))
    if len(unknown) > _NAMED:
        what = f"{len(unknown) - _NAMED} more keys"
        notes.not_modelled(what, where=judged.file, effect="not keys that the project knows of", decides=False)


def sections_of(key: str) -> tuple[str, ...]:
    """The sections that a dotted key lies in, outermost first: `a.b.c` gives `a` and `a.b`."""
    parts = key.split(".", MAXIMUM_DEPTH)
    return tuple(".".join(parts[:count]) for count in range(1, len(parts)))
