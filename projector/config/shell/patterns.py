"""Glob patterns of `case`, `[[ == ]]` and `${name%pattern}`: `*`, `?` and `[...]`, matched without backtracking."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from projector.config.shell.limits import Budget

_SET = re.compile(r"\[([!^]?)(\]?[^\]]*)\]")
_EXTENDED = re.compile(r"[?*+@!]\(")


class PatternUnknown(Exception):  # noqa: N818 - an answer, which the caller turns into an unresolved text
    """The pattern is of a kind that is not read: an extended glob or a character class by name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _One:
    """One character: any, or one in a set."""

    characters: str | None
    """None for any."""
    excluded: bool = False

    def accepts(self, character: str) -> bool:
        return self.characters is None or (character in self.characters) != self.excluded


_MANY = "*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pattern:
    """A compiled pattern."""

    steps: tuple[_One | str, ...]
    """What has to match one after the other: single characters, and `*` for any number of any."""

    @staticmethod
    def of(parts: Sequence[tuple[str, bool]]) -> "Pattern":
        """From texts, each with whether it is quoted and so stands for itself; raises `PatternUnknown`."""
        steps: list[_One | str] = []
        for text, quoted in parts:
            if quoted:
                steps.extend(_One(characters=character) for character in text)
            else:
                steps.extend(_steps(text))
        return Pattern(steps=tuple(steps))

    def matches(self, text: str, budget: Budget) -> bool:
        """Whether the whole text matches."""
        return any(end == len(text) for end in self.ends(text, 0, budget))

    def ends(self, text: str, start: int, budget: Budget) -> Iterator[int]:
        """Every place up to which the text from `start` matches, nearest first."""
        states = self._with_empty_matches({0})
        for position in range(start, len(text) + 1):
            if len(self.steps) in states:
                yield position
            if position == len(text) or not states:
                return
            budget.spend(len(states))
            character = text[position]
            following = set()
            for state in states:
                if state < len(self.steps):
                    step = self.steps[state]
                    if isinstance(step, str):
                        following.add(state)
                    elif step.accepts(character):
                        following.add(state + 1)
            states = self._with_empty_matches(following)

    def _with_empty_matches(self, states: set[int]) -> set[int]:
        """The states, and those that a `*` that matches nothing leads to."""
        found = set()
        for state in states:
            at = state
            found.add(at)
            while at < len(self.steps) and self.steps[at] == _MANY:
                at += 1
                found.add(at)
        return found

    def reversed(self) -> "Pattern":
        """The pattern that matches texts written backwards."""
        return Pattern(steps=self.steps[::-1])


def _steps(text: str) -> Iterator[_One | str]:
    if _EXTENDED.search(text):
        raise PatternUnknown
    # Behind the last bracket that closes, an opening one is a character; searching on takes time that grows squarely.
    last = text.rfind("]")
    position = 0
    while position < len(text):
        character = text[position]
        found = _SET.match(text, position) if character == "[" and position < last else None
        if found:
            yield _set(found.group(2), excluded=bool(found.group(1)))
            position = found.end()
            continue
        if character != "*":
            yield _One(characters=None if character == "?" else character)
        elif text[position - 1 : position] != "*":
            yield _MANY
        position += 1


def _set(inside: str, *, excluded: bool) -> _One:
    """`[a-z_]`."""
    if any(name in inside for name in ("[:", "[.", "[=")):
        raise PatternUnknown
    characters, position = "", 0
    while position < len(inside):
        first, last = inside[position], inside[position + 2 : position + 3]
        if inside[position + 1 : position + 2] == "-" and last:
            if not (first.isascii() and last.isascii()):
                raise PatternUnknown
            characters += "".join(map(chr, range(ord(first), ord(last) + 1)))
            position += 3
        else:
            characters += first
            position += 1
    return _One(characters=characters, excluded=excluded)


def removed(text: str, operator: str, pattern: Pattern, budget: Budget) -> tuple[int, int]:
    """What is left of the text by `#`, `##`, `%` or `%%`, as start and end."""
    if operator[0] == "%":
        start, end = removed(text[::-1], operator.replace("%", "#"), pattern.reversed(), budget)
        return len(text) - end, len(text) - start
    ends = pattern.ends(text, 0, budget)
    taken = next(ends, 0) if operator == "#" else max(ends, default=0)
    return taken, len(text)


def occurrences(text: str, operator: str, pattern: Pattern, budget: Budget) -> list[tuple[int, int]]:
    """Where `/`, `//`, `/#` or `/%` finds the pattern, longest first."""
    if operator == "/%":
        ends = max(pattern.reversed().ends(text[::-1], 0, budget), default=None)
        return [] if ends is None else [(len(text) - ends, len(text))]
    found = []
    start = 0
    while start <= len(text):
        budget.spend(1)
        end = max(pattern.ends(text, start, budget), default=None)
        # Nothing is found only in an empty text, or where the pattern is bound to the begin.
        if end is not None and (end > start or operator == "/#" or not text):
            found.append((start, end))
        if operator == "/#" or (found and operator == "/"):
            break
        start = end if end is not None and end > start else start + 1
    return found
