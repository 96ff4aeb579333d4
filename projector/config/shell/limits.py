"""Bounds on what reading one script may cost, whatever its text says."""

from collections.abc import Iterator
from contextlib import contextmanager

from projector.errors import ConfigurationTooLarge

MAXIMUM_SCRIPT_CHARACTERS = 256 * 1024
"""Length of a script; real ones have less than a tenth of it."""
MAXIMUM_WORK = 1_500_000
"""Characters and elements that all expansions together may make, each command and each word counting as some."""
WORD_WORK = 60
"""What a word counts for beside its characters, and a command beside its words."""
ELEMENT_WORK = 8
"""What one of many words or elements made at once counts for beside its characters, and a word for being parsed."""
PARSING_WORK = 40
"""What a command counts for when it is parsed."""
MAXIMUM_DEPTH = 40
"""Nesting of quotes, substitutions, compound commands, function calls and `eval` together."""
MAXIMUM_ITERATIONS = 200
"""Iterations of a loop that are followed one by one."""


class Budget:
    """What is left to spend on one script."""

    def __init__(self, name: str) -> None:
        """`name` is what messages call the script."""
        self._name = name
        self._left = MAXIMUM_WORK
        self._depth = 0

    def spend(self, amount: int) -> None:
        """Count work done; raises `ConfigurationTooLarge` when it was too much."""
        self._left -= amount
        if self._left < 0:
            raise ConfigurationTooLarge("the script expands to too much", place=self._name, expected="a simpler script")

    @contextmanager
    def deeper(self) -> Iterator[None]:
        """One level of nesting; raises `ConfigurationTooLarge` beyond `MAXIMUM_DEPTH`."""
        if self._depth >= MAXIMUM_DEPTH:
            message = f"nested deeper than {MAXIMUM_DEPTH} levels"
            raise ConfigurationTooLarge(message, place=self._name, expected="a simpler script")
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
