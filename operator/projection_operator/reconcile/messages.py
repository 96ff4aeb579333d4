"""Texts of conditions and events about an answer, in one place so that they can be read together."""

from projection_operator.api.quantity import quantity
from projector.projection import MemoryProjection, Projection, Verdict


def accepted_message(projection: Projection) -> str:
    """What was understood."""
    layout, target = projection.layout, projection.target
    degrees = f"tensor {layout.tensor}, pipeline {layout.pipeline}, virtual pipeline {layout.virtual_pipeline}, "
    degrees += f"expert {layout.expert}, context {layout.context}, data {layout.data}, shard {layout.shard}"
    batch = f"micro batch {projection.micro_batch}, global batch {projection.global_batch}"
    where = f"{target.nodes} x {target.devices_per_node} {target.device}"
    return f"{projection.model} on {where}: {degrees}; {batch}, sequence length {projection.sequence_length}."


def fits_message(memory: MemoryProjection, projection: Projection) -> str:
    """Does it fit, by how much, where, and what would help."""
    worst = memory.worst
    interval = f"{quantity(worst.device_bytes_lower)} to {quantity(worst.device_bytes_upper)}"
    need = f"{quantity(worst.device_bytes)} ({interval}) of {quantity(memory.device_capacity_bytes)} per GPU"
    where = f" on pipeline stage {worst.stage}" if len(memory.stages) > 1 else ""
    cause = f"; the peak is in: {worst.peak_cause}" if worst.peak_cause else ""
    text = f"Needs {need}{where}{cause}."
    if memory.verdict is Verdict.DOES_NOT_FIT:
        text += f" That is {quantity(max(0, worst.device_bytes - memory.device_capacity_bytes))} too much."
    if memory.verdict is Verdict.UNKNOWN:
        unknown = ", ".join(item.what for item in projection.unmodelled if item.decides)
        text += f" No verdict, because this is not modelled: {unknown}."
    if memory.verdict in {Verdict.DOES_NOT_FIT, Verdict.AT_RISK} and projection.suggestions:
        best = projection.suggestions[0]
        text += f" Try {best.change}: {quantity(best.memory_bytes)}."
    return text


def completed_message(projection: Projection) -> str:
    """The answer in one line."""
    parts = []
    if projection.memory is not None:
        memory = projection.memory
        need, capacity = quantity(memory.worst.device_bytes), quantity(memory.device_capacity_bytes)
        parts.append(f"{memory.verdict}: {need} of {capacity} per GPU")
    if projection.performance is not None:
        rate = round(projection.performance.tokens_per_second_per_device)
        parts.append(f"{rate} tokens/s/GPU, {round(projection.performance.iteration_seconds * 1000)} ms per iteration")
    target = projection.target
    return f"{'; '.join(parts)} ({target.devices} {target.device})."
