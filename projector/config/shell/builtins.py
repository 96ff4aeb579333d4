"""Commands of the shell itself that change variables: `unset`, `set`, `shift`, `let`, `read` and their like."""

from collections.abc import Callable, Mapping, Sequence

from projector.config.shell.arithmetic import Indefinite, changed_names
from projector.config.shell.conditions import NO, UNKNOWN, YES, Truth
from projector.config.shell.expansion import Expander
from projector.config.shell.limits import Budget
from projector.config.shell.state import POSITIONAL, Numbers, State
from projector.config.shell.syntax import HereDocument, RawWord
from projector.config.shell.values import Array, Text, Unset

Read = HereDocument | RawWord | None
"""The here-document or here-string at a command's input."""


class Builtins:
    """Runs them in a state."""

    def __init__(self, expander: Expander) -> None:
        """Work on the expander's state."""
        self._expander = expander
        self._state: State = expander.state
        self._budget: Budget = expander.budget
        self.commands: Mapping[str, Callable[[Sequence[Text], Read], Truth]] = {
            ":": lambda _words, _reads: YES,
            "true": lambda _words, _reads: YES,
            "false": lambda _words, _reads: NO,
            "unset": self._unset,
            "set": self._set,
            "shift": self._shift,
            "let": self._let,
            "read": self._read,
            "mapfile": self._names_alone,
            "readarray": self._names_alone,
            "getopts": self._names_alone,
        }

    def _unset(self, words: Sequence[Text], _reads: Read) -> Truth:
        for word in words:
            if word.known and word.plain.isidentifier():
                self._state.set(word.plain, Unset())
        return YES

    def _set(self, words: Sequence[Text], _reads: Read) -> Truth:
        """`set -- words`; options of the shell change nothing here, except that `-a` exports."""
        plain = [word.plain for word in words]
        if "--" in plain:
            self.set_arguments(words[plain.index("--") + 1 :])
        elif words and not plain[0].startswith(("-", "+")):
            self.set_arguments(words)
        self._state.exports_all = self._state.exports_all or plain[:1] == ["-a"] or plain[:2] == ["-o", "allexport"]
        return YES

    def set_arguments(self, words: Sequence[Text]) -> None:
        """Make words the positional parameters."""
        self._state.set(POSITIONAL, Array(elements=dict(enumerate(words, start=1))))

    def _shift(self, words: Sequence[Text], _reads: Read) -> Truth:
        arguments = self._state.look(POSITIONAL)
        count = words[0].plain if words else "1"
        if not isinstance(arguments, Array) or not count.isdecimal():
            return UNKNOWN
        self.set_arguments(list(arguments.elements.values())[int(count[:6]) :])
        return YES

    def _let(self, words: Sequence[Text], _reads: Read) -> Truth:
        truth = NO
        for word in words:
            truth = self.calculated(word)
        return truth

    def calculated(self, expression: Text) -> Truth:
        """`((expression))`: whether its value is not zero."""
        if expression.known:
            try:
                return Truth(value=Numbers(self._state, self._budget).value(expression.plain).plain != "0")
            except Indefinite:
                pass
        for name in changed_names(expression.plain):
            self._state.set_undecided(name, f"{expression.plain.strip()} has no value that is known")
        return UNKNOWN

    def _names_alone(self, words: Sequence[Text], _reads: Read) -> Truth:
        """Commands that fill variables from what is not known."""
        for word in words:
            if word.known and word.plain.isidentifier():
                self._state.set_undecided(word.plain, "is read from an input that is not known")
        return UNKNOWN

    def _read(self, words: Sequence[Text], reads: Read) -> Truth:
        """`read name...`: known from a here-string, or with `-d ''` from a here-document."""
        plain = [word.plain for word in words]
        names = [word for word in plain if word.isidentifier()]
        options = "".join(word[1:] for word in plain if word.startswith("-"))
        text = self._input(reads) if reads is not None and not set(options) - set("rda") else None
        if text is None or not text.known:
            return self._names_alone(words, reads)
        if isinstance(reads, HereDocument) and "d" not in options:
            text = text.slice(0, (text.plain + "\n").index("\n"))
        if "a" in options and names:
            fields = self._expander.split_words(text)
            self._state.set(names[0], Array(elements=dict(enumerate(fields))))
        elif len(names) == 1:
            left = len(text.plain) - len(text.plain.lstrip(" \t\n"))
            self._state.set(names[0], text.slice(left, max(left, len(text.plain.rstrip(" \t\n")))))
        else:
            fields = self._expander.split_words(text)
            if len(fields) > len(names):
                return self._names_alone(words, reads)
            for index, name in enumerate(names):
                self._state.set(name, fields[index] if index < len(fields) else Text())
        return Truth(value="d" not in options)

    def _input(self, reads: Read) -> Text | None:
        if isinstance(reads, HereDocument):
            return self._expander.document(reads)
        return None if reads is None else self._expander.text(reads.parts)
