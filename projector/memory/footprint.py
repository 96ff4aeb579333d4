"""What a model chunk keeps for one micro batch, and how far a pass through it rises above that.

Operations are replayed in order: forward adds what each keeps and touches its scratch; backward runs the list in
reverse, brings back what recomputation dropped, touches scratch and frees. Distinct layers are replayed once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from projector.layers import is_recomputed
from projector.operations import Operation

LOSS = "loss"
"""Component whose saved tensors no weight gradient reads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PassPeak:
    """The highest moment of a pass, relative to the moment before the micro batch entered."""

    size_bytes: int = 0
    """Everything of this micro batch that is alive."""
    kept: Mapping[str, int] = field(default_factory=dict)
    """Of it, activations kept for backward, by component; the rest are transients."""
    operation: str = ""
    """The operation that runs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Footprint:
    """Bytes of one micro batch in a part of a chunk."""

    saved: int
    """Kept from the end of forward until backward."""
    kept: Mapping[str, int]
    """The same, by component."""
    forward: PassPeak
    """Highest moment of the forward pass, what it keeps included."""
    backward: PassPeak
    """Highest moment of the backward pass, what was kept included."""

    @property
    def kept_for_weights(self) -> Mapping[str, int]:
        """What stays, by component, from the input gradient to a weight gradient that a schedule delays.

        The loss has no weights and is done with. In a layer the output gradients of its linear operations, which wait
        too, take the place of what the input gradient frees: with a gated block both are query + 2 key + 2 hidden +
        2 ffn elements a token.
        """
        return {name: size for name, size in self.kept.items() if name != LOSS}


def summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sizes by component, added up."""
    total: dict[str, int] = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total


def layer_footprint(operations: Sequence[Operation], modules: frozenset[str]) -> Footprint:
    """Footprint of a list of operations under selective recomputation of `modules`."""
    shares = [_shares(operation, modules) for operation in operations]
    kept = [stays for stays, _ in shares]
    live = highest = at = 0
    for index, (operation, (stays, goes)) in enumerate(zip(operations, shares, strict=True)):
        during = live + stays + goes + operation.scratch_forward_bytes
        if during > highest:
            highest, at = during, index
        live += stays
    return Footprint(
        saved=live,
        kept=_by_component(operations, kept),
        forward=_peak(highest, at, operations, kept),
        backward=_backward(operations, shares, modules),
    )


def _shares(operation: Operation, modules: frozenset[str]) -> tuple[int, int]:
    """Bytes that stay until backward, and bytes that recomputation brings back."""
    total = sum(tensor.size_bytes for tensor in operation.saves)
    if not is_recomputed(operation, modules):
        return total, 0
    stays = sum(tensor.size_bytes for tensor in operation.saves if tensor.checkpoint)
    return stays, total - stays


def _by_component(operations: Sequence[Operation], kept: Sequence[int]) -> dict[str, int]:
    return summed({operation.component: size} for operation, size in zip(operations, kept, strict=True) if size)


def _peak(size: int, at: int, operations: Sequence[Operation], kept: Sequence[int]) -> PassPeak:
    """The peak at operation `at`, when what it and those before it keep is alive."""
    if not operations:
        return PassPeak()
    return PassPeak(
        size_bytes=size,
        kept=_by_component(operations[: at + 1], kept[: at + 1]),
        operation=operations[at].name,
    )


def _backward(operations: Sequence[Operation], shares: Sequence[tuple[int, int]], modules: frozenset[str]) -> PassPeak:
    kept = [stays for stays, _ in shares]
    live = sum(kept)
    highest, at = -1, 0
    restored: str | None = None
    for index in range(len(operations) - 1, -1, -1):
        operation = operations[index]
        module = operation.recompute_module if is_recomputed(operation, modules) else None
        if module is not None and module != restored:
            live += sum(
                goes
                for other, (_, goes) in zip(operations[: index + 1], shares, strict=False)
                if other.recompute_module == module
            )
            restored = module
        during = live + operation.scratch_backward_bytes
        if during > highest:
            highest, at = during, index
        live -= sum(shares[index])
    return _peak(highest, at, operations, kept)


def recomputed(
    whole: Footprint, input_bytes: int, component: str, outputs: Mapping[str, int] = MappingProxyType({})
) -> Footprint:
    """Footprint of layers that keep their input, and perhaps some `outputs` by component, and run again in backward.

    While they run again the gradient of their output waits, which is as large as the input. Kept outputs take the place
    of what would be computed again.
    """
    stays = summed(({component: input_bytes}, outputs))
    saved = sum(stays.values())
    again, back = whole.forward.size_bytes + input_bytes, whole.backward
    higher = whole.forward if again > back.size_bytes else back
    return Footprint(
        saved=saved,
        kept=stays,
        forward=PassPeak(
            size_bytes=saved + max(whole.forward.size_bytes - whole.saved, 0),
            kept=stays,
            operation=whole.forward.operation,
        ),
        backward=PassPeak(
            size_bytes=max(again, back.size_bytes, saved + input_bytes),
            kept=higher.kept,
            operation=f"{higher.operation} after recomputation",
        ),
    )


def joined(parts: Sequence[Footprint]) -> Footprint:
    """Footprint of parts that run one after the other."""
    before = [0]
    for part in parts:
        before.append(before[-1] + part.saved)

    def highest(passes: Sequence[PassPeak]) -> PassPeak:
        sizes = [base + each.size_bytes for base, each in zip(before, passes, strict=False)]
        at = max(range(len(sizes)), key=sizes.__getitem__)
        earlier = summed(part.kept for part in parts[:at])
        return PassPeak(size_bytes=sizes[at], kept=summed((earlier, passes[at].kept)), operation=passes[at].operation)

    return Footprint(
        saved=before[-1],
        kept=summed(part.kept for part in parts),
        forward=highest([part.forward for part in parts]),
        backward=highest([part.backward for part in parts]),
    )
