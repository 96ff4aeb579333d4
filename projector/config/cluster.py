"""How many devices a run has, as far as its launcher, its degrees or its record say."""

from dataclasses import dataclass, replace

from projector.config.notes import Notes
from projector.job import DEFAULT_DEVICES_PER_NODE
from projector.provenance import Assumption


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """What is stated of the devices."""

    nodes: int | None = None
    """Hosts."""
    devices_per_node: int | None = None
    """Processes, hence GPUs, of a host."""
    unknown: tuple[str, ...] = ()
    """What is stated and cannot be resolved, such as `--nnodes ${WORLD_SIZE} (line 12)`."""

    assumed: tuple[Assumption, ...] = ()
    """What the counts above rest on beside what is stated."""

    @property
    def hint(self) -> str:
        """Why something is open although it is stated, for whoever has to assume it; empty when nothing is."""
        return f"{' and '.join(self.unknown)} cannot be resolved" if self.unknown else ""


def of_devices(devices: int | None, notes: Notes, *, why: str, stated: Cluster | None = None) -> Cluster:
    """The cluster of a run on `devices` GPUs in all, where `stated` leaves it open.

    Full hosts are assumed where nothing says how many GPUs one has, and noted with the reason `why`.
    """
    known = stated or Cluster()
    if devices is None or (known.nodes and known.devices_per_node):
        return known
    if known.nodes:
        per_node = devices // known.nodes
        return replace(known, devices_per_node=per_node) if per_node * known.nodes == devices else known
    per_node = known.devices_per_node or min(devices, DEFAULT_DEVICES_PER_NODE)
    if devices % per_node:
        return known
    if not known.devices_per_node:
        notes.assume(f"{devices} GPUs, {per_node} a host", why)
    return replace(known, nodes=devices // per_node, devices_per_node=per_node)
