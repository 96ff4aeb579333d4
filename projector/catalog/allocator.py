"""What torch's caching allocator reserves beyond what is allocated, by GPU vendor."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

from projector.catalog.facts import Facts, Provenance, provenance_of, read_mapping

_FILE = Path(__file__).parent / "frameworks" / "caching-allocator.yaml"


class ReservedRatio(NamedTuple):
    """Reserved over allocated memory at the peak of a training run."""

    expected: float
    """Most likely value."""
    lower: float
    """Lower end."""
    upper: float
    """Upper end."""
    replayed_below: float
    """Share of allocated memory by which runs stay below a replay of their allocations."""
    replayed_above: float
    """Share by which they lie above it."""
    interleaved_upper: float
    """Upper end where model chunks interleave."""
    expandable_since: str | None
    """First version of torch that honours `expandable_segments` on these GPUs; None where all do that are in use."""
    provenance: Provenance
    """Where it comes from."""


@cache
def reserved_ratio(vendor: str) -> ReservedRatio:
    """Figures of a vendor's GPUs. Raises `ConfigurationError` when the catalog has none."""
    facts = Facts(read_mapping(_FILE), place=_FILE.name).inner(vendor)
    ratio = ReservedRatio(
        expected=facts.required("ratio", float),
        lower=facts.required("lower", float),
        upper=facts.required("upper", float),
        replayed_below=facts.required("replayed_below", float),
        replayed_above=facts.required("replayed_above", float),
        interleaved_upper=facts.required("interleaved_upper", float),
        expandable_since=facts.optional("expandable_since", str),
        provenance=provenance_of(facts),
    )
    facts.finish()
    return ratio
