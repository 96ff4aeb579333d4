"""What one row of the option table says: an option or environment variable, and what becomes of it.

Every option and variable of the Primus projection command has a row (AMD-AGI/Primus fd1eeabb), and so has every one of
our own. A row works, has no effect and says so in the result, or is refused: nothing that a person writes is dropped
silently.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf
from typing import NamedTuple

from projector.errors import InputError, NotAvailable, shown

_DIGITS = 12
"""Longest count that is read; no number of nodes, GPUs or sequences comes near."""
_MOST_COUNTS = 32
"""More sizes of clusters than a table is read with."""
_LARGEST_SHARE = 100
"""Largest share that is read, so that what it widens stays finite."""

_MOST_TIMES = 1000
"""More than any host is slower than another."""
_NARROWEST, _WIDEST = 40, 10_000
"""Columns of a picture, at least and at most."""

PROJECTIONS = ("memory", "performance", "both", "schedule")
"""The commands that project."""
REMEMBERED = ("memory", "both")
"""Commands that answer with memory."""
TIMED = ("performance", "both", "schedule")
"""The commands that project time."""
LAID_OUT = (*PROJECTIONS, "show")
"""The commands that lay a training configuration out on a target."""
CONFIGURED = (*LAID_OUT, "convert")
"""The commands that read a training configuration."""


class Fate(StrEnum):
    """What becomes of a row when a person uses it."""

    WORKS = "works"
    NO_EFFECT = "no effect"
    """Accepted, without influence on the answer; the result names it under `ignored`."""
    REFUSED = "not available yet"
    """Exit code 2 and a message that says what works instead."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    """What a row that works does to the question."""

    fields: Mapping[str, object] = field(default_factory=dict)
    """Fields of `projector.api.Question` by name."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """Overrides of the configuration by name."""
    knobs: Mapping[str, object] = field(default_factory=dict)
    """Values of tuning variables by their names, which are settled together."""
    switches: Mapping[str, object] = field(default_factory=dict)
    """What concerns the command alone, such as the form of the output."""


class Row(NamedTuple):
    """An option or an environment variable."""

    name: str
    """`--option`, or the variable's name."""
    group: str
    """Heading of the reference under which it stands."""
    meaning: str
    """One line for people."""
    fate: Fate
    """What becomes of it."""
    becomes: str
    """How it reaches the answer; why it has no effect; or what works instead of it."""
    commands: tuple[str, ...] = PROJECTIONS
    """Commands that take it."""
    aliases: tuple[str, ...] = ()
    """Other spellings of an option."""
    default: str = ""
    """What holds without it, in words."""
    value: str | None = None
    """Placeholder of its value; None for a switch."""
    optional_value: bool = False
    """The value may be left out."""
    repeatable: bool = False
    """The option may be given several times; its switch then holds all values."""
    effect: Callable[[str], Effect] | None = None
    """From the text of the value to what it does; raises `InputError` for a text that does not do. None unless it
    works."""
    hidden: bool = False
    """Not in `--help`, as in Primus."""
    behind: tuple[str, ...] = ()
    """Options that, when given, speak for this variable."""
    in_files: bool = False
    """A variable that works through `${NAME}` in the configuration, and only there."""

    @property
    def is_option(self) -> bool:
        """True for an option, False for an environment variable."""
        return self.name.startswith("--")


class UsageError(InputError):
    """The command line itself cannot be used."""

    reason = "UsageInvalid"


def sets(name: str, kind: Callable[[str], object] = str) -> Callable[[str], Effect]:
    """The value becomes a field of the question."""
    return lambda text: Effect(fields={name: kind(text)})


def overrides(*names: str, kind: Callable[[str], object] = str, **fixed: str) -> Callable[[str], Effect]:
    """The value becomes overrides of the configuration called `names`; `fixed` ones come with it."""
    return lambda text: Effect(overrides={**dict.fromkeys(names, str(kind(text))), **fixed})


def switches(name: str, kind: Callable[[str], object] = str) -> Callable[[str], Effect]:
    """The value concerns the command alone."""
    return lambda text: Effect(switches={name: kind(text)})


def nothing(kind: Callable[[str], object]) -> Callable[[str], Effect]:
    """The value is checked, and is what happens anyway."""

    def effect(text: str) -> Effect:
        kind(text)
        return Effect()

    return effect


def count(text: str) -> int:
    """A whole number from 1, of at most `_DIGITS` digits."""
    if text.isdigit() and len(text) > _DIGITS:
        raise InputError(f"{shown(text)} is too large", expected=f"a whole number of at most {_DIGITS} digits")
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InputError(f"{shown(text)} is not a count", expected="a whole number, 1 or more")
    return int(text)


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers from 1, at most `_MOST_COUNTS`, with commas between them."""
    found = tuple(count(part.strip()) for part in text.split(","))
    if len(found) > _MOST_COUNTS:
        raise InputError(f"{len(found)} counts", expected=f"at most {_MOST_COUNTS}")
    return found


def names(text: str) -> tuple[str, ...]:
    """Names between commas or semicolons."""
    found = tuple(name.strip() for name in text.replace(";", ",").split(",") if name.strip())
    if not found:
        raise InputError(f"{shown(text)} names nothing", expected="names between commas")
    return found


def share(text: str) -> float:
    """A number from 0 to `_LARGEST_SHARE`."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 <= number <= _LARGEST_SHARE:
        raise InputError(f"{shown(text)} is not a share", expected=f"a number from 0 to {_LARGEST_SHARE}, such as 0.05")
    return number


def factor(text: str) -> float:
    """A number of 1 or more that is finite."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 1.0 <= number < inf:
        raise InputError(f"{shown(text)} is not a factor", expected="a number of 1 or more, such as 1.5")
    return number


def multiple(text: str) -> float:
    """A number from 0 to `_MOST_TIMES`."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 <= number <= _MOST_TIMES:
        raise InputError(f"{shown(text)} is not a multiple", expected=f"a number from 0 to {_MOST_TIMES}, such as 0.8")
    return number


def columns_wide(text: str) -> int:
    """A number of columns in which a picture can be drawn."""
    columns = count(text)
    if not _NARROWEST <= columns <= _WIDEST:
        raise InputError(f"{columns} columns", expected=f"a number from {_NARROWEST} to {_WIDEST}")
    return columns


def one_of(*available: str, later: Mapping[str, str] | None = None) -> Callable[[str], str]:
    """One of some words, in any case; those in `later` are understood and refused with what works instead."""

    def kind(text: str) -> str:
        word = text.strip().lower()
        if later is not None and word in later:
            raise NotAvailable(f"{text!r} is {Fate.REFUSED}", expected=f"what works instead: {later[word]}")
        if word not in available:
            raise InputError(f"{text!r} is not known", expected=f"one of {', '.join(available)}")
        return word

    return kind


def clock(text: str) -> float:
    """A clock in MHz: a number above 0 of at most `_DIGITS` digits."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0.0 < number < 10.0**_DIGITS:
        raise InputError(f"{shown(text)} is not a clock", expected="megahertz above 0, such as 1200")
    return number


def word(text: str) -> str:
    """A name in any case."""
    return text.strip().lower()
