"""The parts of a shell script, as the parser hands them to the interpreter."""

from dataclasses import dataclass
from typing import Literal as OneOf

from projector.config.shell.values import EMPTY, Text


@dataclass(frozen=True, kw_only=True, slots=True)
class Literal:
    """Characters that stand for themselves."""

    text: Text
    quoted: bool
    """Whether a quote or backslash protects them from being a pattern."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DoubleQuoted:
    """`"..."`."""

    parts: "tuple[Part, ...]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """`$name` and `${...}`."""

    written: str
    """As it stands in the script."""
    name: str
    subscript: "tuple[Part, ...] | None" = None
    prefix: str = ""
    """`#` for the length, `!` for an indirection or the keys."""
    operator: str = ""
    """What follows the name, such as `:-` or `%%`; `?` alone, for one that is not known, makes it unresolved."""
    argument: "tuple[Part, ...]" = ()
    second: "tuple[Part, ...] | None" = None
    """The replacement of `/`, or the length of a substring."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arithmetic:
    """`$((...))`."""

    written: str
    parts: "tuple[Part, ...]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Substitution:
    """`$(...)`, backquotes and process substitutions: read as commands and never run."""

    written: str
    commands: "tuple[Node, ...]" = ()
    """Empty when there is no use in looking into it."""
    backquoted: Text | None = None
    """The text between backquotes, which is parsed only when it is wanted."""


Part = Literal | DoubleQuoted | Parameter | Arithmetic | Substitution


@dataclass(frozen=True, kw_only=True, slots=True)
class RawWord:
    """A word before expansion."""

    parts: tuple[Part, ...]

    @property
    def plain(self) -> str | None:
        """The word when it is unquoted characters alone."""
        if len(self.parts) == 1 and isinstance(self.parts[0], Literal) and not self.parts[0].quoted:
            return self.parts[0].text.plain
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """`name=value`, `name[subscript]+=value`, `name=(...)`."""

    name: str
    append: bool
    value: RawWord
    """The value when it is no array."""
    subscript: tuple[Part, ...] | None = None
    elements: tuple[tuple[tuple[Part, ...] | None, RawWord], ...] | None = None
    """Subscript, where one is given, and value of each element; None when it is no array."""


@dataclass(kw_only=True, slots=True, eq=False)
class HereDocument:
    """Text that a command reads; filled once the parser has passed its lines, which come after the command."""

    delimiter: str
    strips: bool
    """Whether tabs in front of its lines are dropped."""
    expands: bool
    """Whether parameters and substitutions in it are expanded."""
    body: Text = EMPTY
    line: int = 0
    """Of its first line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Simple:
    """A command with its arguments."""

    line: int
    written: str
    assignments: tuple[Assignment, ...]
    words: tuple[RawWord | Assignment, ...]
    """Arguments of `export` and its like may be assignments."""
    reads: HereDocument | RawWord | None
    """The here-document or here-string at its input."""
    redirected: bool
    """Whether any redirection was left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pipeline:
    """Commands connected by `|`, or one command that `!` negates."""

    commands: "tuple[Node, ...]"
    negated: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class AndOr:
    """Commands connected by `&&` and `||`."""

    first: "Node"
    rest: "tuple[tuple[str, Node], ...]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """`{ ...; }`, `( ... )` and `... &`."""

    body: "tuple[Node, ...]"
    subshell: bool
    """Whether its assignments end with it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class If:
    """`if`, with its `elif` branches."""

    branches: "tuple[tuple[tuple[Node, ...], tuple[Node, ...]], ...]"
    """Condition and body of each."""
    otherwise: "tuple[Node, ...]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Loop:
    """`for`, `while`, `until` and `select`."""

    line: int
    kind: OneOf["for", "while", "until", "select", "counted"]
    """`counted` is `for ((...))`."""
    condition: "tuple[Node, ...]"
    body: "tuple[Node, ...]"
    name: str = ""
    words: tuple[RawWord, ...] | None = None
    """What `for` goes through; None for the positional parameters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """`case`."""

    line: int
    word: RawWord
    branches: "tuple[tuple[tuple[RawWord, ...], tuple[Node, ...], str], ...]"
    """Patterns, body, and what ends it: `;;`, `;&` or `;;&`."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Function:
    """The definition of a function."""

    name: str
    body: "Node"


@dataclass(frozen=True, kw_only=True, slots=True)
class Conditional:
    """`[[ ... ]]`."""

    line: int
    written: str
    tokens: tuple[RawWord | str, ...]
    """Operators are texts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArithmeticCommand:
    """`((...))`."""

    line: int
    written: str
    expression: Arithmetic


Node = Simple | Pipeline | AndOr | Group | If | Loop | Case | Function | Conditional | ArithmeticCommand
