"""What a model chunk keeps for one micro batch, and how far a pass through it rises above that.

Operations are replayed in order: forward adds what each keeps and touches its scratch; backward runs the list in
reverse, brings back what recomputation dropped, touches scratch and frees. Distinct layers are replayed once.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from projector.identity import remembered
from projector.layers import is_recomputed
from projector.memory.delayed import waiting_gradients, waiting_inputs
from projector.operations import Collective, Group, Operation, Operations

LOSS = "loss"
"""Component whose saved tensors no weight gradient reads."""

Shares = tuple[tuple[int, "Mapping[str, int] | Shares"], ...]
"""Sizes by component, or shares of parts, each so many times. Added up only where somebody asks: most chunks are not at
the peak."""


@dataclass(frozen=True, kw_only=True)
class PassPeak:
    """The highest moment of a pass, relative to the moment before the micro batch entered."""

    # Without slots, so that shares are added up once.

    size_bytes: int = 0
    """Everything of this micro batch that is alive."""
    shares: Shares = ()
    """Of it, activations kept for backward; the rest are transients."""
    operation: str = ""
    """The operation that runs."""

    @cached_property
    def kept(self) -> Mapping[str, int]:
        """Activations kept for backward, by component."""
        return added_up(self.shares)


@dataclass(frozen=True, kw_only=True)
class Footprint:
    """Bytes of one micro batch in a part of a chunk."""

    # Likewise.

    saved: int
    """Kept from the end of forward until backward."""
    shares: Shares
    """What is saved."""
    waiting: Shares
    """What stays, or is put aside, from the input gradient to a weight gradient that a schedule delays."""
    output_gradients: Shares
    """Of it, gradients, which the backward pass makes."""
    forward: PassPeak
    """Highest moment of the forward pass, what it keeps included."""
    backward: PassPeak
    """Highest moment of the backward pass, what was kept included."""

    @cached_property
    def kept(self) -> Mapping[str, int]:
        """What is saved, by component."""
        return added_up(self.shares)

    @cached_property
    def kept_for_weights(self) -> Mapping[str, int]:
        """What waits for a delayed weight gradient, by component."""
        return added_up(self.waiting)

    @property
    def waiting_bytes(self) -> int:
        """The same in all."""
        return sum(self.kept_for_weights.values())


def added_up(shares: Iterable[tuple[int, Mapping[str, int] | Shares]]) -> dict[str, int]:
    """Sizes by component, each taken as many times as it says."""
    total: dict[str, int] = {}
    for count, part in shares:
        sizes = added_up(part) if isinstance(part, tuple) else part
        for name, size in sizes.items():
            total[name] = total.get(name, 0) + count * size
    return total


def summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sizes by component, added up."""
    return added_up((1, part) for part in parts)


@remembered
def before_experts(operations: Operations) -> Operations:
    """The half of a layer up to the dispatch of tokens, the shared expert left out; all of one that has no dispatch."""
    sends = [
        any(isinstance(work, Collective) and work.group is Group.EXPERT for work in each.forward) for each in operations
    ]
    half = operations[: sends.index(True)] if any(sends) else operations
    return tuple(each for each in half if each.component != "shared_expert")


@remembered
def layer_footprint(operations: Operations, modules: frozenset[str], *, keeps_graph: bool = False) -> Footprint:
    """Footprint of a list of operations under selective recomputation of `modules`.

    `keeps_graph` where a split backward pass keeps all that was saved, and not the inputs of linear layers alone.
    """
    shares = [_shares(operation, modules) for operation in operations]
    kept = [stays for stays, _ in shares]
    live = highest = at = 0
    for index, (operation, (stays, goes)) in enumerate(zip(operations, shares, strict=True)):
        during = live + stays + goes + operation.scratch_forward_bytes
        if during > highest:
            highest, at = during, index
        live += stays
    by_component = _by_component(operations, kept)
    gradients = waiting_gradients(operations, of_norms=keeps_graph)
    if keeps_graph:
        waits: Mapping[str, int] = {name: size for name, size in by_component.items() if name != LOSS}
    else:
        waits = waiting_inputs(operations)
    return Footprint(
        saved=live,
        shares=((1, by_component),),
        waiting=((1, waits), (1, gradients)),
        output_gradients=((1, gradients),),
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
        shares=((1, _by_component(operations[: at + 1], kept[: at + 1])),),
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
    whole: Footprint,
    input_bytes: int,
    component: str,
    outputs: Mapping[str, int] = MappingProxyType({}),
    *,
    keeps_graph: bool = False,
) -> Footprint:
    """Footprint of layers that keep their input, and perhaps some `outputs` by component, and run again in backward.

    While they run again the gradient of their output waits, which is as large as the input. Kept outputs take the place
    of what would be computed again.
    """
    stays = summed(({component: input_bytes}, outputs))
    saved, shares = sum(stays.values()), ((1, stays),)
    again, back = whole.forward.size_bytes + input_bytes, whole.backward
    higher = whole.forward if again > back.size_bytes else back
    return Footprint(
        saved=saved,
        shares=shares,
        waiting=shares + whole.output_gradients if keeps_graph else whole.waiting,
        output_gradients=whole.output_gradients,
        forward=PassPeak(
            size_bytes=saved + max(whole.forward.size_bytes - whole.saved, 0),
            shares=shares,
            operation=whole.forward.operation,
        ),
        backward=PassPeak(
            size_bytes=max(again, back.size_bytes, saved + input_bytes),
            shares=higher.shares,
            operation=f"{higher.operation} after recomputation",
        ),
    )


def joined(runs: Sequence[tuple[int, Footprint]]) -> Footprint:
    """Footprint of parts that run one after the other, each so many times in a row."""
    before, saved = [], 0
    for count, part in runs:
        # Of equal parts the last stands highest.
        before.append(saved + (count - 1) * part.saved)
        saved += count * part.saved
    return Footprint(
        saved=saved,
        shares=tuple([(count, part.kept) for count, part in runs]),
        waiting=tuple([(count, part.kept_for_weights) for count, part in runs]),
        output_gradients=tuple([(count, part.output_gradients) for count, part in runs]),
        forward=_highest(runs, before, [part.forward for _, part in runs]),
        backward=_highest(runs, before, [part.backward for _, part in runs]),
    )


def beside_forward(
    whole: Footprint, inside: Footprint, layers: Sequence[Footprint], attentions: Sequence[Footprint]
) -> Footprint:
    """A chunk whose backward pass runs beside the forward pass of another micro batch through layers like its own.

    Layers pair one by one, and their halves run in turn: attention forward, experts backward, experts forward,
    attention backward (Megatron-LM megatron/core/models/common/model_chunk_schedule_plan.py). The ends of a model,
    which `inside` is without, run apart.
    """
    moments = [
        max(
            layer.saved + attention.forward.size_bytes,
            layer.backward.size_bytes + attention.saved,
            attention.saved + layer.forward.size_bytes,
            attention.backward.size_bytes + layer.saved,
        )
        for layer, attention in zip(layers, attentions, strict=True)
    ]
    size = inside.backward.size_bytes + max(
        moment - layer.backward.size_bytes for moment, layer in zip(moments, layers, strict=True)
    )
    if size <= whole.backward.size_bytes:
        return whole
    return replace(whole, backward=replace(inside.backward, size_bytes=size))


def _highest(runs: Sequence[tuple[int, Footprint]], before: Sequence[int], passes: Sequence[PassPeak]) -> PassPeak:
    """The highest moment over runs of equal parts; `before` is what is saved before the last part of each."""
    sizes = [base + each.size_bytes for base, each in zip(before, passes, strict=True)]
    at = sizes.index(max(sizes))
    count, part = runs[at]
    earlier = [(times, each.kept) for times, each in (*runs[:at], (count - 1, part)) if times]
    return PassPeak(
        size_bytes=sizes[at],
        shares=(*earlier, (1, passes[at].kept)),
        operation=passes[at].operation,
    )
