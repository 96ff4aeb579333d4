"""The first lines: what would run where, the verdict with its margin, and the speed."""

from projector.projection import TIME, MemoryProjection, PerformanceProjection, Projection, Verdict
from projector.report.table import paragraph
from projector.report.units import duration, gib, percent

_LABEL = 10
"""Columns of the labels."""

_VERDICTS = {
    Verdict.FITS: "FITS",
    Verdict.AT_RISK: "AT RISK",
    Verdict.DOES_NOT_FIT: "DOES NOT FIT",
    Verdict.UNKNOWN: "UNKNOWN",
}


def section(projection: Projection) -> str:
    """Model, target, verdict, speed, layout and batch."""
    target = projection.target
    lines = [
        paragraph(
            f"{projection.model} on {target.devices} x {target.device}"
            f" ({target.nodes} node{'s' if target.nodes > 1 else ''} x {target.devices_per_node})"
        ),
        "",
    ]
    if projection.memory is not None:
        lines += _memory(projection.memory)
    if projection.performance is not None:
        lines += _speed(projection.performance)
    lines += [_line("speed", f"NOT KNOWN: {each.effect}") for each in projection.unmodelled if each.what == TIME]
    lines += [_line("layout", _layout(projection)), _line("batch", _batch(projection))]
    return "\n".join(lines)


def _memory(memory: MemoryProjection) -> list[str]:
    worst = memory.worst
    margin = memory.device_capacity_bytes - worst.device_bytes
    spare = f"{gib(margin)} spare" if margin >= 0 else f"{gib(-margin)} too much"
    range_ = f"between {gib(worst.device_bytes_lower)} and {gib(worst.device_bytes_upper)}"
    usable = f"{gib(worst.device_bytes)} of {gib(memory.device_capacity_bytes)} usable per GPU, {spare}"
    if not memory.device_capacity_bytes:
        usable = f"{gib(worst.device_bytes)} per GPU, whose capacity nobody states"
    verdict = f"{_VERDICTS[memory.verdict]}: {usable} ({range_}; confidence {memory.confidence.lower()})"
    whose = (
        f"stage {worst.stage} of {len(memory.stages)} needs most; its peak" if len(memory.stages) > 1 else "the peak"
    )
    cause = f"{whose}: {worst.peak_cause}"
    lines = [_line("memory", verdict), _line("", cause)]
    if memory.confidence_reasons:
        reasons = "; ".join(memory.confidence_reasons)
        lines.append(_line("", f"confidence {memory.confidence.lower()}: {reasons}"))
    return lines


def _speed(performance: PerformanceProjection) -> list[str]:
    rate, confidence = performance.tokens_per_second_per_device, performance.confidence.lower()
    figures = (
        f"{rate:,.0f} tokens/s/GPU, {duration(performance.iteration_seconds)} per iteration,"
        f" {performance.tflops_per_device:,.1f} TFLOP/s/GPU,"
        f" MFU {percent(performance.mfu)} of {performance.mfu_base_tflops:,.1f}"
        f" (between {performance.at_least(rate):,.0f} and {performance.at_most(rate):,.0f} tokens/s/GPU,"
        f" {duration(performance.iteration_seconds_lower)} and {duration(performance.iteration_seconds_upper)};"
        f" confidence {confidence})"
    )
    lines = [_line("speed", figures)]
    if performance.confidence_reasons:
        lines.append(_line("", f"confidence {confidence}: {'; '.join(performance.confidence_reasons)}"))
    return lines


def _layout(projection: Projection) -> str:
    layout = projection.layout
    degrees = {
        "TP": layout.tensor,
        "PP": layout.pipeline,
        "VPP": layout.virtual_pipeline,
        "EP": layout.expert,
        "ETP": layout.expert_tensor,
        "CP": layout.context,
        "DP": layout.data,
    }
    sequence = "sequence parallel" if layout.sequence_parallel else "no sequence parallel"
    return f"{' '.join(f'{name} {degree}' for name, degree in degrees.items())}, {sequence}, shards: {layout.shard}"


def _batch(projection: Projection) -> str:
    micro = "micro batch" if projection.micro_batches == 1 else "micro batches"
    return (
        f"{projection.global_batch} sequences of {projection.sequence_length} tokens:"
        f" {projection.micro_batches} {micro} of {projection.micro_batch} per replica"
        f" ({projection.target.scaling} scaling)"
    )


def _line(label: str, text: str) -> str:
    return paragraph(text, first=f"{label:<{_LABEL}}")
