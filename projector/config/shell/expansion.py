"""Turns the words of a script into text: parameters, arithmetic and quotes, then word splitting.

The order and the rules are those of the Bash Reference Manual (5.2), section 3.5; what cannot be known stays in the
text as the script wrote it, in a piece of its own that is never split.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from projector.config.shell.arithmetic import Indefinite, changed_names
from projector.config.shell.fragments import Fragment, Fragments
from projector.config.shell.limits import ELEMENT_WORK, WORD_WORK, Budget
from projector.config.shell.parameters import Parameters
from projector.config.shell.parser import Parser
from projector.config.shell.patterns import Pattern, PatternUnknown
from projector.config.shell.source import Source
from projector.config.shell.state import Numbers, State
from projector.config.shell.syntax import (
    Arithmetic,
    DoubleQuoted,
    HereDocument,
    Literal,
    Node,
    Parameter,
    Part,
    RawWord,
    Simple,
    Substitution,
)
from projector.config.shell.values import BLANK, EMPTY, Piece, Text, joined, unresolved
from projector.errors import ConfigurationError, ConfigurationTooLarge


@lru_cache(maxsize=16)
def _separators(ifs: str) -> re.Pattern[str]:
    blanks = re.escape("".join(character for character in ifs if character in " \t\n"))
    others = re.escape("".join(character for character in ifs if character not in " \t\n"))
    around = f"[{blanks}]*" if blanks else ""
    ways = [f"{around}([{others}]){around}"] if others else []
    ways += [f"[{blanks}]+()"] if blanks else []
    return re.compile("|".join(ways) or r"(?!)()")


class Expander:
    """Expands words in a state."""

    def __init__(self, state: State, budget: Budget, name: str) -> None:
        """`name` is what messages call the script."""
        self.state = state
        self.budget = budget
        self._name = name
        self._parameters = Parameters(self)

    def words(self, raw: RawWord) -> list[Text]:
        """The words that a word becomes, none or more."""
        return self._assembled(self.fragments(raw.parts, quoted=False))

    def split_words(self, text: Text) -> list[Text]:
        """The words of a text, as where a variable that holds it stands unquoted."""
        return self._assembled([Fragment(text=text, quoted=False, splits=True)])

    def _assembled(self, fragments: Fragments) -> list[Text]:
        found: list[Text] = []
        current: list[Piece] = []
        begun = False

        def end(*, always: bool = False) -> None:
            nonlocal begun
            if begun or always:
                found.append(joined((Text(tuple(current)),)))
            current.clear()
            begun = False

        for fragment in fragments:
            if fragment is None:
                end()
            elif not fragment.splits:
                current.extend(fragment.text.pieces)
                begun = begun or fragment.quoted or bool(fragment.text.pieces)
            else:
                for delimiter, piece in self._split(fragment.text):
                    if delimiter is not None:
                        end(always=bool(delimiter))
                    if piece is not None:
                        current.append(piece)
                        begun = True
        end()
        self.budget.spend(WORD_WORK + sum(ELEMENT_WORK + len(word.plain) for word in found))
        return found

    def _split(self, text: Text) -> Iterable[tuple[str | None, Piece | None]]:
        """Pieces without separators, each after the separator in front of it if there is one.

        A separator is empty when it is blanks alone, which make no empty word.
        """
        ifs = self.state.look("IFS")
        separators = _separators(ifs.plain if isinstance(ifs, Text) and ifs.known else " \t\n")
        for piece in text.pieces:
            if not piece.known:
                yield None, piece
                continue
            position, delimiter = 0, None
            for separator in separators.finditer(piece.text):
                chunk = piece.text[position : separator.start()]
                yield delimiter, replace(piece, text=chunk) if chunk else None
                position = separator.end()
                delimiter = separator.group(1) or ""
            chunk = piece.text[position:]
            yield delimiter, replace(piece, text=chunk) if chunk else None

    def text(self, parts: Sequence[Part], *, quoted: bool = False) -> Text:
        """One text without splitting, as in the value of an assignment."""
        fragments = self.fragments(parts, quoted=quoted)
        text = joined(BLANK if fragment is None else fragment.text for fragment in fragments)
        self.budget.spend(WORD_WORK + len(text.plain))
        return text

    def pattern(self, parts: Sequence[Part]) -> tuple[Pattern | None, Text]:
        """The pattern that a word is, None when it is not known; and its text."""
        fragments = [fragment for fragment in self.fragments(parts, quoted=False) if fragment is not None]
        text = joined(fragment.text for fragment in fragments)
        self.budget.spend(WORD_WORK + len(text.plain))
        if not text.known:
            return None, text
        try:
            return Pattern.of([(fragment.text.plain, fragment.quoted) for fragment in fragments]), text
        except PatternUnknown:
            return None, text

    def document(self, document: HereDocument) -> Text:
        """The text of a here-document."""
        if not document.expands:
            return document.body
        parser = Parser(Source(document.body, name=self._name, line=document.line), self.budget)
        with self.budget.deeper():
            return self.text(parser.parts("", quoted=True), quoted=True)

    def fragments(self, parts: Sequence[Part], *, quoted: bool, splits_literals: bool = False) -> Fragments:
        """Expand parts; `quoted` says that they stand within double quotes."""
        found: Fragments = []
        for part in parts:
            match part:
                case Literal():
                    protected = quoted or part.quoted
                    splits = splits_literals and not protected
                    found.append(Fragment(text=part.text, quoted=protected, splits=splits))
                case DoubleQuoted():
                    found.extend(self._double_quoted(part))
                case Parameter():
                    found.extend(self._parameters.fragments(part, quoted=quoted))
                case Arithmetic():
                    found.append(self._one(self.arithmetic(part), quoted=quoted))
                case Substitution():
                    found.append(self._one(self._substituted(part), quoted=quoted))
        return found

    @staticmethod
    def _one(text: Text, *, quoted: bool) -> Fragment:
        return Fragment(text=text, quoted=quoted, splits=not quoted)

    def _double_quoted(self, part: DoubleQuoted) -> Fragments:
        with self.budget.deeper():
            inner = self.fragments(part.parts, quoted=True)
        # "" is a word; "${a[@]}" of an empty array is none.
        return inner if part.parts else [Fragment(text=EMPTY, quoted=True, splits=False)]

    def arithmetic(self, part: Arithmetic) -> Text:
        """The value of `$((...))`; what its names assign is undecided when it has none."""
        with self.budget.deeper():
            expression = self.text(part.parts, quoted=True)
        names = expression.unresolved
        if not names:
            try:
                return Numbers(self.state, self.budget).value(expression.plain)
            except Indefinite as indefinite:
                names = indefinite.names
        for name in changed_names(expression.plain):
            self.state.set_undecided(name, f"{part.written} has no value that is known")
        return unresolved(part.written, names or (part.written,))

    def _substituted(self, part: Substitution) -> Text:
        """The output of `$(echo ...)` and `$(cat <<EOF)`, whose words say it; no other command is known."""
        commands = part.commands if part.backquoted is None else self._commands(part.backquoted)
        command = commands[0] if len(commands) == 1 else None
        if isinstance(command, Simple) and not command.assignments and command.words:
            with self.budget.deeper():
                output = self._output(command)
            if output is not None:
                return output.slice(0, len(output.plain.rstrip("\n"))) if output.known else output
        return unresolved(part.written, (part.written,))

    def _commands(self, backquoted: Text) -> tuple[Node, ...]:
        """What stands between backquotes; nothing where that is no script."""
        if not backquoted.known:
            return ()
        self.budget.spend(len(backquoted.plain))
        source = Source(re.sub(r"\\([$`\\])", r"\1", backquoted.plain), name=self._name)
        try:
            with self.budget.deeper():
                return Parser(source, self.budget).script()
        except ConfigurationTooLarge:
            raise
        except ConfigurationError:
            return ()

    def _output(self, command: Simple) -> Text | None:
        if isinstance(command.reads, HereDocument):
            return (
                self.document(command.reads) if command.written.startswith("cat") and len(command.words) == 1 else None
            )
        name, *arguments = command.words
        if command.redirected or not isinstance(name, RawWord) or name.plain != "echo":
            return None
        words = [word for argument in arguments if isinstance(argument, RawWord) for word in self.words(argument)]
        if words and words[0].plain.startswith("-"):
            return None
        return joined(part for word in words for part in (BLANK, word)).slice(1, sum(len(w.plain) + 1 for w in words))
