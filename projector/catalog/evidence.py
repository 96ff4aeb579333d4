"""How well memory of measured runs is projected, by mode of the job."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from projector.catalog.facts import Facts, read_mapping

_FILE = Path(__file__).parent / "measured-modes.yaml"


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
