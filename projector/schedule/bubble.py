"""Whether a run has enough micro batches for its pipeline stages, and how many would be enough."""

from math import ceil
from typing import NamedTuple

from projector.projection import ScheduleResult

ENOUGH_PER_STAGE = 4
"""Micro batches per stage from which the bubble was found negligible (GPipe, arXiv 1811.06965, section 2.3)."""
_ROUNDING = 1e-6
"""Share of a micro batch that is a rounding error and no further one."""
BUBBLE_TARGET = 0.10
"""Share of the pipeline phase spent waiting that a warning aims at."""


class TooFew(NamedTuple):
    """A pipeline that waits for want of micro batches."""

    micro_batches: int
    """Micro batches of a run."""
    stages: int
    """Pipeline stages."""
    bubble_ratio: float
    """Share of the pipeline phase spent waiting, on average over stages, 0-1."""
    enough: int | None
    """About how many would bring it to `BUBBLE_TARGET`; None where none would, because stages are uneven."""

    def told(self, meaning: str = "") -> str:
        """The warning, in words; `meaning` says what so many micro batches would take."""
        some = f"{self.micro_batches:,} micro batch{'es' if self.micro_batches > 1 else ''}"
        share = f"{self.bubble_ratio * 100:.1f} % of the pipeline phase is waiting"
        text = f"{some} for {self.stages} pipeline stages: {share}"
        if self.enough is None:
            return f"{text}; more would help, but uneven stages keep it above {BUBBLE_TARGET * 100:.0f} %"
        with_ = f" ({meaning})" if meaning else ""
        return f"{text}; about {self.enough:,} micro batches{with_} would bring it to {BUBBLE_TARGET * 100:.0f} %"


def too_few_micro_batches(result: ScheduleResult) -> TooFew | None:
    """What is wrong with the number of micro batches; None where nothing is."""
    phase, ratio = result.phase, result.bubble_ratio
    if phase.micro_batches >= ENOUGH_PER_STAGE * phase.stages or ratio <= BUBBLE_TARGET:
        return None
    return TooFew(micro_batches=phase.micro_batches, stages=phase.stages, bubble_ratio=ratio, enough=_enough(result))


def _enough(result: ScheduleResult) -> int | None:
    """Micro batches that bring the bubble to `BUBBLE_TARGET`, in whole groups.

    Once the pipeline is full, each further micro batch takes as long as the busiest stage works on it.
    """
    phase = result.phase
    count = phase.micro_batches * phase.runs
    works = [(stage.busy_seconds + stage.sending_seconds) / count for stage in result.stages]
    pace, average = max(works), sum(works) / len(works)
    filling = result.seconds / phase.runs - pace * phase.micro_batches
    gain = average - (1 - BUBBLE_TARGET) * pace
    if gain <= 0:
        return None
    group = 1 if phase.chunks_per_stage == 1 else phase.group or phase.stages
    return ceil((1 - BUBBLE_TARGET) * filling / gain / group - _ROUNDING) * group
