"""The variables of a script while it is read, and what to do when only one of several ways would be taken."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from projector.config.shell.arithmetic import Indefinite, evaluate
from projector.config.shell.limits import Budget
from projector.config.shell.syntax import Function
from projector.config.shell.values import Array, Piece, Text, Undecided, Unset, Value, literal, merged

POSITIONAL = "@"
"""The name under which the positional parameters are kept, as an array from 1."""
_SET_BY_THE_SHELL = frozenset(
    {"BASH", "BASHPID", "BASH_SOURCE", "BASH_VERSION", "EUID", "FUNCNAME", "HOSTNAME", "HOSTTYPE", "LINENO"}
    | {"MACHTYPE", "OLDPWD", "OPTARG", "OPTIND", "OSTYPE", "PIPESTATUS", "PPID", "PWD", "RANDOM", "SECONDS", "SHLVL"}
    | {"UID", "HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "USER"}
)
"""Variables that a shell or a login always has, so that nobody giving them does not mean that they are unset."""
_MAXIMUM_REFERENCES = 8
"""References that are followed one after the other; more than two are a circle."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A variable that stands for another one (`declare -n`)."""

    target: str
    """Its name."""


Held = Value | Function | Reference
"""A variable's value, what it stands for, or a function under its name with `()`."""
Changes = dict[str, Held | None]
"""By name, what a variable held before it was changed; None when the script had not set it."""


class State:
    """Everything that commands change."""

    def __init__(self, given: Mapping[str, str], batch: Mapping[str, str], budget: Budget, *, in_batch: bool) -> None:
        """`given` comes from outside; `batch` are the variables that Slurm derives from the script's directives.

        `in_batch` says that Slurm runs the script, so that its variables are set even where they are not known.
        """
        self._given = given
        self._batch = batch
        self._in_batch = in_batch
        self._budget = budget
        self._values: dict[str, Held] = {}
        self._journals: list[Changes] = []
        self.exported: set[str] = set()
        """Variables that the environment of a command holds."""
        self.hidden: frozenset[str] = frozenset()
        """Variables that the shell of a `bash -c` does not inherit."""
        self.exports_all = False
        """Whether `set -a` makes every variable that is set one that is inherited."""
        self.reasons: dict[str, str] = {}
        """Why the value of a variable cannot be told, by its name."""
        self.possible: dict[str, tuple[str, ...]] = {}
        """The texts that such a variable may have, where all are known."""
        self.taken_as_unset: dict[str, None] = {}

    def look(self, name: str) -> Value | None:
        """What a variable holds; None when nobody sets it, which it may be in the real run."""
        name = self._referred(name)
        held = self._values.get(name)
        if isinstance(held, Reference):
            return Undecided()
        if held is not None and not isinstance(held, Function) and name not in self.hidden:
            return held
        if name in self._given:
            value = self._given[name]
            self._budget.spend(len(value))
            return Text((Piece(text=value, variables=(name,)),)) if value else Text()
        if name in self._batch:
            return literal(self._batch[name])
        return Undecided() if self.set_by_others(name) else None

    def _referred(self, name: str) -> str:
        """The variable that a name stands for: itself unless it is a reference; a reference when they form a circle."""
        for _ in range(_MAXIMUM_REFERENCES):
            held = self._values.get(name)
            if not isinstance(held, Reference):
                break
            name = held.target
        return name

    def set_by_others(self, name: str) -> bool:
        """Whether the shell or Slurm sets the variable, to something that is not known."""
        return name in _SET_BY_THE_SHELL or (self._in_batch and name.startswith("SLURM_"))

    def function(self, name: str) -> Function | Undecided | None:
        """The function of a name; `Undecided` when it depends on a condition which one."""
        held = self._values.get(f"{name}()")
        return held if isinstance(held, Function | Undecided) else None

    def raw(self, name: str) -> Held | None:
        """What the script itself has set."""
        return self._values.get(name)

    def set(self, name: str, value: Held | None, *, itself: bool = False) -> None:
        """Give a variable a value; None makes it one that the script has not set.

        `itself` changes a reference, and not the variable that it stands for.
        """
        name = name if itself else self._referred(name)
        if self._journals:
            self._journals[-1].setdefault(name, self._values.get(name))
        if isinstance(value, Text):
            self._budget.spend(len(value.plain) + len(value.pieces))
        elif isinstance(value, Array):
            self._budget.spend(len(value.elements))
        if value is None:
            self._values.pop(name, None)
        else:
            self._values[name] = value
        self.hidden -= {name}
        if self.exports_all:
            self.exported.add(name)

    def set_undecided(self, name: str, reason: str) -> None:
        """Say that what a variable holds is not known, and why."""
        self.set(name, Undecided())
        self.reasons[name] = reason
        self.possible.pop(name, None)

    def presume_unset(self, names: Sequence[str]) -> None:
        """Note that variables that nobody gave counted as unset."""
        self.taken_as_unset.update(dict.fromkeys(names))

    def enter_batch(self, batch: Mapping[str, str]) -> None:
        """Go on as a script that Slurm runs."""
        self._batch = {**self._batch, **batch}
        self._in_batch = True

    def hide_unexported(self) -> None:
        """Hide the variables that a shell started from here does not inherit."""
        self._budget.spend(len(self._values))
        names = {name for name, held in self._values.items() if not isinstance(held, Function)}
        self.hidden = frozenset(names - self.exported - {POSITIONAL})

    def assigned(self) -> Iterator[tuple[str, Text | Array]]:
        """Every variable that the script has given a value that can be told."""
        for name, held in self._values.items():
            if isinstance(held, Text | Array) and name != POSITIONAL:
                yield name, held

    # Ways of which only one is taken ---------------------------------------------------------------

    def begin(self) -> None:
        """Record what is changed from here on, until `undo` or `keep`."""
        self._journals.append({})

    def undo(self) -> Changes:
        """Take back what was changed since `begin`; returns what the variables held after it."""
        after: Changes = {}
        for name, before in self._journals.pop().items():
            after[name] = self._values.get(name)
            if before is None:
                self._values.pop(name, None)
            else:
                self._values[name] = before
        return after

    def keep(self) -> None:
        """Let what was changed since `begin` stand, as part of what an outer record records."""
        changes = self._journals.pop()
        if self._journals:
            for name, before in changes.items():
                self._journals[-1].setdefault(name, before)

    def merge(self, outcomes: Sequence[Changes], reason: str) -> None:
        """Go on after several ways: what they agree about holds, the rest is undecided for `reason`."""
        for name in dict.fromkeys(name for outcome in outcomes for name in outcome):
            held = [outcome.get(name, self._values.get(name)) for outcome in outcomes]
            value = held[0]
            for other in held[1:]:
                value = self._merged(value, other, name)
            if value is not self._values.get(name):
                self.set(name, value, itself=True)
            if any(other is not value and other != value for other in held):
                self.reasons[name] = reason
                self.possible.pop(name, None)
                if all(other is None or (isinstance(other, Text | Array) and other.known) for other in held):
                    texts = [other.plain if isinstance(other, Text | Array) else "" for other in held]
                    self.possible[name] = tuple(dict.fromkeys(texts))

    def _merged(self, first: Held | None, second: Held | None, name: str) -> Held | None:
        if first is second:
            return first
        if isinstance(first, Function | Reference) or isinstance(second, Function | Reference):
            return first if first == second else Undecided()
        for value in (first, second):
            self._budget.spend(len(value.plain) if isinstance(value, Text) else 1)
        return merged(first, second, name)


class Numbers:
    """How arithmetic reads and writes the variables of a state; notes the variables from outside that it used."""

    def __init__(self, state: State, budget: Budget) -> None:
        """For one expression."""
        self._state = state
        self._budget = budget
        self.variables: dict[str, None] = {}

    def number_text(self, name: str, subscript: int | None) -> str:
        """What a variable holds; raises `Indefinite` when that is not known."""
        value = self._state.look(name)
        if isinstance(value, Array):
            value = value.elements.get(subscript or 0, Text())
        elif isinstance(value, Text) and subscript:
            value = Text()
        if isinstance(value, Unset):
            return ""
        if not isinstance(value, Text):
            raise Indefinite(name)
        if not value.known:
            raise Indefinite(*value.unresolved)
        self.variables.update(dict.fromkeys(value.variables))
        return value.plain

    def set_number(self, name: str, subscript: int | None, value: int) -> None:
        """Give it a value."""
        text = Text((Piece(text=str(value), variables=tuple(self.variables)),))
        if subscript is None:
            self._state.set(name, text)
        else:
            held = self._state.look(name)
            elements = dict(held.elements) if isinstance(held, Array) else {}
            elements[subscript] = text
            self._state.set(name, Array(elements=dict(sorted(elements.items(), key=lambda item: int(item[0])))))

    def value(self, expression: str) -> Text:
        """The value of an expression as text; raises `Indefinite`."""
        number = evaluate(expression, self, self._budget)
        return Text((Piece(text=str(number), variables=tuple(self.variables)),))
