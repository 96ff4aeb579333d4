"""Follows the commands of a script, changing variables and recording what it would run; nothing is ever run.

A condition that cannot be decided leaves several ways; `flow.py` says what holds after them. Environment, files, other
programs and the time do not exist here.
"""

from collections.abc import Mapping, Sequence

from projector.config.shell.assignment import Assigner
from projector.config.shell.builtins import Builtins
from projector.config.shell.changes import ChangedNames
from projector.config.shell.conditions import UNKNOWN, YES, Conditions, Truth
from projector.config.shell.control import REASON_CHARACTERS, Control
from projector.config.shell.directives import directives, slurm_variables
from projector.config.shell.flow import NEXT, Flow, Outcome
from projector.config.shell.limits import MAXIMUM_SCRIPT_CHARACTERS, WORD_WORK, Budget
from projector.config.shell.nested import NestedScript, nested_script
from projector.config.shell.parser import Parser
from projector.config.shell.script import Command, Script
from projector.config.shell.simple import DECLARATIONS
from projector.config.shell.source import Source
from projector.config.shell.state import POSITIONAL, Changes, State
from projector.config.shell.syntax import (
    AndOr,
    ArithmeticCommand,
    Assignment,
    Case,
    Conditional,
    Function,
    Group,
    If,
    Loop,
    Node,
    Pipeline,
    RawWord,
    Simple,
)
from projector.config.shell.values import Array, Piece, Text, Value
from projector.errors import ConfigurationError, ConfigurationTooLarge

_SUCCEEDING = frozenset(
    {
        "cd",
        "mkdir",
        "echo",
        "printf",
        "source",
        ".",
        "module",
        "ml",
        "pushd",
        "popd",
        "rm",
        "cp",
        "cat",
        "sleep",
        "date",
    }
)
"""Commands that are taken to succeed, because the launch would not go on without; of others that is not known."""
_LEAVING = {"exit": Flow.EXIT, "return": Flow.RETURN, "break": Flow.BREAK, "continue": Flow.CONTINUE}


def interpret(text: str, *, name: str, variables: Mapping[str, str]) -> Script:
    """Read a script; see `read_script`."""
    if len(text) > MAXIMUM_SCRIPT_CHARACTERS:
        message = f"a script of more than {MAXIMUM_SCRIPT_CHARACTERS // 1024} KiB"
        raise ConfigurationTooLarge(message, place=name, expected="a shorter script")
    text = text.replace("\r\n", "\n")
    budget = Budget(name)
    options = directives(text)
    state = State(variables, slurm_variables(options), budget, in_batch=bool(options))
    interpreter = Interpreter(state, budget, name, options)
    interpreter.take_arguments(variables)
    interpreter.follow(Parser(Source(text, name=name), budget).script())
    return interpreter.script()


class Interpreter(Control):
    """One reading of one script."""

    def __init__(self, state: State, budget: Budget, name: str, options: dict[str, str]) -> None:
        """`options` are the batch directives so far; a here-document for `sbatch` may add some."""
        super().__init__(state, budget, name)
        self._name = name
        self._options = options
        self._assigner = Assigner(self.expander)
        self._conditions = Conditions(self.expander)
        self._builtins = Builtins(self.expander)
        self._frames: list[Changes] = []
        self._active: list[Function] = []
        self._within: Command | None = None
        self._line = 0
        self._ends_at: int | None = None

    def script(self) -> Script:
        """What has been read."""
        assignments = {
            name: tuple(text.word(0) for text in (held.elements.values() if isinstance(held, Array) else (held,)))
            for name, held in self.state.assigned()
        }
        return Script(
            commands=tuple(self.ways.commands),
            assignments=assignments,
            directives=self._options,
            reasons=self.state.reasons,
            possible=self.state.possible,
            taken_as_unset=tuple(self.state.taken_as_unset),
            ends_at=self._ends_at,
        )

    def take_arguments(self, variables: Mapping[str, str]) -> None:
        """Take the script's own arguments from variables named `1`, `2` and so on, where they are given."""
        count = next(number for number in range(len(variables) + 1) if str(number + 1) not in variables)
        if count:
            pieces = [Piece(text=variables[str(number)], variables=(str(number),)) for number in range(1, count + 1)]
            self._builtins.set_arguments([Text((piece,)) if piece.text else Text() for piece in pieces])

    def follow(self, nodes: Sequence[Node]) -> None:
        """Follow a whole script."""
        outcome = self.all(nodes)
        if outcome.flow is Flow.EXIT:
            self._ends_at = self._line

    def node(self, node: Node) -> Outcome:  # noqa: C901, PLR0911 - one line for each kind
        """Follow one command of any kind."""
        self.budget.spend(WORD_WORK)
        match node:
            case Simple():
                return self._simple(node)
            case AndOr():
                return self.and_or(node)
            case Pipeline():
                return self.pipeline(node)
            case If():
                return self.if_(node)
            case Group():
                return self.in_subshell(node.body) if node.subshell else self.all(node.body)
            case Loop():
                return self.loop(node)
            case Case():
                return self.case(node)
            case Function():
                self.state.set(f"{node.name}()", node)
            case Conditional():
                self._decide(self._conditions.conditional(node.tokens), node)
            case ArithmeticCommand():
                expression = self.expander.text(node.expression.parts, quoted=True)
                self._decide(self._builtins.calculated(expression), node)
        return NEXT

    def _decide(self, truth: Truth, node: Simple | Conditional | ArithmeticCommand) -> None:
        """Note how a command ended."""
        self.ways.truth = truth
        if truth.value is None:
            self.ways.reason = f"line {node.line}: {node.written[:REASON_CHARACTERS]}"

    # Simple commands -------------------------------------------------------------------------------

    def _simple(self, node: Simple) -> Outcome:
        self._line = node.line
        command = node.words[0].plain if node.words and isinstance(node.words[0], RawWord) else None
        if command in DECLARATIONS:
            for assignment in node.assignments:
                self._assign(assignment)
            understood = self._assigner.declare(node, self._frames[-1] if self._frames else None)
            self._decide(YES, node)
            return NEXT if understood else self._external(self._words(node), {}, node)
        words = self._words(node)
        if not words:
            for assignment in node.assignments:
                self._assign(assignment)
            self._decide(YES, node)
            return NEXT
        name = words[0].plain if words[0].known else ""
        function = self.state.function(name)
        if isinstance(function, Function):
            return self._call(function, words[1:])
        environment = {one.name: self._assigner.value(one) for one in node.assignments}
        if function is None:
            known = self._shell_command(name, words[1:], node, environment)
            if known is not None:
                return known
        return self._external(words, environment, node)

    def _words(self, node: Simple) -> list[Text]:
        """The words of a command; assignments among the arguments of a declaration are left out."""
        return [word for raw in node.words if isinstance(raw, RawWord) for word in self.expander.words(raw)]

    def _assign(self, assignment: Assignment) -> None:
        self.state.set(assignment.name, self._assigner.value(assignment))

    def _shell_command(
        self, name: str, arguments: Sequence[Text], node: Simple, environment: Mapping[str, Value]
    ) -> Outcome | None:
        """A command of the shell itself; None when it is none."""
        if name in {"[", "test"}:
            self._decide(self._conditions.test(arguments[:-1] if name == "[" else arguments), node)
            return NEXT
        if name in _LEAVING:
            status = arguments[0] if arguments else None
            if name in {"return", "exit"} and status is not None:
                self._decide(Truth(value=status.plain == "0") if status.known else UNKNOWN, node)
            return Outcome(flow=_LEAVING[name])
        builtin = self._builtins.commands.get(name)
        if builtin is None:
            return None
        outside = self.state.raw("IFS")
        self.state.set("IFS", environment.get("IFS", outside))
        truth = builtin(arguments, node.reads)
        self.state.set("IFS", outside)
        self._decide(truth, node)
        return NEXT

    def _call(self, function: Function, arguments: Sequence[Text]) -> Outcome:
        """Follow the body of a function; of one that calls itself, nothing that it changes is known."""
        if function in self._active:
            for name in ChangedNames((function.body,), self.state, self.budget).found:
                self.state.set_undecided(name, f"is changed in {function.name}, which calls itself")
            self.ways.truth = UNKNOWN
            return NEXT
        self._active.append(function)
        outside = self.state.raw(POSITIONAL)
        self._builtins.set_arguments(arguments)
        self._frames.append({})
        outcome = self.all((function.body,))
        self._active.pop()
        for name, held in self._frames.pop().items():
            self.state.set(name, held, itself=True)
        self.state.set(POSITIONAL, outside)
        return outcome if outcome.flow is Flow.EXIT else NEXT

    def _external(self, words: Sequence[Text], environment: Mapping[str, Value], node: Simple) -> Outcome:
        """Record a command, and follow the script that it may hold."""
        command = Command(
            words=tuple(word.word(node.line) for word in words),
            line=node.line,
            environment={name: value.word(node.line) for name, value in environment.items() if isinstance(value, Text)},
            undecided=tuple(self.ways.undecided),
            within=self._within,
        )
        self.ways.commands.append(command)
        self._decide(YES if words[0].plain in _SUCCEEDING else UNKNOWN, node)
        nested = nested_script(words, node.reads, self.expander, node.line)
        if nested is not None:
            outcome = self._nested(nested, command)
            if not nested.new_shell:
                return outcome
        replaces = words[0].plain == "exec" and len(words) > 1
        return Outcome(flow=Flow.EXIT) if replaces else NEXT

    def _nested(self, nested: NestedScript, command: Command) -> Outcome:
        """Follow the script that a command holds; one that is no script stays a word."""
        source = Source(nested.text, name=self._name, line=nested.line, one_line=nested.one_line)
        self.budget.spend(len(source.text))
        outside, self._within = self._within, command
        try:
            with self.budget.deeper():
                nodes = Parser(source, self.budget).script()
                outcome = self._in_new_shell(nested, nodes) if nested.new_shell else self.all(nodes)
        except ConfigurationTooLarge:
            raise
        except ConfigurationError:
            outcome = NEXT
        self._within = outside
        return outcome

    def _in_new_shell(self, nested: NestedScript, nodes: Sequence[Node]) -> Outcome:
        if nested.batch:
            added = directives(nested.text.plain)
            self._options.update({name: value for name, value in added.items() if name not in self._options})
            self.state.enter_batch(slurm_variables(self._options))
        hidden = self.state.hidden
        self.state.begin()
        self.state.hide_unexported()
        self._builtins.set_arguments(nested.arguments)
        self.all(nodes)
        self.state.undo()
        self.state.hidden = hidden
        return NEXT
