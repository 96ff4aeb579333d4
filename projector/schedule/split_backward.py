"""Schedules that separate the backward pass towards the weights, over ranks in a row.

Qi et al., Zero Bubble Pipeline Parallelism (arXiv 2401.10241): the weight gradient of a micro batch may wait, and fills
what would be a bubble.
"""

from dataclasses import dataclass, field

from projector.job import Schedule
from projector.schedule.events import WHOLE, Event, Kind, Passes, RankOrder
from projector.schedule.whole_backward import alternate, in_groups, one_f_one_b, suiting_group


def zero_bubble(rank: int, pipeline: int, chunks: int, micro_batches: int) -> RankOrder:  # noqa: ARG001 - one shape
    """ZB-H1 (arXiv 2401.10241, section 2.2): 1F1B with `W` delayed by as many micro batches as ranks come before.

    Every rank then holds the activations of at most `pipeline` micro batches, as the first rank of 1F1B does.
    """
    return _with_delayed_weights(one_f_one_b(rank, pipeline, micro_batches), delay=rank)


def interleaved_zero_bubble(
    rank: int, pipeline: int, chunks: int, micro_batches: int, group: int | None = None
) -> RankOrder:
    """Interleaved 1F1B with half its warm-up and `W` delayed by as many passes as ranks come before.

    `ScheduleInterleavedZeroBubble` of PyTorch (torch/distributed/pipelining/schedules.py); with one chunk ZB-H1.
    """
    size = suiting_group(Schedule.INTERLEAVED_ZERO_BUBBLE, pipeline, micro_batches, group)
    forward, backward = in_groups(chunks, micro_batches, size)
    return _with_delayed_weights(
        alternate(forward, backward, warm_up=pipeline - rank - 1 + (chunks - 1) * size), delay=rank
    )


def _with_delayed_weights(events: RankOrder, *, delay: int) -> RankOrder:
    """The same with each `W` behind the `B` that comes `delay` backward passes later, the rest at the end."""
    merged: list[Event] = []
    waiting: list[Event] = []
    done = 0
    for event in events:
        merged.append(event)
        if event.kind is Kind.B:
            waiting.append(event._replace(kind=Kind.W))
            if len(waiting) - done > delay:
                merged.append(waiting[done])
                done += 1
    return (*merged, *waiting[done:])


KINDS = (Kind.F, Kind.B, Kind.W)
FORWARD, BACKWARD, WEIGHTS = range(3)
"""Places of the kinds in lists that have one entry for each."""


@dataclass(kw_only=True, slots=True)
class _Rank:
    """How far a rank has come."""

    begun: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Forwards, backwards and weight gradients that it has started."""
    ended: list[int] = field(default_factory=lambda: [0, 0, 0])
    """The same that it has finished."""
    until: int = 0
    """When it has nothing more to do."""
    forward_next: bool = True
    """Whose turn it is."""
    events: list[Event] = field(default_factory=list)
    """What it has started, in order."""


def heuristic(pipeline: int, micro_batches: int, passes: Passes) -> tuple[RankOrder, ...]:
    """The automatic schedule of arXiv 2401.10241, section 3.1.

    A rank runs forwards until its first backward arrives, as far as memory allows. From then on it runs forward and
    backward in turn, and a waiting `W` wherever the next input has not arrived or memory is full; the remaining `W`
    come at the end. The run is simulated step by step, so that no two ranks can wait for each other.
    """
    ranks = [_Rank() for _ in range(pipeline)]
    time = 0
    while any(rank.begun[WEIGHTS] < micro_batches for rank in ranks):
        for rank in ranks:
            if rank.until == time:
                rank.ended[:] = rank.begun
        for index, rank in enumerate(ranks):
            if rank.until <= time:
                inputs = ranks[index - 1].ended[FORWARD] if index else micro_batches
                gradients = ranks[index + 1].ended[BACKWARD] if index + 1 < pipeline else rank.ended[FORWARD]
                kind = _choice(rank, inputs, gradients, passes)
                if kind is not None:
                    rank.until = time + passes.lengths[kind]
        time += 1
    return tuple(tuple(rank.events) for rank in ranks)


def _choice(rank: _Rank, inputs: int, gradients: int, passes: Passes) -> int | None:
    """Start the next pass of a rank, if any can run; `inputs` and `gradients` have arrived so far."""
    forwards, backwards, weights = rank.begun
    kept = (forwards - backwards) * WHOLE + (backwards - weights) * passes.waiting
    can_forward = forwards < inputs and kept + WHOLE <= passes.limit * WHOLE
    can_backward = backwards < gradients
    warming_up = backwards == 0 and not can_backward
    if can_forward and (rank.forward_next or warming_up):
        kind, rank.forward_next = FORWARD, False
    elif can_backward:
        kind, rank.forward_next = BACKWARD, True
    elif weights < backwards:
        kind = WEIGHTS
    elif can_forward:
        kind, rank.forward_next = FORWARD, False
    else:
        return None
    rank.events.append(Event(KINDS[kind], 0, rank.begun[kind]))
    rank.begun[kind] += 1
    return kind
