"""`$name` and `${name...}`: what they stand for (Bash Reference Manual 5.2, section 3.5.3)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from projector.config.shell.arithmetic import Indefinite
from projector.config.shell.fragments import Fragment, Fragments
from projector.config.shell.limits import ELEMENT_WORK
from projector.config.shell.patterns import Pattern, occurrences, removed
from projector.config.shell.state import POSITIONAL, Numbers, State
from projector.config.shell.syntax import Parameter, Part
from projector.config.shell.values import EMPTY, Array, Text, Undecided, Unset, joined, literal, unresolved

if TYPE_CHECKING:
    from projector.config.shell.expansion import Expander

_ALL = frozenset({"@", "*"})
_ALTERNATIVES = frozenset({":-", "-", ":+", "+", ":=", "="})
_UNKNOWABLE = frozenset({"?", "$", "!", "-", "0"})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Found:
    """What a parameter holds before any operator."""

    text: Text | None
    """None when it is unset."""
    presumed: bool = False
    """Whether it counts as unset only because nobody gave it."""


class Parameters:
    """Expands parameters for an `Expander`."""

    def __init__(self, expander: "Expander") -> None:
        """Work on the expander's state."""
        self._expander = expander
        self._state = expander.state
        self._budget = expander.budget

    def fragments(self, part: Parameter, *, quoted: bool) -> Fragments:
        """The fragments of a parameter; `quoted` says that it stands within double quotes."""
        if not part.prefix and part.name and (part.name in _ALL or self._all_of(part)):
            return self._list(part, quoted=quoted)
        if part.operator in _ALTERNATIVES and not part.prefix:
            return self._alternative(part, quoted=quoted)
        return self._once(self._text(part), quoted=quoted)

    @staticmethod
    def _once(text: Text, *, quoted: bool) -> Fragments:
        return [Fragment(text=text, quoted=quoted, splits=not quoted)]

    @staticmethod
    def _all_of(part: Parameter) -> str:
        """`@` or `*` when the subscript is that."""
        if part.subscript is None or len(part.subscript) != 1:
            return ""
        text = getattr(part.subscript[0], "text", None)
        return text.plain if isinstance(text, Text) and text.plain in _ALL else ""

    def _unresolved(self, part: Parameter, text: Text | None = None) -> Text:
        """The parameter as the script wrote it."""
        names = text.unresolved if text is not None and text.unresolved else (part.name or part.written,)
        return unresolved(part.written, names)

    # One value -------------------------------------------------------------------------------------

    def _fetched(self, part: Parameter) -> _Found:
        name = part.name
        if name in _UNKNOWABLE:
            return _Found(text=self._unresolved(part))
        if name.isdigit() or name == "#":
            return self._positional(part)
        value = self._state.look(name)
        if value is None or isinstance(value, Unset):
            return _Found(text=None, presumed=value is None)
        if isinstance(value, Undecided):
            return _Found(text=self._unresolved(part))
        if isinstance(value, Array):
            return self._element(value, part)
        first = part.subscript is None or self._expander.text(part.subscript, quoted=True).plain == "0"
        return _Found(text=value if first else None)

    def _positional(self, part: Parameter) -> _Found:
        arguments = self._state.look(POSITIONAL)
        if not isinstance(arguments, Array):
            # Nobody gave the script arguments: it may have some, and is taken to have none where that settles a test.
            known = arguments is None
            if part.name == "#":
                return _Found(text=unresolved(part.written, ("#",), presumed="0" if known else None))
            return _Found(text=None, presumed=True) if known else _Found(text=self._unresolved(part))
        if part.name == "#":
            exact = all(argument.known for argument in arguments.elements.values())
            return _Found(text=literal(str(len(arguments.elements))) if exact else self._unresolved(part))
        return _Found(text=arguments.elements.get(int(part.name[:6])))

    def _element(self, value: Array, part: Parameter) -> _Found:
        if part.subscript is None:
            return _Found(text=value.elements.get("0" if value.associative else 0))
        subscript = self._expander.text(part.subscript, quoted=True)
        key = array_key(subscript, self._state, self._expander, associative=value.associative)
        if key is None or (not value.associative and not _certain(value)):
            return _Found(text=self._unresolved(part, subscript))
        if isinstance(key, int) and key < 0:
            key += int(max(value.elements, default=-1)) + 1
        return _Found(text=value.elements.get(key))

    def _text(self, part: Parameter) -> Text:
        """The text of a parameter with whatever computes on one value."""
        if part.prefix == "!":
            return self._indirect(part)
        if part.prefix == "#" and (part.name in _ALL or self._all_of(part)):
            items = self._items(part)
            return literal(str(len(items))) if items is not None else self._unresolved(part)
        found = self._fetched(part)
        if found.text is None:
            return self._of_unset(part, presumed=found.presumed)
        if part.prefix == "#":
            known = found.text.known
            return found.text.made_into(str(len(found.text.plain))) if known else self._unresolved(part, found.text)
        return self._operated(part, found.text)

    def _of_unset(self, part: Parameter, *, presumed: bool) -> Text:
        """What a parameter that is unset, or is presumed to be, stands for."""
        if presumed:
            return unresolved(part.written, (part.name,), presumed="0" if part.prefix else "")
        if part.prefix == "#":
            return literal("0")
        return self._unresolved(part) if part.operator in {":?", "?"} else EMPTY

    def _indirect(self, part: Parameter) -> Text:
        """`${!name}`; lists of keys and names by prefix are not read."""
        target = self._fetched(part).text
        if part.operator or self._all_of(part) or target is None or not target.known or not target.plain.isidentifier():
            return self._unresolved(part, target)
        found = self._fetched(Parameter(written=part.written, name=target.plain))
        if found.text is not None:
            return found.text
        return unresolved(part.written, (target.plain,), presumed="") if found.presumed else EMPTY

    def _operated(self, part: Parameter, text: Text) -> Text:
        """The value after `#`, `%`, `/`, `^`, `,` or `:`."""
        operator = part.operator
        if operator in {"", ":?", "?"} and part.name:
            return text
        if not text.known:
            return self._unresolved(part, text)
        if operator[0] in "#%/":
            return self._matched(part, text)
        if operator[0] in "^," and not part.argument:
            change = str.upper if operator[0] == "^" else str.lower
            plain = text.plain
            return text.made_into(change(plain) if len(operator) > 1 else change(plain[:1]) + plain[1:])
        bounds = self._bounds(part, len(text.plain)) if operator == ":" else None
        return text.slice(*bounds) if bounds else self._unresolved(part)

    def _matched(self, part: Parameter, text: Text) -> Text:
        """The value after `#`, `%` or `/`."""
        pattern, written = self._expander.pattern(part.argument)
        if pattern is None:
            return self._unresolved(part, written)
        if part.operator[0] != "/":
            return text.slice(*removed(text.plain, part.operator, pattern, self._budget))
        return self._replaced(text, part.operator, pattern, self._expander.text(part.second or ()))

    def _replaced(self, text: Text, operator: str, pattern: Pattern, replacement: Text) -> Text:
        found: list[Text] = []
        position = 0
        for start, end in occurrences(text.plain, operator, pattern, self._budget):
            self._budget.spend(len(replacement.plain) + 1)
            found += [text.slice(position, start), replacement]
            position = end
        return joined((*found, text.slice(position, len(text.plain))))

    def _bounds(self, part: Parameter, length: int) -> tuple[int, int] | None:
        """Start and end of `${name:offset:length}`; None when they are not known."""
        try:
            start = self._number(part.argument)
            size = length if part.second is None else self._number(part.second)
        except Indefinite:
            return None
        start = start if start >= 0 else length + start
        if start < 0 or start > length:
            return (0, 0)
        end = start + size if size >= 0 else length + size
        return (start, min(length, max(start, end)))

    def _number(self, parts: Sequence[Part]) -> int:
        expression = self._expander.text(parts, quoted=True)
        if not expression.known:
            raise Indefinite(*expression.unresolved)
        return int(Numbers(self._state, self._budget).value(expression.plain).plain)

    # Defaults and alternatives ---------------------------------------------------------------------

    def _alternative(self, part: Parameter, *, quoted: bool) -> Fragments:
        """`${name:-default}` and its like."""
        found = self._fetched(part)
        text, wants_value = found.text, part.operator.endswith("+")
        missing = self._missing(text, part)
        if missing is None:
            return self._once(self._unresolved(part, text), quoted=quoted)
        if missing and (found.presumed or (text is not None and not text.known)):
            self._state.presume_unset((part.name,) if text is None else text.unresolved)
        if missing == wants_value:
            return self._once(EMPTY if wants_value or text is None else text, quoted=quoted)
        if part.operator.endswith("=") and part.subscript is None and part.name.isidentifier():
            value = self._expander.text(part.argument, quoted=quoted)
            self._state.set(part.name, value)
            return self._once(value, quoted=quoted)
        return self._argument(part, quoted=quoted)

    @staticmethod
    def _missing(text: Text | None, part: Parameter) -> bool | None:
        """Whether the value is unset, or empty where the operator has a colon; None when that is not known."""
        if text is None or not part.operator.startswith(":"):
            return text is None
        if text.known or any(piece.known for piece in text.pieces):
            return not text.plain
        return True if text.presumed == "" else None

    def _argument(self, part: Parameter, *, quoted: bool) -> Fragments:
        with self._budget.deeper():
            inner = self._expander.fragments(part.argument, quoted=quoted, splits_literals=True)
        return inner or self._once(EMPTY, quoted=quoted)

    # Lists -----------------------------------------------------------------------------------------

    def _items(self, part: Parameter) -> list[Text] | None:
        """All elements; None when they are not known."""
        name = POSITIONAL if part.name in _ALL else part.name
        value = self._state.look(name)
        if isinstance(value, Array):
            return None if part.prefix and not _certain(value) else list(value.elements.values())
        if isinstance(value, Text):
            return [value]
        return [] if isinstance(value, Unset) else None

    def _list(self, part: Parameter, *, quoted: bool) -> Fragments:
        """`$@`, `$*`, `${a[@]}` and `${a[*]}`."""
        items = self._items(part)
        operator = part.operator
        absent = items is None and self._state.look(POSITIONAL if part.name in _ALL else part.name) is None
        if items is None and not (absent and operator in _ALTERNATIVES):
            text = unresolved(part.written, (part.name,), presumed="" if absent and not operator else None)
            return self._once(text, quoted=quoted)
        if operator in _ALTERNATIVES:
            if absent:
                self._state.presume_unset((part.name,))
            if bool(items) == operator.endswith("+"):
                return self._argument(part, quoted=quoted)
            items = [] if operator.endswith("+") else items
        elif operator == ":":
            items = self._slice(part, items or [])
        elif operator:
            items = [self._operated(part, item) for item in items or ()]
        if items is None:
            return self._once(self._unresolved(part), quoted=quoted)
        return self._listed(items, quoted=quoted, joins=quoted and "*" in {part.name, self._all_of(part)})

    def _slice(self, part: Parameter, items: list[Text]) -> list[Text] | None:
        """`${@:2}` and `${a[@]:1:3}`; the positional parameters begin at 1."""
        if any(not item.known for item in items):
            return None
        numbered = [EMPTY, *items] if part.name in _ALL else items
        bounds = self._bounds(part, len(numbered))
        if bounds is None or (part.name in _ALL and bounds[0] == 0):
            return None
        return numbered[slice(*bounds)]

    def _listed(self, items: list[Text], *, quoted: bool, joins: bool) -> Fragments:
        self._budget.spend(sum(ELEMENT_WORK + len(item.plain) for item in items))
        if joins:
            ifs = self._state.look("IFS")
            between = literal(ifs.plain[:1] if isinstance(ifs, Text) else " ")
            return self._once(joined(_separated(items, between)), quoted=True)
        found: Fragments = []
        for index, item in enumerate(items):
            found += ([None] if index else []) + self._once(item, quoted=quoted)
        return found


def _separated(items: list[Text], between: Text) -> Iterator[Text]:
    for index, item in enumerate(items):
        if index:
            yield between
        yield item


def _certain(value: Array) -> bool:
    """Whether it is known how many elements there are, and which is which."""
    return all(element.known for element in value.elements.values())


def array_key(subscript: Text, state: State, expander: "Expander", *, associative: bool) -> int | str | None:
    """The key that a subscript means; None when it is not known."""
    if not subscript.known:
        return None
    if associative:
        return subscript.plain
    try:
        return int(Numbers(state, expander.budget).value(subscript.plain).plain)
    except Indefinite:
        return None
