"""`name=value`, `name+=(...)` and their like, and what `export`, `declare` and `local` make of them."""

from dataclasses import replace

from projector.config.shell.expansion import Expander
from projector.config.shell.parameters import array_key
from projector.config.shell.state import Changes, Reference, State
from projector.config.shell.syntax import Assignment, RawWord, Simple
from projector.config.shell.values import EMPTY, Array, Text, Undecided, Unset, Value, joined, unresolved

_CONVERTING = frozenset("iul")
"""Attributes of `declare` that change what a variable holds."""


class Assigner:
    """Assigns in a state."""

    def __init__(self, expander: Expander) -> None:
        """Expand values with this."""
        self._expander = expander
        self._state: State = expander.state

    def value(self, assignment: Assignment) -> Value:
        """What the variable will hold."""
        held = self._state.look(assignment.name)
        if held is None and (assignment.append or assignment.subscript is not None):
            self._state.presume_unset((assignment.name,))
        if assignment.elements is not None:
            return self._array(assignment, held)
        text = self._expander.text(assignment.value.parts)
        if assignment.subscript is not None:
            return self._with_element(assignment, held, text)
        if isinstance(held, Array):
            first = held.elements.get(0, EMPTY)
            return replace(held, elements={**held.elements, 0: joined((first, text)) if assignment.append else text})
        if not assignment.append:
            return text
        return joined((self._rest(assignment.name, held), text))

    @staticmethod
    def _rest(name: str, held: Value | None) -> Text:
        """The text to which something is appended."""
        if isinstance(held, Text):
            return held
        return unresolved(f"${{{name}}}", (name,)) if isinstance(held, Undecided) else EMPTY

    def _array(self, assignment: Assignment, held: Value | None) -> Value:
        """An array of the listed elements, after those it has when they are appended."""
        associative = isinstance(held, Array) and held.associative
        elements: dict[int | str, Text] = {}
        if assignment.append and isinstance(held, Array):
            elements = dict(held.elements)
        elif assignment.append and held is not None and not isinstance(held, Unset):
            elements[0] = self._rest(assignment.name, held)
        following = max((key for key in elements if isinstance(key, int)), default=-1) + 1
        for subscript, raw in assignment.elements or ():
            if subscript is None:
                for word in self._expander.words(raw):
                    elements[following] = word
                    following += 1
                continue
            key = self._key(self._expander.text(subscript, quoted=True), associative=associative)
            if key is None:
                return Undecided()
            elements[key] = self._expander.text(raw.parts)
            following = key + 1 if isinstance(key, int) else following
        return Array(elements=elements if associative else _sorted(elements), associative=associative)

    def _with_element(self, assignment: Assignment, held: Value | None, text: Text) -> Value:
        """The array with one element changed."""
        associative = isinstance(held, Array) and held.associative
        key = self._key(self._expander.text(assignment.subscript or (), quoted=True), associative=associative)
        if key is None or isinstance(held, Undecided):
            return Undecided()
        elements: dict[int | str, Text] = {0: held} if isinstance(held, Text) else {}
        if isinstance(held, Array):
            elements = dict(held.elements)
        elements[key] = joined((elements.get(key, EMPTY), text)) if assignment.append else text
        return Array(elements=elements if associative else _sorted(elements), associative=associative)

    def _key(self, subscript: Text, *, associative: bool) -> int | str | None:
        key = array_key(subscript, self._state, self._expander, associative=associative)
        return None if isinstance(key, int) and key < 0 else key

    # export, declare, local ------------------------------------------------------------------------

    def declare(self, node: Simple, frame: Changes | None) -> bool:
        """Do what a declaration says; false when it names a variable that is not known.

        `frame` holds what the local variables of the function around it held outside; None outside of any.
        """
        command = node.words[0].plain if isinstance(node.words[0], RawWord) else None
        options = "x" if command == "export" else ""
        understood = True
        local = frame if command in {"local", "declare", "typeset"} else None
        for argument in node.words[1:]:
            if isinstance(argument, Assignment):
                self._declared(argument.name, options, local, assignment=argument)
                continue
            for word in self._expander.words(argument):
                name, stated, _ = word.plain.partition("=")
                if word.plain.startswith(("-", "+")):
                    options += word.plain[1:] if word.plain[0] == "-" else ""
                elif not name.isidentifier() or not word.slice(0, len(name)).known:
                    understood = False
                else:
                    value = word.slice(len(name) + 1, len(word.plain)) if stated else None
                    self._declared(name, options, local, value=value)
        return understood

    def _declared(
        self,
        name: str,
        options: str,
        frame: Changes | None,
        *,
        assignment: Assignment | None = None,
        value: Value | None = None,
    ) -> None:
        if "f" in options or "p" in options:
            return
        # The value of a local variable may be made of the outer one of its name.
        first = assignment is not None and not assignment.append and "A" not in options
        value = self.value(assignment) if assignment is not None and first else value
        if frame is not None and "g" not in options and name not in frame:
            frame[name] = self._state.raw(name)
            self._state.set(name, Unset(), itself=True)
        if "A" in options and not isinstance(self._state.look(name), Array):
            self._state.set(name, Array(elements={}, associative=True))
        if assignment is not None and not first:
            value = self.value(assignment)
        if value is not None and "n" in options:
            self._refer(name, value)
        elif value is not None:
            self._state.set(name, value)
            if _CONVERTING & set(options):
                self._state.set_undecided(name, f"its attributes, -{options}, change its value")
        if "x" in options:
            self._state.exported.add(name)

    def _refer(self, name: str, value: Value) -> None:
        """Let a variable stand for the one that is named."""
        target = value.plain if isinstance(value, Text) and value.known else ""
        if target.isidentifier() and target != name:
            self._state.set(name, Reference(target), itself=True)
        else:
            self._state.set_undecided(name, "it stands for another variable that is not known")


def _sorted(elements: dict[int | str, Text]) -> dict[int | str, Text]:
    return dict(sorted(elements.items(), key=lambda item: int(item[0])))
