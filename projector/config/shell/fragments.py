"""Parts of words between expansion and word splitting."""

from dataclasses import dataclass

from projector.config.shell.values import Text


@dataclass(frozen=True, kw_only=True, slots=True)
class Fragment:
    """Part of a word after expansion, before splitting."""

    text: Text
    """What it expands to."""
    quoted: bool
    """Whether quotes protect it; a quoted fragment makes a word even when empty."""
    splits: bool
    """Whether blanks in it separate words."""


BREAK = None
"""Stands between fragments of different words, as between the elements of `"${a[@]}"`."""
Fragments = list[Fragment | None]
