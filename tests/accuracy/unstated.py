"""What decides the time of a run and its row does not print."""

from collections.abc import Iterator

from projector.performance import Unstated
from tests.accuracy.rows import Row


def unstated(row: Row) -> tuple[Unstated, ...]:
    """The inputs that the projection of a row has to leave open."""
    return tuple(_unstated(row))


def _unstated(row: Row) -> Iterator[Unstated]:
    chunks = row.parallel.get("vpp", "unprinted" if "interleaved" in str(row.parallel.get("schedule")) else 1)
    if isinstance(chunks, str) and not chunks.startswith("max") and row.parallel.get("pp", 1) > 1:
        yield Unstated.VIRTUAL_STAGES
    # Primus's scripts are public, and name a dispatcher where it is not Megatron-LM's all-to-all.
    if "primus" in row.framework.lower():
        return
    experts = row.model.get("moe")
    if experts and row.parallel.get("ep", 1) > 1 and "dispatcher" not in experts:
        said = " ".join(str(row.train.get(key, "")) for key in ("moe_dispatch", "extra", "features", "flags")).lower()
        if not any(word in said for word in ("deepep", "hybridep", "alltoall", "all-to-all", "dispatcher")):
            yield Unstated.DISPATCHER
