"""What a launch script says once it has been read: its commands, its variables and its batch directives."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Word:
    """One word of a command, after expansion and word splitting."""

    text: str
    """The word; what could not be resolved stands in it as the script wrote it, such as `${WORLD_SIZE}`."""
    line: int
    """Where the command begins, from 1."""
    unresolved: tuple[str, ...] = ()
    """Names of variables, and texts of command substitutions, that could not be resolved in it."""
    variables: tuple[str, ...] = ()
    """Names of the variables given from outside that it was made of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A simple command that the script would run, without its redirections."""

    words: tuple[Word, ...]
    """Its name and arguments; never empty."""
    line: int
    """Where it begins, from 1."""
    environment: Mapping[str, Word] = field(default_factory=dict)
    """Variables set for this command alone, as in `A=1 command`."""
    undecided: tuple[str, ...] = ()
    """The conditions, outermost first, that could not be decided and on which it depends whether this runs."""
    within: "Command | None" = None
    """The `eval` or `bash -c` command whose text this was read from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """A launch script, read and not run."""

    commands: tuple[Command, ...]
    """In the order of their running; a command of `eval` or `bash -c` text follows the one that holds the text."""
    assignments: Mapping[str, tuple[Word, ...]]
    """Every variable that the script assigns, as it stands at the end: one word, or the elements of an array."""
    directives: Mapping[str, str]
    """The options of `#SBATCH` lines by long name without dashes, as in `nodes`, `gpus-per-node`; flags are empty."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why a name in `Word.unresolved` is unresolved, where more is to say than that nothing sets it."""
    possible: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The texts that a name in `Word.unresolved` may have, where it depends on a condition alone; not in every case."""
    taken_as_unset: tuple[str, ...] = ()
    """Variables that nothing sets and that counted as unset, in a default such as `${TP:-8}` or a test of emptiness."""
    ends_at: int | None = None
    """Line of the `exit` that certainly ends the script; None when it runs to its end."""
