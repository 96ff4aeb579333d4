"""The target beside the smallest cluster, and tables over ever more nodes."""

from collections.abc import Iterator, Sequence

from projector.job import Scaling
from projector.projection import Projection, ScaledTime, ScalingRow, ScalingTable, Verdict
from projector.report.table import columns, heading, paragraph
from projector.report.units import duration, parameters

_TITLES = {
    Scaling.STRONG: "Strong scaling: the global batch stays as written",
    Scaling.WEAK: "Weak scaling: the global batch grows with data parallelism",
}
_FITS = {
    Verdict.FITS: "fits",
    Verdict.AT_RISK: "at risk",
    Verdict.DOES_NOT_FIT: "no",
    Verdict.UNKNOWN: "unknown",
}


def smallest_section(projection: Projection) -> str:
    """The layout of the target beside that of the smallest cluster, and what makes them differ; empty if equal."""
    smallest, target, layout = projection.smallest, projection.target, projection.layout
    if smallest is None or not smallest.differences:
        return ""
    degrees = tuple(str(size) for size in (layout.tensor, layout.pipeline, layout.expert, layout.context))
    rows: list[tuple[str, ...]] = [
        ("  layout", "TP", "PP", "EP", "CP", "DP", "micro batches", "global batch", "nodes", "GPUs")
    ]
    for name, data, micro_batches, batch, nodes, devices in (
        (
            "smallest",
            smallest.data,
            smallest.micro_batches,
            smallest.global_batch,
            smallest.nodes,
            smallest.devices,
        ),
        ("target", layout.data, projection.micro_batches, projection.global_batch, target.nodes, target.devices),
    ):
        figures = (data, micro_batches, batch, nodes, devices)
        rows.append((f"  {name}", *degrees, *(f"{figure:,}" for figure in figures)))
    told = [paragraph(f"smallest: {smallest.why}", first="- ", indent="  ")]
    told += [
        paragraph(f"{each.what} {each.smallest:,} -> {each.target:,}: {each.why}", first="- ", indent="  ")
        for each in smallest.differences
    ]
    return "\n".join([heading("Target beside the smallest cluster"), columns(rows), *told])


def sections(tables: Sequence[ScalingTable]) -> Iterator[str]:
    """One section for each kind of scaling."""
    for table in tables:
        yield "\n".join([heading(_TITLES[table.scaling]), *_table(table)])


def _table(table: ScalingTable) -> Iterator[str]:
    answered = [(row, row.time) for row in table.rows if row.time is not None]
    remembers = any(time.verdict is not None for _, time in answered)
    memory = ["memory"] if remembers else []
    rows = [("  nodes/GPUs", "DP", "micro", "batch", "iteration", "tokens/s", "per GPU", "eff.", *memory)]
    rows += [_row(row, time, remembers=remembers) for row, time in answered]
    if answered:
        yield columns(rows)
    for row in table.rows:
        if row.time is None:
            yield paragraph(f"{row.nodes:,}/{row.devices:,}: {row.refusal}", first="  ", indent="    ")


def _row(row: ScalingRow, time: ScaledTime, *, remembers: bool) -> tuple[str, ...]:
    return (
        f"  {row.nodes:,}/{row.devices:,}",
        f"{time.data:,}",
        f"{time.micro_batches:,}",
        f"{time.global_batch:,}",
        duration(time.iteration_seconds),
        parameters(round(row.tokens_per_second)),
        f"{time.tokens_per_second_per_device:,.0f}",
        f"{time.efficiency * 100:.1f}%",
        *([_FITS[time.verdict]] if remembers and time.verdict is not None else []),
    )
