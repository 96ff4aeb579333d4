"""What one micro batch keeps for backward in a layer of each kind, and how much of it is in flight at the peak."""

from collections.abc import Sequence

from projector.projection import LayerActivations, MemoryProjection
from projector.report.table import columns, heading, paragraph
from projector.report.units import adding_up

_MIB = 1 << 20


def section(memory: MemoryProjection) -> str:
    """The table of layers and the worst stage's passes."""
    title = heading("Kept for backward by one layer and micro batch, MiB per GPU")
    return "\n".join([title, _table(memory.activations), paragraph(_in_flight(memory))])


def _table(layers: Sequence[LayerActivations]) -> str:
    rows = [("layer", "recompute", "count", "MiB")]
    for layer in layers:
        printed = adding_up([part.size_bytes for part in layer.components], _MIB, digits=1)
        rows.append((f"  {layer.name}", layer.recompute, f"{layer.count:,}", f"{sum(printed):,.1f}"))
        if len(printed) > 1:
            rows += [
                (f"    {part.name}", "", "", f"{size:,.1f}")
                for part, size in zip(layer.components, printed, strict=True)
            ]
    return columns(rows, left=2)


def _in_flight(memory: MemoryProjection) -> str:
    worst = memory.worst
    passes, chunks = sum(worst.passes_in_flight), len(worst.passes_in_flight)
    if not passes:
        return f"At the peak of stage {worst.stage} no micro batch is in flight."
    counted = f"{passes} micro batch{'' if passes == 1 else 'es'}" if chunks == 1 else f"{passes} passes"
    through = f"{worst.layers_in_flight} layers in all" + (f", in {chunks} model chunks" if chunks > 1 else "")
    return f"At the peak stage {worst.stage} has {counted} in flight, through {through}."
