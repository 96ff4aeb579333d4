"""What the answer rests on: assumed, not modelled, ignored, suggested."""

from collections.abc import Iterator

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
    for title, items in (("Suggestions", suggestions), ("Not modelled", unmodelled), ("Assumed", assumed)):
        if items:
            yield "\n".join([heading(title), *(paragraph(item, first="- ", indent="  ") for item in items)])
    if projection.ignored:
        yield f"{heading('Without influence')}\n{paragraph(', '.join(projection.ignored))}"
