"""Suggestions for a name that is not known."""

from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], *, count: int = 3) -> str:
    """`did you mean A, B or C?`, or the number of known names when none is near."""
    from difflib import get_close_matches  # noqa: PLC0415 - for complaints alone

    names = sorted(set(known))
    folded = {candidate.lower(): candidate for candidate in names}
    matches = [folded[match] for match in get_close_matches(name.lower(), folded, n=count, cutoff=0.6)]
    if not matches:
        return f"one of {', '.join(names)}" if 0 < len(names) <= 12 else f"one of {len(names)} known names"  # noqa: PLR2004 - a line
    if len(matches) == 1:
        return f"did you mean {matches[0]}?"
    return f"did you mean {', '.join(matches[:-1])} or {matches[-1]}?"
