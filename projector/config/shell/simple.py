"""Reads simple commands: assignments, arguments, redirections and here-documents."""

import re

from projector.config.shell.limits import PARSING_WORK, Budget
from projector.config.shell.source import Source
from projector.config.shell.syntax import Assignment, HereDocument, Part, RawWord, Simple
from projector.config.shell.values import literal
from projector.config.shell.words import WordReader
from projector.errors import ConfigurationError

DECLARATIONS = frozenset({"export", "declare", "typeset", "local", "readonly"})
"""Commands whose arguments may be assignments."""

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[|\+?=)")
_REDIRECTION = re.compile(r"(?:[0-9]+|\{[A-Za-z_][A-Za-z0-9_]*\})?(<<<|<<-?|&>>?|>>|>&|<&|<>|>\||[<>](?!\())")
_OUT_OF_PLACE = re.compile(r"[A-Za-z_]+|;;&?|&&|\|\||.", re.DOTALL)


class SimpleReader(WordReader):
    """Reads simple commands at `position`."""

    def __init__(self, source: Source, budget: Budget) -> None:
        """Begin at the first character."""
        super().__init__(source, budget)
        self.pending: list[HereDocument] = []

    def unexpected(self) -> ConfigurationError:
        """The error of what stands at `position`."""
        found = _OUT_OF_PLACE.match(self.text, self.position)
        shown = f"{found.group()!r} is out of place" if found else "the script ends within a command"
        return self.source.wrong(min(self.position, len(self.text) - 1), shown)

    def skip_lines(self) -> None:
        """Pass blanks, comments and line ends."""
        while True:
            self.skip_blanks()
            if not self.text.startswith("\n", self.position):
                return
            self.end_line()

    def end_line(self) -> None:
        """Pass a line end and the here-documents that follow it."""
        self.position += 1
        for document in self.pending:
            self._fill(document)
        self.pending.clear()

    def _fill(self, document: HereDocument) -> None:
        """Read the lines of a here-document."""
        document.line = self.source.line(self.position)
        kept = []
        while self.position < len(self.text):
            end = self.text.find("\n", self.position)
            end = len(self.text) if end < 0 else end
            begin = self.position
            self.position = min(end + 1, len(self.text))
            while document.strips and begin < end and self.text[begin] == "\t":
                begin += 1
            if self.text[begin:end] == document.delimiter:
                break
            kept.append((begin, self.position))
        if document.strips:
            document.body = literal("".join(self.text[begin:end] for begin, end in kept))
        elif kept:
            document.body = self.source.taken(kept[0][0], kept[-1][1])

    def simple(self) -> Simple:
        """A simple command; raises `ConfigurationError` where none begins."""
        self.budget.spend(PARSING_WORK)
        start = self.position
        assignments: list[Assignment] = []
        words: list[RawWord | Assignment] = []
        reads: HereDocument | RawWord | None = None
        redirected = False
        while True:
            self.skip_blanks()
            if found := _REDIRECTION.match(self.text, self.position):
                redirected = True
                read = self._redirection(found)
                reads = reads if read is None else read
                continue
            declares = bool(words) and isinstance(words[0], RawWord) and words[0].plain in DECLARATIONS
            assignment = self._assignment() if declares or not words else None
            if assignment is not None:
                (words or assignments).append(assignment)
                continue
            word = self.word()
            if word is None:
                break
            words.append(word)
        if not (words or assignments or redirected):
            raise self.unexpected()
        return Simple(
            line=self.source.line(start),
            written=self.source.taken(start, self.position).plain.strip(),
            assignments=tuple(assignments),
            words=tuple(words),
            reads=reads,
            redirected=redirected,
        )

    def redirections(self) -> None:
        """Pass the redirections that follow a compound command."""
        self.skip_blanks()
        while found := _REDIRECTION.match(self.text, self.position):
            self._redirection(found)
            self.skip_blanks()

    def _redirection(self, found: re.Match[str]) -> HereDocument | RawWord | None:
        """Pass a redirection; what it reads when it is a here-string or a here-document."""
        operator = found.group(1)
        self.position = found.end()
        self.skip_blanks()
        begin = self.position
        word = self.word()
        if word is None:
            raise self.unexpected()
        if operator == "<<<":
            return word
        if operator not in {"<<", "<<-"}:
            return None
        written = self.text[begin : self.position]
        delimiter = re.sub(r"[\"'\\]", "", written)
        document = HereDocument(delimiter=delimiter, strips=operator == "<<-", expands=delimiter == written)
        self.pending.append(document)
        return document

    def _assignment(self) -> Assignment | None:
        """The assignment at `position`; None where there is none."""
        found = _ASSIGNMENT.match(self.text, self.position)
        if found is None:
            return None
        start, name, operator = self.position, found.group(1), found.group(2)
        subscript = None
        self.position = found.end()
        if operator == "[":
            subscript = self.parts("]\n", quoted=True, double_quotes=True)
            closing = re.compile(r"\](\+?=)").match(self.text, self.position)
            if closing is None:
                self.position = start
                return None
            operator = closing.group(1)
            self.position = closing.end()
        append = operator == "+="
        if subscript is None and self.text.startswith("(", self.position):
            return Assignment(name=name, append=append, value=RawWord(parts=()), elements=self._elements())
        value = self.word() or RawWord(parts=())
        return Assignment(name=name, append=append, value=value, subscript=subscript)

    def _elements(self) -> tuple[tuple[tuple[Part, ...] | None, RawWord], ...]:
        """The elements of an array, up to its parenthesis, which is passed."""
        start = self.position
        self.position += 1
        found: list[tuple[tuple[Part, ...] | None, RawWord]] = []
        while True:
            self.skip_lines()
            if self.text.startswith(")", self.position):
                self.position += 1
                return tuple(found)
            subscript = self._element_subscript()
            word = self.word()
            if word is None and subscript is None:
                if self.position < len(self.text):
                    raise self.unexpected()
                raise self.source.wrong(start, "an array is not closed", "expected )")
            found.append((subscript, word or RawWord(parts=())))

    def _element_subscript(self) -> tuple[Part, ...] | None:
        """`[subscript]=` in front of an element."""
        start = self.position
        if not self.text.startswith("[", start):
            return None
        self.position += 1
        subscript = self.parts("] \t\n", quoted=True, double_quotes=True)
        if self.text.startswith("]=", self.position):
            self.position += 2
            return subscript
        self.position = start
        return None
