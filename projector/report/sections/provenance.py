"""What to know beside the figures: warnings, suggestions, and what the answer rests on."""

from collections.abc import Iterator, Mapping, Sequence

from projector.projection import Projection
from projector.report.table import heading, paragraph
from projector.report.units import duration, gib


def sections(projection: Projection) -> Iterator[str]:
    """One section for each that has something to say."""
    suggestions = [
        f"{each.change}: {gib(each.memory_bytes)}, {each.verdict}"
        + ("" if each.iteration_seconds is None else f", {duration(each.iteration_seconds)} per iteration")
        for each in projection.suggestions
    ]
    unmodelled = [
        f"{each.what} ({each.where}): {each.effect}{'; without it nothing is said to fit' if each.decides else ''}"
        for each in projection.unmodelled
    ]
    assumed = [f"{each.what}: {each.why}" for each in projection.assumed]
    warnings = () if projection.performance is None else projection.performance.warnings
    yield from lists({"Warnings": warnings, "Suggestions": suggestions, "Not modelled": unmodelled, "Assumed": assumed})
    yield from without_influence(projection.ignored)


def lists(told: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A section for each title that has something to say."""
    for title, items in told.items():
        if items:
            yield "\n".join([heading(title), *(paragraph(item, first="- ", indent="  ") for item in items)])


def without_influence(ignored: Sequence[str]) -> Iterator[str]:
    """The section of what changes nothing, if there is something."""
    if ignored:
        yield f"{heading('Without influence')}\n{paragraph(', '.join(ignored))}"
