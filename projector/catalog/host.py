"""What a training framework's work costs the host, by kind, for the usual hosts of the catalog's devices."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import NamedTuple

from projector.catalog.facts import Facts, Provenance, provenance_of, read_mapping
from projector.errors import ConfigurationError

_FILE = Path(__file__).parent / "hosts.yaml"
_MICRO = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class HostCosts:
    """Host seconds of one item of each kind; a GPU that waits for its host takes the sum over a layer's items."""

    name: str
    """`x86`, `x86-rocm` or `grace`."""
    kernel_forward_seconds: float
    """One torch operator that starts one kernel, in the forward pass."""
    kernel_backward_seconds: float
    """The same in the backward pass, from C++."""
    te_linear_forward_seconds: float
    """What a Transformer Engine linear layer adds."""
    te_linear_backward_seconds: float
    """The same in the backward pass."""
    expert_list_forward_seconds: float
    """What a grouped linear layer of Transformer Engine adds per expert, for lists of the experts' tensors."""
    expert_list_backward_seconds: float
    """The same in the backward pass."""
    attention_forward_seconds: float
    """One fused attention call."""
    attention_backward_seconds: float
    """Its backward pass."""
    autograd_function_seconds: float
    """One Python autograd function."""
    collective_seconds: float
    """One collective call."""
    gemm_call_seconds: float
    """One GEMM of a loop over experts, cuBLAS."""
    hipblaslt_call_seconds: float
    """One GEMM of a loop over experts, hipBLASLt with its heuristic query."""
    hook_seconds: float
    """One gradient hook."""
    synchronisation_seconds: float
    """One readback that waits for the device."""
    graph_launch_seconds: float
    """One launch of a CUDA (HIP) graph."""
    provenance: Mapping[str, Provenance] = field(default_factory=dict)
    """Where each field comes from."""


class HostSoftware(NamedTuple):
    """What shortens a host's work, whatever the host."""

    processes_bound: float
    """Time of processes that are bound to the cores beside their GPU, over that of others."""
    transformer_engine: Mapping[tuple[int, ...], float]
    """Time of the Python of Transformer Engine's modules from a version on, over that of earlier versions."""
    provenance: Mapping[str, Provenance] = field(default_factory=dict)
    """Where each comes from."""

    def reaches(self, version: str | None, first: str) -> bool:
        """Whether a version is `first` or a later one; an unknown one is not."""
        return version is not None and _version_of(version) >= _version_of(first)

    def python(self, version: str | None) -> float:
        """Time of the Python of a version of Transformer Engine, such as `2.14.1`; without one, of an early version."""
        if version is None:
            return 1.0
        stated = _version_of(version)
        reached = [first for first in self.transformer_engine if stated >= first]
        return self.transformer_engine[max(reached)] if reached else 1.0


def is_version(text: str) -> bool:
    """Whether a text is a version that `HostSoftware.python` takes: numbers, and whatever follows them."""
    return bool(_version_of(text))


def _version_of(text: str) -> tuple[int, ...]:
    """The numbers of a version, such as (2, 14) of `2.14` or `2.14.dev0`; empty for another text."""
    found = re.match(r"[0-9]{1,4}(\.[0-9]{1,4})+", text)
    return tuple(int(number) for number in found[0].split(".")) if found else ()


@cache
def _content() -> Mapping[str, object]:
    return read_mapping(_FILE)


@cache
def host_software() -> HostSoftware:
    """What shortens a host's work."""
    facts = Facts(_content(), place=_FILE.name).inner("software")
    bound, versions = facts.inner("processes_bound"), facts.inner("transformer_engine")
    times = {version: versions.inner(version) for version in versions}
    provenance = {f"transformer_engine {version}": provenance_of(fact) for version, fact in times.items()}
    return HostSoftware(
        processes_bound=bound.required("value", float),
        transformer_engine={_version_of(version): fact.required("value", float) for version, fact in times.items()},
        provenance={"processes_bound": provenance_of(bound), **provenance},
    )


@cache
def host_costs(name: str) -> HostCosts:
    """Costs of a host. Raises `ConfigurationError` when the catalog does not have it."""
    facts = Facts(_content(), place=_FILE.name).inner("hosts")
    if name not in facts:
        known = ", ".join(facts)
        raise ConfigurationError(f"the host {name!r} is not in the catalog", expected=f"known are {known}")
    host = facts.inner(name)
    if "of" in host:
        return _multiple(name, host)
    values: dict[str, float] = {}
    provenance: dict[str, Provenance] = {}
    for key in host:
        fact = host.inner(key)
        field_name = key.removesuffix("_us") + "_seconds"
        values[field_name] = fact.required("value", float) / _MICRO
        provenance[field_name] = provenance_of(fact)
        fact.finish()
    return HostCosts(name=name, provenance=provenance, **values)


def _multiple(name: str, facts: Facts) -> HostCosts:
    """A host whose items all take so many times as long as those of another."""
    base, fact = host_costs(facts.required("of", str)), facts.inner("times")
    times = fact.required("value", float)
    items = {item.name: times * getattr(base, item.name) for item in fields(base) if item.name.endswith("_seconds")}
    found = HostCosts(name=name, provenance=dict.fromkeys(items, provenance_of(fact)), **items)
    fact.finish()
    facts.finish()
    return found
