"""Integer arithmetic of the shell, on 64 bits as bash has it (Bash Reference Manual 5.2, section 6.5)."""

import operator
import re
from collections.abc import Callable
from functools import partial
from typing import Protocol

from projector.config.shell.limits import Budget

_TOKEN = re.compile(
    r"[ \t\n\r]*(?:(0[xX][0-9a-fA-F]+|[0-9]+#[0-9a-zA-Z@_]+|[0-9]+(?![0-9A-Za-z_.]))|([A-Za-z_][A-Za-z0-9_]*)"
    r"|(<<=|>>=|\*\*|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|[-+*/%<>=!~&|^?:,()\[\]]))"
)
_NUMBER, _NAME = 1, 2
"""Groups of `_TOKEN`."""
_BINARY = (
    {"||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6}
    | dict.fromkeys(("<", ">", "<=", ">="), 7)
    | dict.fromkeys(("<<", ">>"), 8)
    | dict.fromkeys(("+", "-"), 9)
    | dict.fromkeys(("*", "/", "%"), 10)
    | {"**": 11}
)
_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "|": operator.or_,
    "^": operator.xor,
    "&": operator.and_,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "<<": lambda left, right: left << right % 64,
    ">>": lambda left, right: left >> right % 64,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    # The quotient is cut towards zero, and the remainder has the sign of the left side.
    "/": lambda left, right: abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1),
    "%": lambda left, right: abs(left) % abs(right) * (-1 if left < 0 else 1),
    "**": lambda left, right: pow(left, right, 2**64),
}
_STEPS = {"++": 1, "--": -1}
_ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>="})
_MAXIMUM_NESTING = 12
"""Parentheses within an expression, and variables that hold expressions, together."""
_MAXIMUM_DIGITS = 40
_CASELESS_BASE = 36
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ@_"


_CHANGED = re.compile(
    r"(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_]*+)(?:\[(?:[^\[\]]++|\[[^\[\]]*+\])*+\])?"
    r"[ \t\n]*(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)"
    r"|(?:\+\+|--)[ \t\n]*([A-Za-z_][A-Za-z0-9_]*)"
)


def changed_names(expression: str) -> set[str]:
    """The variables that an expression may give a value."""
    return {one or other for one, other in _CHANGED.findall(expression)}


class Indefinite(Exception):  # noqa: N818 - an answer, which the caller turns into an unresolved text
    """The expression has no value that can be known; `names` are what stands in the way."""

    def __init__(self, *names: str) -> None:
        """Empty `names`: the expression itself is at fault."""
        super().__init__(*names)
        self.names = names


class Variables(Protocol):
    """How arithmetic reads and writes variables."""

    def number_text(self, name: str, subscript: int | None) -> str:
        """What a variable holds; raises `Indefinite` when that is not known."""

    def set_number(self, name: str, subscript: int | None, value: int) -> None:
        """Give it a value."""


def wrapped(value: int) -> int:
    """The value on 64 bits with a sign."""
    return (value + 2**63) % 2**64 - 2**63


def evaluate(expression: str, variables: Variables, budget: Budget, *, nesting: int = 0) -> int:
    """The value of an expression; raises `Indefinite` when it has none, or bash would refuse it."""
    budget.spend(len(expression) + 1)
    if not expression.strip():
        return 0
    if nesting > _MAXIMUM_NESTING:
        raise Indefinite
    evaluation = _Evaluation(expression, variables, budget, nesting)
    value = evaluation.comma()
    if evaluation.token:
        raise Indefinite
    return value


class _Evaluation:
    """Precedence climbing over the tokens; `silent` parts are read and have no effect."""

    def __init__(self, expression: str, variables: Variables, budget: Budget, nesting: int) -> None:
        self._expression = expression
        self._variables = variables
        self._budget = budget
        self._position = 0
        self._silent = 0
        self._nesting = nesting
        self.token = ""
        self._kind = 0
        self._advance()

    def _advance(self) -> None:
        found = _TOKEN.match(self._expression, self._position)
        if found is None:
            if self._expression[self._position :].strip():
                raise Indefinite
            self.token = ""
            return
        self._kind = found.lastindex or 0
        self.token = found.group(self._kind)
        self._position = found.end()

    def _accept(self, token: str) -> bool:
        if self.token != token:
            return False
        self._advance()
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise Indefinite

    def _silently(self, condition: object, part: Callable[[], int]) -> int:
        """Read a part, without effect when `condition` holds."""
        self._silent += bool(condition)
        value = part()
        self._silent -= bool(condition)
        return value

    def comma(self) -> int:
        value = self._choice()
        while self._accept(","):
            value = self._choice()
        return value

    def _choice(self) -> int:
        """`condition ? one : other`, and assignments."""
        self._nesting += 1
        if self._nesting > _MAXIMUM_NESTING:
            raise Indefinite
        value = self._binary(1)
        if self._accept("?"):
            one = self._silently(not value, self._choice)
            self._expect(":")
            other = self._silently(value, self._choice)
            value = one if value else other
        self._nesting -= 1
        return value

    def _binary(self, lowest: int) -> int:
        left = self._operand()
        while (rank := _BINARY.get(self.token, 0)) >= lowest:
            sign = self.token
            self._advance()
            if sign in {"&&", "||"}:
                decided = bool(left) == (sign == "||")
                right = self._silently(decided, partial(self._binary, rank + 1))
                left = int(sign == "||") if decided else int(bool(right))
            else:
                right = self._power() if sign == "**" else self._binary(rank + 1)
                left = self._computed(sign, left, right)
        return left

    def _power(self) -> int:
        """The right side of `**`, which groups from the right."""
        self._nesting += 1
        if self._nesting > _MAXIMUM_NESTING:
            raise Indefinite
        value = self._binary(11)
        self._nesting -= 1
        return value

    def _computed(self, sign: str, left: int, right: int) -> int:
        if (sign in {"/", "%"} and right == 0) or (sign == "**" and right < 0):
            if self._silent:
                return 0
            raise Indefinite
        return wrapped(_OPERATIONS[sign](left, right))

    def _operand(self) -> int:
        signs: list[str] = []
        while self.token in {"+", "-", "!", "~"} or (self.token in _STEPS and not self._steps_a_name()):
            signs.extend(self.token if self.token in _STEPS else [self.token])
            self._advance()
        value = self._primary()
        for sign in reversed(signs):
            value = {"+": value, "-": -value, "!": int(not value), "~": ~value}[sign]
        return wrapped(value)

    def _steps_a_name(self) -> bool:
        return bool(re.compile(r"[ \t\n]*[A-Za-z_]").match(self._expression, self._position))

    def _primary(self) -> int:
        if self._accept("("):
            value = self.comma()
            self._expect(")")
            return value
        token, kind = self.token, self._kind
        if not token:
            raise Indefinite
        self._advance()
        if token in _STEPS:
            name = self.token
            self._advance()
            subscript = self._subscript()
            return self._assign(name, subscript, self._value(name, subscript) + _STEPS[token])
        if kind == _NUMBER:
            return _number(token)
        if kind != _NAME:
            raise Indefinite
        return self._named(token)

    def _named(self, name: str) -> int:
        """A variable, with what may be done to it."""
        subscript = self._subscript()
        if self.token in _ASSIGNMENTS:
            sign = self.token[:-1]
            self._advance()
            right = self._choice()
            if sign:
                right = self._computed(sign, self._value(name, subscript), right)
            return self._assign(name, subscript, right)
        value = self._value(name, subscript)
        if self.token in _STEPS:
            self._assign(name, subscript, value + _STEPS[self.token])
            self._advance()
        return value

    def _subscript(self) -> int | None:
        if not self._accept("["):
            return None
        value = self.comma()
        self._expect("]")
        return value

    def _value(self, name: str, subscript: int | None) -> int:
        if self._silent:
            return 0
        return evaluate(
            self._variables.number_text(name, subscript), self._variables, self._budget, nesting=self._nesting
        )

    def _assign(self, name: str, subscript: int | None, value: int) -> int:
        value = wrapped(value)
        if not self._silent:
            self._variables.set_number(name, subscript, value)
        return value


def _number(token: str) -> int:
    """A decimal, octal (`010`), hexadecimal (`0x10`) or other (`2#10`) number."""
    if len(token) > _MAXIMUM_DIGITS:
        raise Indefinite
    base, digits = 10, token
    if "#" in token:
        head, digits = token.split("#")
        base = int(head)
    elif token[:2].lower() == "0x":
        base, digits = 16, token[2:]
    elif token.startswith("0") and len(token) > 1:
        base, digits = 8, token[1:]
    if base not in range(2, len(_DIGITS) + 1):
        raise Indefinite
    value = 0
    for digit in digits.lower() if base <= _CASELESS_BASE else digits:
        place = _DIGITS.index(digit)
        if place >= base:
            raise Indefinite
        value = value * base + place
    return wrapped(value)
