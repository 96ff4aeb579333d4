"""What the GEMM model origami needs to know of a compiler target: `origami.yaml`."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from projector.catalog.facts import Facts, read_mapping
from projector.errors import ConfigurationError

_FILE = Path(__file__).with_name("origami.yaml")


@dataclass(frozen=True, kw_only=True, slots=True)
class OrigamiTarget:
    """A compiler target that origami knows."""

    lds_bytes: int
    """Local data share of a compute unit."""
    l2_bytes: int
    """L2 cache of one accelerator die."""
    shapes: tuple[tuple[int, int, int], ...]
    """Products (m, n, k) over which its rate is set to the device's."""
    source: str
    """Where those products come from."""


@cache
def origami_targets() -> dict[str, OrigamiTarget]:
    """By compiler target, such as gfx942."""
    facts = Facts(read_mapping(_FILE), place=_FILE.name)
    facts.required("source", str)
    targets, references = facts.inner("architectures"), facts.inner("references")
    facts.finish()
    return {name: _target(targets.inner(name), references) for name in targets}


def _target(facts: Facts, references: Facts) -> OrigamiTarget:
    facts.required("source", str)
    reference = references.inner(facts.required("reference", str))
    shapes = reference.raw("shapes")
    if not isinstance(shapes, list):
        raise ConfigurationError(f"{shapes!r}", place=f"{reference.place}.shapes", expected="expected a list of shapes")
    target = OrigamiTarget(
        lds_bytes=facts.required("lds_kib", int) * 2**10,
        l2_bytes=facts.required("l2_mib", int) * 2**20,
        shapes=tuple((m, n, k) for m, n, k in shapes),
        source=reference.required("source", str),
    )
    facts.finish()
    return target
