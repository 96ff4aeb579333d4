"""Reads the words of a script: quotes, parameters and substitutions.

The grammar is that of the Bash Reference Manual (5.2), sections 3.1.2 (quoting) and 3.5 (shell expansions). Brace
expansion, globs and `~` stay text.
"""

import re
from abc import ABC, abstractmethod
from functools import cache

from projector.config.shell.limits import ELEMENT_WORK, Budget
from projector.config.shell.source import Source
from projector.config.shell.syntax import (
    Arithmetic,
    DoubleQuoted,
    Literal,
    Node,
    Parameter,
    Part,
    RawWord,
    Substitution,
)
from projector.config.shell.values import literal

_RUN = re.compile(r"[^ \t\n;&|()<>\"'`$\\]+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_LONG_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-]")
_OPERATOR = re.compile(r":[-=?+]|[-=?+]|##?|%%?|//|/[#%]?|\^\^?|,,?|:|@(?=[A-Za-z]\})")
_BLANKS = re.compile(r"(?:[ \t]|\\\n)+")
_ANSI = re.compile(r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{1,4}))")
_ANSI_LETTERS = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_GLOB_GROUP = re.compile(r"[?*+@!]\Z")


class _NoArithmetic(Exception):  # noqa: N818 - a turn in the parse, which no caller sees
    """What began like `$((` is a command substitution that begins with a subshell."""


@cache
def _run_until(stops: str, *, single_quotes: bool, double_quotes: bool) -> re.Pattern[str]:
    special = stops + "$`\\" + ("'" if single_quotes else "") + ('"' if double_quotes else "")
    return re.compile(f"[^{re.escape(special)}]+")


class WordReader(ABC):
    """Reads words at `position`; the parser, which knows commands, is built upon it."""

    def __init__(self, source: Source, budget: Budget) -> None:
        """Begin at the first character."""
        self.source = source
        self.budget = budget
        self.text = source.text
        self.position = 0
        self._no_arithmetic: set[int] = set()

    @abstractmethod
    def substituted_commands(self) -> tuple[Node, ...]:
        """The commands from `position` to the closing parenthesis, which is passed."""

    def skip_blanks(self) -> None:
        """Pass blanks, continued lines and a comment."""
        if found := _BLANKS.match(self.text, self.position):
            self.position = found.end()
        if self.text.startswith("#", self.position) and self._at_word_start():
            end = self.text.find("\n", self.position)
            self.position = len(self.text) if end < 0 else end

    def _at_word_start(self) -> bool:
        return self.position == 0 or self.text[self.position - 1] in " \t\n;&|()<>"

    def word(self) -> RawWord | None:
        """The word at `position`; None where none begins."""
        self.budget.spend(ELEMENT_WORK)
        parts: list[Part] = []
        start = self.position
        while self.position < len(self.text):
            character = self.text[self.position]
            if found := _RUN.match(self.text, self.position):
                parts.append(self._literal(found.end(), quoted=False))
            elif character in "<>" and self.text.startswith("(", self.position + 1):
                parts.append(self._substitution(2))
            elif character == "(" and self.position > start and _GLOB_GROUP.search(self.text[start : self.position]):
                parts.extend(self._glob_group())
            elif character in " \t\n;&|()<>":
                break
            else:
                parts.extend(self._special(quoted=False, stops=""))
        return RawWord(parts=tuple(parts)) if self.position > start else None

    def _glob_group(self) -> tuple[Part, ...]:
        """`(a|b)` of an extended glob, after its first character."""
        start, depth = self.position, 0
        while self.position < len(self.text):
            depth += {"(": 1, ")": -1}.get(self.text[self.position], 0)
            self.position += 1
            if not depth:
                return (Literal(text=self.source.taken(start, self.position), quoted=False),)
        raise self.source.wrong(start, "a parenthesis is not closed")

    def _literal(self, end: int, *, quoted: bool) -> Literal:
        start, self.position = self.position, end
        return Literal(text=self.source.taken(start, end), quoted=quoted)

    def _special(self, *, quoted: bool, stops: str) -> tuple[Part, ...]:
        """What a quote, a dollar or a backslash at `position` begins."""
        character = self.text[self.position]
        if character == "\\":
            return self._escaped(quoted=quoted, stops=stops)
        if character == "'":
            return (self._single_quoted(),)
        if character == '"':
            self.position += 1
            return (self._double_quoted(),)
        if character == "`":
            return (self._backquoted(),)
        return (self._dollar(quoted=quoted),)

    def _escaped(self, *, quoted: bool, stops: str) -> tuple[Part, ...]:
        start = self.position
        following = self.text[start + 1 : start + 2]
        if following == "\n":
            self.position += 2
            return ()
        if not following or (quoted and following not in '$`"\\' + stops):
            return (self._literal(start + 1, quoted=True),)
        self.position += 1
        return (self._literal(start + 2, quoted=True),)

    def _single_quoted(self) -> Literal:
        start = self.position
        end = self.text.find("'", start + 1)
        if end < 0:
            raise self.source.wrong(start, "a single quote is not closed")
        self.position = end + 1
        return Literal(text=self.source.taken(start + 1, end), quoted=True)

    def _double_quoted(self) -> DoubleQuoted:
        start = self.position
        with self.budget.deeper():
            parts = self.parts('"', quoted=True)
        if self.position >= len(self.text):
            raise self.source.wrong(start, "a double quote is not closed")
        self.position += 1
        return DoubleQuoted(parts=parts)

    def parts(
        self, stops: str, *, quoted: bool, single_quotes: bool = False, double_quotes: bool = False
    ) -> tuple[Part, ...]:
        """What stands before the first of `stops`, or the end, which is not passed; blanks are characters here."""
        found: list[Part] = []
        run = _run_until(stops, single_quotes=single_quotes, double_quotes=double_quotes)
        while self.position < len(self.text) and self.text[self.position] not in stops:
            if plain := run.match(self.text, self.position):
                found.append(self._literal(plain.end(), quoted=quoted))
            else:
                found.extend(self._special(quoted=quoted, stops=stops))
        return tuple(found)

    def _dollar(self, *, quoted: bool) -> Part:
        start = self.position
        following = self.text[start + 1 : start + 2]
        if following == "(":
            return self._parenthesized()
        if following == "[":
            return self._bracketed_arithmetic()
        if following == "{":
            with self.budget.deeper():
                return self._braces(quoted=quoted)
        if following in {"'", '"'} and not quoted:
            return self._dollar_quoted(following)
        if name := _NAME.match(self.text, start + 1):
            self.position = name.end()
            return Parameter(written=self.text[start : name.end()], name=name.group())
        return self._literal(start + 1, quoted=quoted)

    def _parenthesized(self) -> Part:
        """`$((...))` or `$(...)`."""
        start = self.position
        if self.text.startswith("((", start + 1) and start not in self._no_arithmetic:
            try:
                return self.arithmetic(3)
            except _NoArithmetic:
                self.position = start
                self._no_arithmetic.add(start)
        return self._substitution(2)

    def _dollar_quoted(self, quote: str) -> Part:
        """`$'...'`, or `$"..."`, which is a plain double quote."""
        start = self.position
        if quote == '"':
            self.position += 2
            return self._double_quoted()
        end = start + 2
        while end < len(self.text) and self.text[end] != "'":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise self.source.wrong(start, "a single quote is not closed")
        self.position = end + 1

        def replaced(match: re.Match[str]) -> str:
            letter, octal, byte, unicode = match.groups()
            return _ANSI_LETTERS[letter] if letter else chr(int(octal, 8) % 256 if octal else int(byte or unicode, 16))

        return Literal(text=literal(_ANSI.sub(replaced, self.text[start + 2 : end])), quoted=True)

    def _backquoted(self) -> Substitution:
        start = self.position
        end = start + 1
        while end < len(self.text) and self.text[end] != "`":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise self.source.wrong(start, "a backquote is not closed")
        self.position = end + 1
        inside = self.source.taken(start + 1, end)
        return Substitution(written=self._written(start), backquoted=inside)

    def _substitution(self, opening: int) -> Substitution:
        """`$(...)`, `<(...)` or `>(...)`, of which `opening` characters begin it."""
        start = self.position
        self.position += opening
        with self.budget.deeper():
            commands = self.substituted_commands()
        return Substitution(written=self._written(start), commands=commands if self.text[start] == "$" else ())

    def _written(self, start: int) -> str:
        return self.source.taken(start, self.position).plain

    def arithmetic(self, opening: int) -> Arithmetic:
        """`$((...))` or `((...))`, of which `opening` characters begin it."""
        start = self.position
        self.position += opening
        found: list[Part] = []
        depth = 0
        with self.budget.deeper():
            while True:
                found.extend(self.parts("()", quoted=True, double_quotes=True))
                if self.position >= len(self.text):
                    raise self.source.wrong(start, "an arithmetic expression is not closed", "expected ))")
                closes = self.text[self.position] == ")"
                if closes and not depth:
                    break
                depth += -1 if closes else 1
                found.append(self._literal(self.position + 1, quoted=True))
        if not self.text.startswith("))", self.position):
            raise _NoArithmetic
        self.position += 2
        return Arithmetic(written=self._written(start), parts=tuple(found))

    def _bracketed_arithmetic(self) -> Arithmetic:
        """`$[...]`, which bash still reads."""
        start = self.position
        self.position += 2
        with self.budget.deeper():
            parts = self.parts("]", quoted=True, double_quotes=True)
        if self.position >= len(self.text):
            raise self.source.wrong(start, "an arithmetic expression is not closed", "expected ]")
        self.position += 1
        return Arithmetic(written=self._written(start), parts=parts)

    def arithmetic_command(self) -> Arithmetic | None:
        """`((...))`, or None where two subshells begin."""
        start = self.position
        if start in self._no_arithmetic:
            return None
        try:
            return self.arithmetic(2)
        except _NoArithmetic:
            self.position = start
            self._no_arithmetic.add(start)
            return None

    def _braces(self, *, quoted: bool) -> Parameter:
        """`${...}`."""
        start = self.position
        self.position += 2
        prefix = ""
        found = re.compile(r"[#!](?=[A-Za-z0-9_@*])").match(self.text, self.position)
        if found:
            prefix = found.group()
            self.position = found.end()
        name = _LONG_NAME.match(self.text, self.position)
        if name is None:
            return self._bad_braces(start)
        self.position = name.end()
        subscript = None
        if self.text.startswith("[", self.position):
            self.position += 1
            subscript = self.parts("]}", quoted=True, double_quotes=True)
            if not self.text.startswith("]", self.position):
                return self._bad_braces(start)
            self.position += 1
        operator, argument, second = self._operation(quoted=quoted)
        if not self.text.startswith("}", self.position):
            return self._bad_braces(start)
        self.position += 1
        return Parameter(
            written=self._written(start),
            name=name.group(),
            subscript=subscript,
            prefix=prefix,
            operator=operator,
            argument=argument,
            second=second,
        )

    def _operation(self, *, quoted: bool) -> tuple[str, tuple[Part, ...], tuple[Part, ...] | None]:
        """Operator and arguments of `${...}`, up to the brace."""
        found = _OPERATOR.match(self.text, self.position)
        if found is None:
            return "", (), None
        operator = found.group()
        self.position = found.end()
        # Within double quotes a single quote is a character, except in a pattern.
        pattern = operator[0] in "#%/^,"
        inside = quoted and not pattern
        stops = "/}" if operator[0] == "/" else ":}" if operator == ":" else "}"
        argument = self.parts(stops, quoted=inside, single_quotes=not inside, double_quotes=True)
        second = None
        if len(stops) > 1 and self.text.startswith(stops[0], self.position):
            self.position += 1
            second = self.parts("}", quoted=inside, single_quotes=not inside, double_quotes=True)
        return operator, argument, second

    def _bad_braces(self, start: int) -> Parameter:
        """A `${...}` that is not understood: unresolved, as far as its brace closes."""
        self.parts("}", quoted=True, double_quotes=True)
        if self.position >= len(self.text):
            raise self.source.wrong(start, "a brace is not closed", "expected }")
        self.position += 1
        return Parameter(written=self._written(start), name="", operator="?")
