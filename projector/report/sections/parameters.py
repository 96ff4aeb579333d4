"""The component tree with its parameters and activations."""

from collections.abc import Iterable, Sequence

from projector.projection import ComponentParameters, ParameterCounts, StageMemory
from projector.report.table import columns, heading, paragraph
from projector.report.units import GIB


def section(counts: ParameterCounts, stages: Sequence[StageMemory] = ()) -> str:
    """Parameters by component, their sum, and what comes on top; by stage for those that are shown."""
    parts = [heading("Parameters and activations"), _tree(counts.components, counts.total)]
    extras = [
        f"{amount:,} {what}"
        for amount, what in (
            (counts.vocabulary_padding, "of vocabulary padding"),
            (counts.multi_token_prediction, "of multi-token prediction"),
        )
        if amount
    ]
    on_top = f"; on top {' and '.join(extras)}" if extras else ""
    active = f"A token passes {counts.active:,}; a device holds at most {counts.per_device_max:,}{on_top}."
    note = "Activation: GiB kept for backward by one layer and micro batch on one device, before recomputation."
    lines = [*parts, paragraph(active), paragraph(note)]
    if len(counts.stages) > 1 and stages:
        lines += ["", heading("Parameters per GPU, by stage"), _by_stage(counts, stages)]
    return "\n".join(lines)


def _by_stage(counts: ParameterCounts, stages: Sequence[StageMemory]) -> str:
    held = [{each.name: each.parameters for each in counts.stages[stage.stage]} for stage in stages]
    rows = [("component", *(f"stage {stage.stage}" for stage in stages))]
    names = dict.fromkeys(name for here in held for name in here)
    rows += [(f"  {name}", *(f"{here[name]:,}" if name in here else "-" for here in held)) for name in names]
    rows.append(("= stage", *(f"{stage.parameters:,}" for stage in stages)))
    return columns(rows)


def _tree(components: Sequence[ComponentParameters], total: int) -> str:
    rows = [("component", "parameters", "per device", "activation")]
    seen: set[str] = set()
    for each in components:
        if not (each.parameters or each.parameters_per_device_max or each.activation_bytes):
            continue
        for parent in _parents(each.name):
            if parent not in seen and all(other.name != parent for other in components):
                rows.append((_label(parent), "", "", ""))
            seen.add(parent)
        activation = f"{each.activation_bytes / GIB:,.3f}"
        rows.append((_label(each.name), f"{each.parameters:,}", f"{each.parameters_per_device_max:,}", activation))
    rows.append(("= model", f"{total:,}", "", ""))
    return columns(rows)


def _parents(name: str) -> Iterable[str]:
    steps = name.split(".")
    return (".".join(steps[:depth]) for depth in range(1, len(steps)))


def _label(name: str) -> str:
    """The last step of the path, indented by its depth."""
    return "  " * (name.count(".") + 1) + name.rpartition(".")[2]
