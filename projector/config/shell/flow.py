"""Ways through a script: what follows a command, and what holds after ways of which only one is taken."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from projector.config.shell.conditions import UNKNOWN, YES, Truth
from projector.config.shell.script import Command
from projector.config.shell.state import Changes, State


class Flow(Enum):
    """Where a command leads."""

    NEXT = auto()
    CONTINUE = auto()
    BREAK = auto()
    RETURN = auto()
    EXIT = auto()


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What follows a command."""

    flow: Flow
    certain: bool = True
    """Whether that is so on every way; if not, the next command may follow as well."""
    reason: str = ""
    """The condition that decides it, when it is not certain."""


NEXT = Outcome(flow=Flow.NEXT)
Way = Callable[[], Outcome]


class Ways:
    """Takes the ways that a condition leaves open, and records commands with the conditions above them."""

    def __init__(self, state: State) -> None:
        """Begin on the one way that is certain."""
        self.state = state
        self.commands: list[Command] = []
        self.undecided: list[str] = []
        self.truth: Truth = YES
        self.reason = ""
        """The last condition that could not be decided."""

    def choose(self, truth: Truth, then: Way, otherwise: Way) -> Outcome:
        """Go on by a condition.

        One that holds only if nobody set a variable is not believed where that would end the script: scripts ask so
        whether what they need was given.
        """
        if truth.value is None:
            return self.either((then, otherwise), self.reason)
        taken, other = (then, otherwise) if truth.value else (otherwise, then)
        if not truth.presumed:
            return taken()
        recorded = len(self.commands)
        self.state.begin()
        outcome = taken()
        if outcome.flow is Flow.EXIT and outcome.certain:
            self.state.undo()
            del self.commands[recorded:]
            return other()
        self.state.keep()
        self.state.presume_unset(truth.presumed)
        return outcome

    def either(self, ways: Sequence[Way], reason: str) -> Outcome:
        """Follow every way from here and keep what they agree about.

        A way that ends the script is left out: what launches a training comes after it. Where one way is left, the
        script takes it.
        """
        left: list[tuple[Changes, Outcome, range]] = []
        self.undecided.append(reason)
        for way in ways:
            begin = len(self.commands)
            self.state.begin()
            outcome = way()
            changes = self.state.undo()
            if not (outcome.flow is Flow.EXIT and outcome.certain):
                left.append((changes, outcome, range(begin, len(self.commands))))
        self.undecided.pop()
        if not left:
            return Outcome(flow=Flow.EXIT)
        if len(left) == 1:
            self._certain_after_all(left[0][2])
        self.state.merge([changes for changes, _, _ in left], reason)
        self.truth, self.reason = UNKNOWN, reason
        return _common([outcome for _, outcome, _ in left], reason)

    def _certain_after_all(self, indices: range) -> None:
        """Take the condition of the only way that is left from its commands."""
        place = len(self.undecided)
        for index in indices:
            command = self.commands[index]
            kept = command.undecided[:place] + command.undecided[place + 1 :]
            self.commands[index] = replace(command, undecided=kept)

    def maybe_onward(self, outcome: Outcome) -> None:
        """Go on after a command that may have left; `rejoin` ends that."""
        self.undecided.append(outcome.reason)
        self.state.begin()

    def rejoin(self, last: Outcome) -> None:
        """Bring the way onward, which ended in `last`, together with the one that left."""
        reason = self.undecided.pop()
        onward = self.state.undo()
        if not (last.flow is Flow.EXIT and last.certain):
            self.state.merge((onward, {}), reason)


def _common(outcomes: Sequence[Outcome], reason: str) -> Outcome:
    """What follows several ways together; the one that leaves farthest stands for all that leave."""
    farthest = max(outcomes, key=lambda outcome: outcome.flow.value)
    certain = all(outcome.certain and outcome.flow is farthest.flow for outcome in outcomes)
    return farthest if certain else Outcome(flow=farthest.flow, certain=False, reason=reason)
