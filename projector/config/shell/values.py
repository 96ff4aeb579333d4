"""What variables hold: text that remembers where it came from and which parts of it could not be resolved."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from projector.config.shell.script import Word


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """A stretch of text of one origin."""

    text: str
    """The characters; of an unresolved piece, the script's own words for it."""
    unresolved: tuple[str, ...] = ()
    """What stands in the way of resolving it; empty when it is resolved."""
    variables: tuple[str, ...] = ()
    """Variables given from outside that it was made of."""
    presumed: str | None = None
    """What an unresolved piece would be if what nobody gave is unset: only tests of emptiness and defaults use it."""

    @property
    def known(self) -> bool:
        """Whether `text` is what the shell would have here."""
        return not self.unresolved


@dataclass(frozen=True)
class Text:
    """A text in pieces. Frozen, so that variables may share it."""

    pieces: tuple[Piece, ...] = ()
    """In order; none is empty unless it is unresolved."""

    @cached_property
    def plain(self) -> str:
        """All characters."""
        return "".join(piece.text for piece in self.pieces)

    @property
    def known(self) -> bool:
        """Whether every piece is resolved."""
        return all(piece.known for piece in self.pieces)

    @property
    def unresolved(self) -> tuple[str, ...]:
        """What is unresolved, each name once."""
        return tuple(dict.fromkeys(name for piece in self.pieces for name in piece.unresolved))

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables from outside, each name once."""
        return tuple(dict.fromkeys(name for piece in self.pieces for name in piece.variables))

    @property
    def presumed(self) -> str | None:
        """The whole text if what nobody gave is unset; None when that does not settle it, or nothing needs it."""
        if self.known or any(not piece.known and piece.presumed is None for piece in self.pieces):
            return None
        return "".join(piece.text if piece.presumed is None else piece.presumed for piece in self.pieces)

    def word(self, line: int) -> Word:
        """The text as a word of the result."""
        return Word(text=self.plain, line=line, unresolved=self.unresolved, variables=self.variables)

    def made_into(self, text: str) -> "Text":
        """Another text computed from this known one: it keeps the variables."""
        return Text((Piece(text=text, variables=self.variables),)) if text else Text()

    def slice(self, start: int, end: int) -> "Text":
        """Characters from `start` to `end`; a piece that is cut keeps its origin."""
        taken, offset = [], 0
        for piece in self.pieces:
            text = piece.text[max(0, start - offset) : max(0, end - offset)]
            if text:
                taken.append(piece if text == piece.text else replace(piece, text=text))
            offset += len(piece.text)
        return Text(tuple(taken))


EMPTY = Text()
BLANK = Text((Piece(text=" "),))


def literal(text: str) -> Text:
    """A known text that the script itself states."""
    return Text((Piece(text=text),)) if text else EMPTY


def unresolved(written: str, names: Iterable[str], *, presumed: str | None = None) -> Text:
    """A text of which only the script's words for it are known."""
    return Text((Piece(text=written, unresolved=tuple(dict.fromkeys(names)), presumed=presumed),))


def joined(texts: Iterable[Text]) -> Text:
    """Texts one after the other; neighbours of one origin become one piece."""
    pieces: list[Piece] = []
    runs: list[list[str]] = []
    for text in texts:
        for piece in text.pieces:
            last = pieces[-1] if pieces else None
            if last is not None and piece.known and last.known and last.variables == piece.variables:
                runs[-1].append(piece.text)
            else:
                pieces.append(piece)
                runs.append([piece.text])
    return Text(
        tuple(
            piece if len(run) == 1 else replace(piece, text="".join(run))
            for piece, run in zip(pieces, runs, strict=True)
        )
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Array:
    """An array; indexed ones are in the order of their indices."""

    elements: Mapping[int | str, Text]
    """By index, or by key."""
    associative: bool = False
    """Whether it has keys."""

    @property
    def known(self) -> bool:
        """Whether every element is resolved."""
        return all(text.known for text in self.elements.values())

    @property
    def plain(self) -> str:
        """All elements, a blank between them."""
        return " ".join(text.plain for text in self.elements.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Undecided:
    """A value that depends on something undecided; the reason is kept with the state."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unset:
    """The script took the variable away."""


Value = Text | Array | Undecided | Unset


def extended(value: Text | Array, name: str) -> Value:
    """A value to which something unknown may be appended."""
    if isinstance(value, Text):
        return joined((value, unresolved(f"${{{name}}}", (name,))))
    if value.associative:
        return Undecided()
    following = max((int(key) for key in value.elements), default=-1) + 1
    return Array(elements={**value.elements, following: unresolved(f"${{{name}[@]}}", (name,))})


def merged(first: Value | None, second: Value | None, name: str) -> Value:
    """What a variable holds after two ways of which only one is taken.

    What both begin with stays; the rest, when they differ, is unresolved by the variable's name.
    """
    if first is not None and first == second:
        return first
    if isinstance(first, Text) and isinstance(second, Text):
        return _merged_texts(first, second, name)
    if isinstance(first, Array) and isinstance(second, Array) and not (first.associative or second.associative):
        return _merged_arrays(first, second, name)
    return Undecided()


def _merged_texts(first: Text, second: Text, name: str) -> Value:
    """Only whole words in front are kept: `--tp 4` and `--tp 48` agree about `--tp`."""
    one, other = first.plain, second.plain
    shorter = min(len(one), len(other))
    common = next((at for at in range(shorter) if one[at] != other[at]), shorter)
    ends = all(len(text) == common or text[common].isspace() for text in (one, other))
    if not ends:
        common = max(one.rfind(blank, 0, common) for blank in " \t\n") + 1
    kept = first.slice(0, common)
    if not kept.pieces or kept != second.slice(0, common):
        return Undecided()
    rest = unresolved(f"${{{name}}}", (name,))
    if kept.pieces[-1:] == rest.pieces:
        return kept
    apart = () if one[:common][-1:].isspace() else (BLANK,)
    return joined((kept, *apart, rest))


def _merged_arrays(first: Array, second: Array, name: str) -> Value:
    kept: dict[int | str, Text] = {}
    for (index, element), (other_index, other) in zip(first.elements.items(), second.elements.items(), strict=False):
        if (index, element) != (other_index, other) or index != len(kept):
            break
        kept[index] = element
    if not kept:
        return Undecided()
    rest = unresolved(f"${{{name}[@]}}", (name,))
    if kept[len(kept) - 1] != rest:
        kept[len(kept)] = rest
    return Array(elements=kept)
