"""A layer's forward beside another layer's backward, of two micro batches, so that each hides the other's all-to-all.

Megatron-LM with `overlap_moe_expert_parallel_comm` (megatron/core/models/common/model_chunk_schedule_plan.py
`TransformerLayerSchedulePlan.run`) starts the parts of the two in turn on two streams of the device:

    computes   attention F  |  experts B  |  experts F     |  attention B
    sends      combine B    |  dispatch F |  dispatch B    |  combine F

A part waits for those of its own pass in front of it and of its own stream. Whatever is hidden takes multiprocessors
from the arithmetic beside it.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import NamedTuple

from projector.costs import CostModel
from projector.job import Software
from projector.operations import Collective, Group, Operation, Work
from projector.performance.passes import OVERLAP_SLOWDOWN, exposed_part, exposed_seconds, pass_time

EXCHANGES = exposed_part(Group.EXPERT)
"""Waterfall part of what is hidden here."""


class LayerParts(NamedTuple):
    """Seconds of a layer's parts; recomputation counts as attention's."""

    attention: float
    """Forward up to the dispatch of tokens: attention, norms and router."""
    dispatch: float
    """All-to-all to the experts, forward."""
    experts: float
    """Forward from dispatch to combine, and the shared expert."""
    combine: float
    """All-to-all back from the experts, forward."""
    combine_back: float
    """All-to-all of the combined tokens' gradients to the experts."""
    experts_back: float
    """Backward of the experts, weight gradients included."""
    dispatch_back: float
    """All-to-all of the gradients back from the experts."""
    attention_back: float
    """Backward of attention, norms and router, weight gradients included."""

    @property
    def exchanges(self) -> float:
        """All four all-to-alls."""
        return self.dispatch + self.combine + self.combine_back + self.dispatch_back

    @property
    def forward(self) -> float:
        """The forward pass, one part after the other."""
        return self.attention + self.dispatch + self.experts + self.combine

    @property
    def backward(self) -> float:
        """The backward pass, likewise."""
        return self.combine_back + self.experts_back + self.dispatch_back + self.attention_back


NO_LAYER = LayerParts(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""Nothing to run beside."""


def layer_parts(
    operations: Sequence[Operation], costs: CostModel, software: Software, forward: float, backward: float
) -> LayerParts:
    """The parts of a layer whose passes take `forward` and `backward` seconds in all."""

    def sent(works: Iterable[Work]) -> float:
        return sum(exposed_seconds(work, (), costs, software) for work in works if _is_exchange(work))

    places = [at for at, operation in enumerate(operations) if any(map(_is_exchange, operation.forward))]
    if len(places) != 2:  # noqa: PLR2004 - to the experts and back
        return NO_LAYER._replace(attention=forward, attention_back=backward)
    first, last = places
    dispatch, combine = operations[first], operations[last]
    inside = [*operations[first + 1 : last], *(each for each in operations if each.component == "shared_expert")]
    experts = sum(pass_time(each.forward, costs, software).seconds for each in inside)
    back = sum(pass_time((*each.backward_input, *each.backward_weight), costs, software).seconds for each in inside)
    ahead, behind = sent(dispatch.forward), sent(combine.forward)
    from_combine, from_dispatch = sent(combine.backward_input), sent(dispatch.backward_input)
    return LayerParts(
        attention=forward - ahead - experts - behind,
        dispatch=ahead,
        experts=experts,
        combine=behind,
        combine_back=from_combine,
        experts_back=back,
        dispatch_back=from_dispatch,
        attention_back=backward - from_combine - back - from_dispatch,
    )


def _is_exchange(work: Work) -> bool:
    return isinstance(work, Collective) and work.group is Group.EXPERT


@lru_cache(maxsize=4096)
def hidden_seconds(forward: tuple[LayerParts, ...], backward: tuple[LayerParts, ...]) -> float:
    """What a chunk's forward and another's backward, each with its layers in forward order, take less together.

    Layers pair from the first of the forward and the last of the backward on; what is left over runs alone.
    """
    if not any(layer.exchanges for layer in (*forward, *backward)):
        return 0.0
    apart = sum(layer.forward for layer in forward) + sum(layer.backward for layer in backward)
    return max(0.0, apart - _together(zip_longest(forward, reversed(backward), fillvalue=NO_LAYER))) * (
        1.0 - OVERLAP_SLOWDOWN
    )


def _together(pairs: Iterator[tuple[LayerParts, LayerParts]]) -> float:
    """Seconds until both streams are through."""
    computes = sends = forward = backward = 0.0
    for ahead, back in pairs:
        sends = max(sends, backward) + back.combine_back
        returned = sends
        computes = max(computes, forward) + ahead.attention
        attended = computes
        computes = max(computes, returned) + back.experts_back
        differentiated = computes
        sends = max(sends, attended) + ahead.dispatch
        computes = max(computes, sends) + ahead.experts
        sends = max(sends, differentiated) + back.dispatch_back
        scattered = sends
        sends = max(sends, computes) + ahead.combine
        forward = sends
        computes = max(computes, scattered) + back.attention_back
        backward = computes
    return max(computes, sends)
