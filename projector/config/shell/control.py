"""Follows lists, conditions and loops of commands; what a single command does, the interpreter knows.

A loop is followed turn by turn when what it goes through is known. Of any other loop the body is followed once, with
everything that it may change undecided from the start.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial

from projector.config.shell.changes import ChangedNames
from projector.config.shell.conditions import UNKNOWN, YES
from projector.config.shell.expansion import Expander
from projector.config.shell.flow import NEXT, Flow, Outcome, Way, Ways
from projector.config.shell.limits import MAXIMUM_ITERATIONS, Budget
from projector.config.shell.state import State
from projector.config.shell.syntax import AndOr, Case, If, Literal, Loop, Node, Parameter, Pipeline, RawWord
from projector.config.shell.values import Array, Text, extended

REASON_CHARACTERS = 100
"""How much of a condition a reason quotes."""
_GLOB_CHARACTERS = re.compile(r"[*?\[{]")


class Control(ABC):
    """Commands put together."""

    def __init__(self, state: State, budget: Budget, name: str) -> None:
        """`name` is what messages call the script."""
        self.state = state
        self.budget = budget
        self.ways = Ways(state)
        self.expander = Expander(state, budget, name)

    @abstractmethod
    def node(self, node: Node) -> Outcome:
        """Follow one command of any kind."""

    def all(self, nodes: Iterable[Node]) -> Outcome:
        """Commands one after the other."""
        forks: list[Outcome] = []
        last = NEXT
        with self.budget.deeper():
            for node in nodes:
                last = self.node(node)
                if last.flow is Flow.NEXT:
                    continue
                if last.certain:
                    break
                forks.append(last)
                self.ways.maybe_onward(last)
                last = NEXT
        for fork in reversed(forks):
            self.ways.rejoin(last)
            last = fork
        return last

    def in_subshell(self, nodes: Iterable[Node]) -> Outcome:
        """Commands whose changes end with them, and whose `exit` does not end the script."""
        self.state.begin()
        self.all(nodes)
        self.state.undo()
        return NEXT

    def pipeline(self, node: Pipeline) -> Outcome:
        """`one | other`, whose commands each run in a subshell, and `! command`."""
        outcome = NEXT
        if len(node.commands) == 1:
            outcome = self.node(node.commands[0])
        else:
            for command in node.commands:
                self.in_subshell((command,))
        if node.negated:
            self.ways.truth = self.ways.truth.negated()
        return outcome

    def and_or(self, node: AndOr) -> Outcome:
        """`one && other || third`."""
        leaving: Outcome | None = None
        outcome = self.node(node.first)
        for operator, command in node.rest:
            if outcome.flow is not Flow.NEXT:
                if outcome.certain:
                    return outcome
                leaving = outcome
            before = self.ways.truth
            wanted = before if operator == "&&" else before.negated()
            outcome = self.ways.choose(wanted, partial(self.node, command), lambda: NEXT)
            if wanted.value is not False:
                self.ways.truth = before.joined(operator, self.ways.truth)
        return leaving if leaving is not None and outcome.flow is Flow.NEXT else outcome

    def if_(self, node: If, start: int = 0) -> Outcome:
        """An `if` from its branch number `start` on."""
        open_ways: list[Way] = []
        reasons: list[str] = []
        for index in range(start, len(node.branches)):
            condition, body = node.branches[index]
            leaving = self.all(condition)
            if leaving.flow is not Flow.NEXT and leaving.certain:
                return leaving
            truth = self.ways.truth
            if truth.value is None:
                reasons.append(self.ways.reason)
            elif truth.presumed and not open_ways:
                with self.budget.deeper():
                    rest = partial(self.if_, node, index + 1)
                    return self.ways.choose(truth, partial(self.all, body), rest)
            elif not truth.value:
                continue
            open_ways.append(partial(self.all, body))
            if truth.value:
                break
        else:
            open_ways.append(partial(self.all, node.otherwise))
        if not reasons:
            return self._succeeding(open_ways[0])
        return self.ways.either(open_ways, " and ".join(reasons))

    def _succeeding(self, way: Callable[[], Outcome]) -> Outcome:
        """A body that may be empty, and then succeeds."""
        self.ways.truth = YES
        return way()

    def case(self, node: Case) -> Outcome:
        """`case`."""
        text = self.expander.text(node.word.parts)
        open_ways: list[Way] = []
        undecided = False
        for index, (patterns, _, _) in enumerate(node.branches):
            matches = self._matches(text, patterns)
            if matches is not False:
                open_ways.append(partial(self._from_branch, node, index))
                undecided = undecided or matches is None
            if matches:
                break
        else:
            open_ways.append(lambda: NEXT)
        if not undecided:
            return self._succeeding(open_ways[0])
        return self.ways.either(open_ways, f"line {node.line}: case {text.plain[:REASON_CHARACTERS]}")

    def _from_branch(self, node: Case, index: int) -> Outcome:
        """A branch, and those that it falls through to."""
        for _, body, end in node.branches[index:]:
            outcome = self.all(body)
            if outcome.flow is not Flow.NEXT or end == ";;":
                return outcome
        return NEXT

    def _matches(self, text: Text, patterns: Iterable[RawWord]) -> bool | None:
        """Whether one of the patterns matches; None when that is not known."""
        unknown = False
        for raw in patterns:
            pattern, _ = self.expander.pattern(raw.parts)
            if raw.plain == "*" or (pattern and text.known and pattern.matches(text.plain, self.budget)):
                return None if unknown else True
            unknown = unknown or pattern is None or not text.known
        return None if unknown else False

    def loop(self, node: Loop) -> Outcome:
        """A loop of any kind."""
        if node.kind == "for":
            return self._for(node)
        if node.kind in {"while", "until"}:
            self.all(node.condition)
            truth = self.ways.truth if node.kind == "while" else self.ways.truth.negated()
            if truth.value is False:
                self.state.presume_unset(truth.presumed)
                self.ways.truth = YES
                return NEXT
        return self._any_number_of_times(node)

    def _for(self, node: Loop) -> Outcome:
        every = RawWord(parts=(Parameter(written='"$@"', name="@"),))
        raw_words = (every,) if node.words is None else node.words
        words = [word for raw in raw_words for word in self.expander.words(raw)]
        if any(word.presumed == "" for word in words) and len(words) == 1:
            self.state.presume_unset(words[0].unresolved)
            return NEXT
        if len(words) > MAXIMUM_ITERATIONS or any(map(_multiplies, raw_words)) or not all(word.known for word in words):
            return self._any_number_of_times(node)
        for word in words:
            self.state.set(node.name, word)
            outcome = self.all(node.body)
            if outcome.certain and outcome.flow is Flow.BREAK:
                break
            if outcome.certain and outcome.flow in {Flow.RETURN, Flow.EXIT}:
                return outcome
            if not outcome.certain and outcome.flow is not Flow.CONTINUE:
                rest = self._any_number_of_times(node)
                return outcome if outcome.flow is Flow.RETURN else rest
        return NEXT

    def _any_number_of_times(self, node: Loop) -> Outcome:
        """A loop whose turns are not known: what its body changes is not known after it, nor at a turn's begin."""
        reason = f"line {node.line}: how often the loop runs"
        for name, appends in ChangedNames((node,), self.state, self.budget).found.items():
            held = self.state.raw(name)
            self.state.set_undecided(name, reason)
            if appends and isinstance(held, Text | Array):
                self.state.set(name, extended(held, name))
        outcome = self.ways.either((partial(self.all, node.body), lambda: NEXT), reason)
        self.ways.truth = UNKNOWN
        return outcome if outcome.flow is Flow.RETURN else NEXT


def _multiplies(raw: RawWord) -> bool:
    """Whether a brace expansion or a glob may make several words of it."""
    return any(
        isinstance(part, Literal) and not part.quoted and _GLOB_CHARACTERS.search(part.text.plain) for part in raw.parts
    )
