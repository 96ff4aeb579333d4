"""What a training framework's work costs the host, by kind, for the usual hosts of the catalog's devices."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path

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
    provenance: Mapping[str, Provenance] = field(default_factory=dict)
    """Where each field comes from."""


@cache
def host_costs(name: str) -> HostCosts:
    """Costs of a host. Raises `ConfigurationError` when the catalog does not have it."""
    facts = Facts(read_mapping(_FILE), place=_FILE.name)
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
