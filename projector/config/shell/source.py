"""The text being parsed: a script, or the text of an `eval`, whose characters have origins of their own."""

import re
from bisect import bisect_right

from projector.config.shell.values import Piece, Text, joined, literal
from projector.errors import ConfigurationError

PLACEHOLDER = "\ufffc"
"""Stands for an unresolved piece where text is parsed again: an ordinary character, so that it cannot be split."""


class Source:
    """A text with line numbers and origins."""

    def __init__(self, text: Text | str, *, name: str, line: int = 1, one_line: bool = False) -> None:
        """`line` is that of the first character; `one_line` gives all characters that line."""
        pieces = (Piece(text=text),) if isinstance(text, str) else text.pieces
        self._pieces = pieces
        shown = [piece.text if piece.known else PLACEHOLDER for piece in pieces]
        self._starts = [0]
        for part in shown:
            self._starts.append(self._starts[-1] + len(part))
        self.text = "".join(shown)
        self._name = name
        self._line = line
        self._newlines = [] if one_line else [match.start() for match in re.finditer("\n", self.text)]

    def line(self, position: int) -> int:
        """The line of a character."""
        return self._line + bisect_right(self._newlines, position - 1) if self._newlines else self._line

    def wrong(self, position: int, message: str, expected: str = "") -> ConfigurationError:
        """The error of text that is no shell script."""
        return ConfigurationError(message, place=f"{self._name}:{self.line(position)}", expected=expected)

    def taken(self, start: int, end: int) -> Text:
        """The characters from `start` to `end`, with their origins."""
        if len(self._pieces) <= 1 and not (self._pieces and (self._pieces[0].unresolved or self._pieces[0].variables)):
            return literal(self.text[start:end])
        found = []
        index = bisect_right(self._starts, start) - 1
        while start < end:
            piece, offset = self._pieces[index], self._starts[index]
            stop = min(end, self._starts[index + 1])
            if piece.known:
                found.append(Text((piece,)).slice(start - offset, stop - offset))
            else:
                found.append(Text((piece,)))
            start, index = stop, index + 1
        return joined(found)
