"""Literals and list arithmetic such as `([0]*3+[1]*58)`, without executing anything.

Megatron-LM and Primus evaluate these texts as Python. Here only this grammar is understood; names, calls, attributes
and subscripts are refused by name:

    sum     = product {("+" | "-") product}
    product = unary {"*" unary}
    unary   = ["-" | "+"] unary | atom
    atom    = number | text in quotes | true | false | null | None | "(" sum ")" | list | mapping
    list    = "[" [sum {"," sum} [","]] "]" | "(" sum "," [sum {"," sum}] ")"
    mapping = "{" [sum ":" sum {"," sum ":" sum}] "}"
"""

import re
from dataclasses import dataclass

from projector.errors import ConfigurationError, shown

MAXIMUM_LENGTH = 20_000
"""Characters of an expression."""
MAXIMUM_ITEMS = 10_000
"""Entries of all lists that an expression makes on its way; the deepest public model has 126 layers."""
MAXIMUM_DEPTH = 32
"""Brackets inside one another."""
MAXIMUM_INTEGER = 10**18
"""Absolute value of an integer that an expression may reach."""

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?)
    | (?P<text>"[^"\\]*"|'[^'\\]*')
    | (?P<name>[A-Za-z_]\w*)
    | (?P<mark>[-+*()\[\]{},:])
    )""",
    re.VERBOSE | re.ASCII,
)
_NAMES = {"true": True, "false": False, "null": None, "none": None}


def evaluate(text: str, *, place: str) -> object:
    """The value of a literal or of list arithmetic: None, bool, int, float, str, list or dict.

    `place` names file and key. Raises `ConfigurationError` for anything outside the grammar or its limits.
    """
    if len(text) > MAXIMUM_LENGTH:
        raise ConfigurationError(f"an expression longer than {MAXIMUM_LENGTH} characters", place=place)
    parser = _Parser(text=text, place=place, tokens=_tokens(text, place))
    value = parser.sum(0)
    if parser.index < len(parser.tokens):
        raise parser.error(parser.tokens[parser.index][1])
    return value


def _tokens(text: str, place: str) -> list[tuple[str, str]]:
    tokens, position = [], 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if match is None or match.lastgroup is None:
            raise _refused(text, stripped[position:].lstrip()[:1], place)
        tokens.append((match.lastgroup, match.group(match.lastgroup)))
        position = match.end()
    return tokens


def _refused(text: str, token: str, place: str) -> ConfigurationError:
    return ConfigurationError(
        f"{shown(token)} is not understood in {shown(text)}",
        place=place,
        expected="numbers, quoted texts, lists, `+` and `*`, as in ([0]*3+[1]*58); nothing is executed",
    )


@dataclass(slots=True)
class _Parser:
    text: str
    place: str
    tokens: list[tuple[str, str]]
    index: int = 0
    made: int = 0

    def error(self, token: str) -> ConfigurationError:
        return _refused(self.text, token, self.place)

    def peek(self) -> str:
        """The next token when it is a mark, else an empty text."""
        if self.index < len(self.tokens) and self.tokens[self.index][0] == "mark":
            return self.tokens[self.index][1]
        return ""

    def take(self, mark: str) -> None:
        if self.peek() != mark:
            raise self.error(self.tokens[self.index][1] if self.index < len(self.tokens) else "the end")
        self.index += 1

    def sum(self, depth: int) -> object:
        """Products joined by + and -; raises `ConfigurationError` beyond the depth or for what cannot be added."""
        if depth > MAXIMUM_DEPTH:
            raise ConfigurationError(f"brackets nested deeper than {MAXIMUM_DEPTH}", place=self.place)
        value = self.product(depth)
        while self.peek() in {"+", "-"}:
            sign = self.peek()
            self.index += 1
            value = self.combine(sign, value, self.product(depth))
        return value

    def product(self, depth: int) -> object:
        value = self.unary(depth)
        while self.peek() == "*":
            self.index += 1
            value = self.combine("*", value, self.unary(depth))
        return value

    def unary(self, depth: int) -> object:
        """An atom behind any number of signs; raises `ConfigurationError` where a sign has no number."""
        negative = False
        sign = ""
        while self.peek() in {"+", "-"}:
            sign = self.peek()
            negative ^= sign == "-"
            self.index += 1
        value = self.atom(depth)
        if not sign:
            return value
        if not _is_number(value):
            raise self.error(sign)
        return -value if negative else value  # type: ignore[operator]

    def atom(self, depth: int) -> object:
        """A literal, list, mapping or bracketed expression; raises `ConfigurationError` for anything else."""
        if self.index >= len(self.tokens):
            raise self.error("the end")
        kind, token = self.tokens[self.index]
        self.index += 1
        if kind == "number":
            return self.number(token)
        if kind == "text":
            return token[1:-1]
        if kind == "name" and token.lower() in _NAMES and self.peek() != "(":
            return _NAMES[token.lower()]
        match kind, token:
            case "mark", "[":
                return self.items("]", depth + 1)
            case "mark", "{":
                return self.mapping(depth + 1)
            case "mark", "(":
                return self.parenthesis(depth + 1)
            case _:
                raise self.error(token)

    def number(self, token: str) -> int | float:
        if not token.isdigit():
            return float(token)
        # Converting digits takes time that grows with their square, so that the length is looked at first.
        return self.bounded(int(token) if len(token) <= len(str(MAXIMUM_INTEGER)) else MAXIMUM_INTEGER + 1)

    def bounded(self, value: float) -> int | float:
        if isinstance(value, int) and abs(value) > MAXIMUM_INTEGER:
            message = f"an integer beyond {MAXIMUM_INTEGER:.0e} in {shown(self.text)}"
            raise ConfigurationError(message, place=self.place)
        return value

    def items(self, end: str, depth: int) -> list[object]:
        values: list[object] = []
        while self.peek() != end:
            values.append(self.sum(depth))
            if self.peek() != end:
                self.take(",")
        self.take(end)
        return values

    def mapping(self, depth: int) -> dict[str, object]:
        """Keys and values up to the closing brace; raises `ConfigurationError` for a key that is no text."""
        values: dict[str, object] = {}
        while self.peek() != "}":
            key = self.sum(depth)
            if not isinstance(key, str):
                raise self.error(str(key))
            self.take(":")
            values[key] = self.sum(depth)
            if self.peek() != "}":
                self.take(",")
        self.take("}")
        return values

    def parenthesis(self, depth: int) -> object:
        value = self.sum(depth)
        if self.peek() == ",":
            self.take(",")
            return [value, *self.items(")", depth)]
        self.take(")")
        return value

    def combine(self, sign: str, left: object, right: object) -> object:
        """One operation on two numbers, a sum of two lists, or a list times a count."""
        if _is_number(left) and _is_number(right):
            if sign == "*":
                return self.bounded(left * right)  # type: ignore[operator]
            return self.bounded(left + right if sign == "+" else left - right)  # type: ignore[operator]
        if isinstance(left, list) and isinstance(right, list) and sign == "+":
            self.grow(len(left) + len(right))
            return [*left, *right]
        if isinstance(left, int) and isinstance(right, list):
            left, right = right, left
        if isinstance(left, list) and type(right) is int and sign == "*" and all(_is_number(item) for item in left):
            self.grow(len(left) * right)
            return left * right
        raise self.error(sign)

    def grow(self, items: int) -> None:
        """Count the entries of a list before it is made."""
        self.made += max(items, 0)
        if self.made > MAXIMUM_ITEMS:
            message = f"a list of more than {MAXIMUM_ITEMS} entries in {shown(self.text)}"
            raise ConfigurationError(message, place=self.place)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
