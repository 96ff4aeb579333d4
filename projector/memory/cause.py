"""Says what is going on at a peak."""

from projector.memory.replay import Peak

LOGITS = frozenset({"output_layer", "loss"})
"""Operations that hold the logits of a micro batch."""


def cause(top: Peak) -> str:
    """Pass, operation and what is in flight, such as `backward of mlp.linear_fc2 with 8 micro batches in flight`.

    With several model chunks on a stage each micro batch passes it several times, so that passes are counted.
    """
    operation = f"{top.operation} (logits)" if top.operation in LOGITS else top.operation
    chunks = len(top.passes)
    counted = _plural(top.in_flight, "micro batch") if chunks == 1 else _plural(top.in_flight, "pass")
    through = f" through {chunks} model chunks" if chunks > 1 else ""
    return f"{top.direction} of {operation} with {counted}{through} in flight"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 'es'}"
