"""Which variables commands may change, found without following them: for loops, whose turns are not known."""

from collections.abc import Iterable

from projector.config.shell.arithmetic import changed_names
from projector.config.shell.limits import Budget
from projector.config.shell.state import POSITIONAL, State
from projector.config.shell.syntax import (
    AndOr,
    Arithmetic,
    ArithmeticCommand,
    Assignment,
    Case,
    DoubleQuoted,
    Function,
    Group,
    If,
    Loop,
    Node,
    Parameter,
    Part,
    Pipeline,
    RawWord,
    Simple,
)

_NAMING = frozenset({"read", "unset", "mapfile", "readarray", "getopts", "export", "declare", "local", "printf", "let"})
"""Commands whose arguments may be names of variables that they change."""


class ChangedNames:
    """The names, each with whether all that happens to it is that something is appended."""

    def __init__(self, nodes: Iterable[Node], state: State, budget: Budget) -> None:
        """Look through commands, and the functions that they call."""
        self.found: dict[str, bool] = {}
        self._state = state
        self._called: set[str] = set()
        self._nodes = list(nodes)
        while self._nodes:
            budget.spend(1)
            self._visit(self._nodes.pop())

    def _change(self, name: str, *, appends: bool = False) -> None:
        self.found[name] = appends and self.found.get(name, True)

    def _visit(self, node: Node) -> None:
        match node:
            case Simple():
                self._simple(node)
            case ArithmeticCommand():
                self._parts((node.expression,))
            case Function():
                self._change(f"{node.name}()")
            case _:
                if isinstance(node, Loop) and node.name:
                    self._change(node.name)
                self._nodes += _inner(node)

    def _simple(self, node: Simple) -> None:
        words = [word for word in node.words if isinstance(word, RawWord)]
        assignments = node.assignments if not words else ()
        for assignment in (*assignments, *(word for word in node.words if isinstance(word, Assignment))):
            self._change(assignment.name, appends=assignment.append and assignment.subscript is None)
            self._parts(assignment.value.parts)
        for word in words:
            self._parts(word.parts)
        command = words[0].plain if words else None
        if command is None:
            return
        if command in {"shift", "set"}:
            self._change(POSITIONAL)
        for word in words[1:] if command in _NAMING else ():
            plain = word.plain or ""
            names = changed_names(plain) if command == "let" else {plain.partition("=")[0]}
            for name in filter(str.isidentifier, names):
                self._change(name)
        function = self._state.function(command)
        if isinstance(function, Function) and command not in self._called:
            self._called.add(command)
            self._nodes.append(function.body)

    def _parts(self, parts: Iterable[Part]) -> None:
        """What expansion itself changes: `${name:=value}` and `$((name++))`."""
        for part in parts:
            match part:
                case DoubleQuoted():
                    self._parts(part.parts)
                case Parameter():
                    if part.operator in {":=", "="}:
                        self._change(part.name)
                    self._parts(part.argument)
                case Arithmetic():
                    for name in changed_names(part.written):
                        self._change(name)
                case _:
                    pass


def _inner(node: Node) -> Iterable[Node]:  # noqa: PLR0911 - one for each kind
    """The commands within a compound command that may change variables of the script."""
    match node:
        case Pipeline():
            return node.commands
        case AndOr():
            return (node.first, *(other for _, other in node.rest))
        case Group():
            return () if node.subshell else node.body
        case If():
            within = [inner for condition, body in node.branches for inner in (*condition, *body)]
            return (*within, *node.otherwise)
        case Loop():
            return (*node.condition, *node.body)
        case Case():
            return [inner for _, body, _ in node.branches for inner in body]
    return ()
