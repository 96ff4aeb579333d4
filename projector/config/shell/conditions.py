"""What `test`, `[ ]` and `[[ ]]` say about texts, as far as that can be known (Bash Reference Manual 5.2, 6.4)."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from projector.config.shell.arithmetic import Indefinite
from projector.config.shell.expansion import Expander
from projector.config.shell.limits import Budget
from projector.config.shell.state import Numbers, State
from projector.config.shell.syntax import RawWord
from projector.config.shell.values import Array, Text, Undecided, Unset, unresolved

_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda left, right: left == right,
    "-ne": lambda left, right: left != right,
    "-lt": lambda left, right: left < right,
    "-le": lambda left, right: left <= right,
    "-gt": lambda left, right: left > right,
    "-ge": lambda left, right: left >= right,
}
_EQUALITIES = frozenset({"=", "==", "!="})
_BINARY = _EQUALITIES | set(_COMPARISONS) | {"<", ">", "-nt", "-ot", "-ef", "=~"}
_UNARY = re.compile("-[a-hknoprstuvwxzGLNORS]")
_INTEGER = re.compile(r"[ \t]*[-+]?[0-9]{1,18}[ \t]*")
_PLAIN_EXPRESSION = re.compile(r"[A-Za-z0-9_ =,/:-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Truth:
    """Whether a condition holds."""

    value: bool | None
    """None when that is not known."""
    presumed: tuple[str, ...] = ()
    """Variables that nobody gave and that count as unset in it."""

    def negated(self) -> "Truth":
        """The opposite."""
        return Truth(value=None if self.value is None else not self.value, presumed=self.presumed)

    def joined(self, operator: str, other: "Truth") -> "Truth":
        """This `&&` or `||` the other."""
        deciding = operator == "||"
        for one in sorted((self, other), key=lambda one: bool(one.presumed)):
            if one.value is deciding:
                return one
        presumed = self.presumed + other.presumed
        return UNKNOWN if None in {self.value, other.value} else Truth(value=not deciding, presumed=presumed)


UNKNOWN = Truth(value=None)
YES = Truth(value=True)
NO = Truth(value=False)


class Conditions:
    """Evaluates conditions in a state."""

    def __init__(self, expander: Expander) -> None:
        """Expand with this."""
        self._expander = expander
        self._state: State = expander.state
        self._budget: Budget = expander.budget

    # Single tests ----------------------------------------------------------------------------------

    def empty(self, text: Text) -> Truth:
        """`-z`."""
        if text.known or any(piece.known for piece in text.pieces):
            return Truth(value=not text.plain)
        presumed = text.presumed
        return UNKNOWN if presumed is None else Truth(value=not presumed, presumed=text.unresolved)

    def _unary(self, operator: str, text: Text) -> Truth:
        if operator in {"-z", "-n"}:
            empty = self.empty(text)
            return empty if operator == "-z" else empty.negated()
        return self._is_set(text.plain) if operator == "-v" and text.known else UNKNOWN

    def _is_set(self, text: str) -> Truth:
        """`-v`, of a variable or of an element by its key."""
        name, bracket, key = text.partition("[")
        value = self._state.look(name)
        if not name.isidentifier() or isinstance(value, Undecided):
            return UNKNOWN
        if value is None:
            return Truth(value=False, presumed=(name,))
        if not bracket:
            return Truth(value=not isinstance(value, Unset))
        if isinstance(value, Array) and value.associative and key.endswith("]"):
            return Truth(value=key[:-1] in value.elements)
        return UNKNOWN

    def _equal(self, left: Text, right: Text) -> Truth:
        if left.known and right.known:
            return Truth(value=left.plain == right.plain)
        one, other = (text.plain if text.known else text.presumed for text in (left, right))
        # Two texts that would be equal if nobody set a variable are how scripts ask whether it is set.
        if one is not None and one == other:
            return Truth(value=True, presumed=left.unresolved + right.unresolved)
        return UNKNOWN

    def _compared(self, operator: str, left: Text, right: Text) -> Truth:
        numbers = []
        for text in (left, right):
            plain = text.plain if text.known else text.presumed
            if plain is None or (not text.known and not plain):
                return UNKNOWN
            if not _INTEGER.fullmatch(plain):
                return NO if text.known else UNKNOWN
            numbers.append(int(plain))
        value = _COMPARISONS[operator](*numbers)
        return Truth(value=value, presumed=left.unresolved + right.unresolved)

    def _binary(self, left: Text, operator: str, right: Text) -> Truth:
        if operator in _COMPARISONS:
            return self._compared(operator, left, right)
        if operator in _EQUALITIES:
            equal = self._equal(left, right)
            return equal.negated() if operator == "!=" else equal
        return UNKNOWN

    # test and [ ] ----------------------------------------------------------------------------------

    def test(self, arguments: Sequence[Text]) -> Truth:
        """`test` with these arguments; an expression that `test` would refuse does not hold."""
        plain = [argument.plain if argument.known else "" for argument in arguments]
        if len(arguments) <= 1:
            return self.empty(arguments[0]).negated() if arguments else NO
        if len(arguments) == len(("left", "=", "right")) and plain[1] in _BINARY:
            return self._binary(arguments[0], plain[1], arguments[2])
        with self._budget.deeper():
            return self._combined(arguments, plain)

    def _combined(self, arguments: Sequence[Text], plain: Sequence[str]) -> Truth:
        for operator, joins in (("-o", "||"), ("-a", "&&")):
            if operator in plain[1:-1]:
                at = plain.index(operator, 1)
                return self.test(arguments[:at]).joined(joins, self.test(arguments[at + 1 :]))
        if plain[0] == "!":
            return self.test(arguments[1:]).negated()
        if plain[0] == "(" and plain[-1] == ")":
            return self.test(arguments[1:-1])
        if len(arguments) == len(("-z", "text")) and _UNARY.fullmatch(plain[0]):
            return self._unary(plain[0], arguments[1])
        return NO if all(argument.known for argument in arguments) else UNKNOWN

    # [[ ]] -----------------------------------------------------------------------------------------

    def conditional(self, tokens: Sequence[RawWord | str]) -> Truth:
        """`[[ ... ]]`; one that is not understood is not known."""
        truth, rest = self._either(list(tokens))
        return UNKNOWN if rest else truth

    def _either(self, tokens: list[RawWord | str]) -> tuple[Truth, list[RawWord | str]]:
        return self._chain(tokens, "||", lambda inner: self._chain(inner, "&&", self._primary))

    def _chain(
        self,
        tokens: list[RawWord | str],
        operator: str,
        part: Callable[[list[RawWord | str]], tuple[Truth, list[RawWord | str]]],
    ) -> tuple[Truth, list[RawWord | str]]:
        truth, rest = part(tokens)
        while rest and rest[0] == operator:
            self._budget.spend(len(rest))
            other, rest = part(rest[1:])
            truth = truth.joined(operator, other)
        return truth, rest

    def _primary(self, tokens: list[RawWord | str]) -> tuple[Truth, list[RawWord | str]]:
        first = tokens[0] if tokens else ""
        if first in {"!", "("}:
            with self._budget.deeper():
                truth, rest = self._primary(tokens[1:]) if first == "!" else self._either(tokens[1:])
            if first == "!":
                return truth.negated(), rest
            return (truth, rest[1:]) if rest and rest[0] == ")" else (UNKNOWN, ["("])
        if not isinstance(first, RawWord):
            return UNKNOWN, ["?"]
        operator = tokens[1] if len(tokens) > 1 else ""
        name = operator.plain if isinstance(operator, RawWord) else operator
        if name in _BINARY and len(tokens) > len(("left", "operator")) and isinstance(tokens[2], RawWord):
            return self._matched(first, name, tokens[2]), tokens[3:]
        unary = first.plain or ""
        if _UNARY.fullmatch(unary) and isinstance(operator, RawWord):
            return self._unary(unary, self._expander.text(operator.parts)), tokens[2:]
        return self.empty(self._expander.text(first.parts)).negated(), tokens[1:]

    def _matched(self, left_word: RawWord, operator: str, right_word: RawWord) -> Truth:
        left = self._expander.text(left_word.parts)
        if operator in _EQUALITIES:
            pattern, right = self._expander.pattern(right_word.parts)
            if pattern is not None and left.known:
                equal = Truth(value=pattern.matches(left.plain, self._budget))
            else:
                equal = self._equal(left, right)
            return equal.negated() if operator == "!=" else equal
        right = self._expander.text(right_word.parts)
        if operator == "=~":
            # A regular expression of plain characters asks whether they occur; others are not read.
            quoted = len(right_word.parts) == 1 and not right_word.plain
            readable = left.known and right.known and (quoted or _PLAIN_EXPRESSION.fullmatch(right.plain))
            return Truth(value=right.plain in left.plain) if readable else UNKNOWN
        return self._compared(operator, *map(self._number, (left, right))) if operator in _COMPARISONS else UNKNOWN

    def _number(self, text: Text) -> Text:
        """An operand of `-eq` in `[[ ]]`, which is an expression."""
        if not text.known:
            return text
        try:
            return Numbers(self._state, self._budget).value(text.plain)
        except Indefinite as indefinite:
            return unresolved(text.plain, indefinite.names or (text.plain,))
