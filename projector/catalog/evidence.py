"""How well memory and time of measured runs are projected, by mode of the job."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from projector.catalog.facts import Facts, read_mapping

_FILE = Path(__file__).parent / "measured-modes.yaml"
_TIMES = Path(__file__).parent / "measured-times.json"


class MeasuredMode(NamedTuple):
    """One mode that measured runs had."""

    within_percent: float
    """Half of those runs are projected within this."""
    held_runs: int
    """Runs among them that were held back from fitting."""
    sources: tuple[str, ...]
    """Publications that measured them, as the accuracy page names them."""


@cache
def measured_modes() -> Mapping[str, MeasuredMode]:
    """Every mode of which memory was measured, by name."""
    modes = Facts(read_mapping(_FILE), place=_FILE.name).inner("modes")
    return {name: _mode(modes.inner(name)) for name in modes}


def _mode(facts: Facts) -> MeasuredMode:
    mode = MeasuredMode(
        within_percent=facts.required("within_percent", float),
        held_runs=facts.required("held_runs", int),
        sources=facts.texts("rows"),
    )
    facts.finish()
    return mode


class MeasuredTime(NamedTuple):
    """One mode of which iteration time was measured."""

    below_percent: float
    """Measured runs take at most so much less than projected, but for one in forty of those on which constants may be
    fitted."""
    above_percent: float
    """They take at most so much more, likewise."""
    fitted_runs: int
    """Runs on which constants may be fitted; what lies `below` and `above` is theirs."""
    within_percent: float | None
    """Half of the runs that were held back from fitting are projected within this; None where there are none."""
    held_runs: int
    """Runs that were held back from fitting."""
    sources: tuple[str, ...]
    """Publications that measured them, as the accuracy page names them."""

    @property
    def runs(self) -> int:
        """All measured runs."""
        return self.fitted_runs + self.held_runs


@cache
def measured_times() -> Mapping[str, MeasuredTime]:
    """Every mode of which time was measured, by name."""
    modes = Facts(json.loads(_TIMES.read_bytes()), place=_TIMES.name).inner("modes")
    return {name: _time(modes.inner(name)) for name in modes}


def _time(facts: Facts) -> MeasuredTime:
    mode = MeasuredTime(
        below_percent=facts.required("below_percent", float),
        above_percent=facts.required("above_percent", float),
        fitted_runs=facts.required("fitted_runs", int),
        within_percent=facts.optional("within_percent", float),
        held_runs=facts.required("held_runs", int),
        sources=facts.texts("rows"),
    )
    facts.finish()
    return mode
