"""The terminal report: verdict first, then why, in 80 columns of plain text."""

from projector.projection import Projection
from projector.report.sections import activations, memory, parameters, performance, provenance, scaling, summary


def report(projection: Projection) -> str:
    """The whole answer as text; ends with a line feed."""
    sections = [summary.section(projection)]
    if projection.memory is not None:
        sections.append(memory.section(projection.memory))
    if projection.performance is not None:
        sections.append(performance.section(projection.performance))
    if beside := scaling.smallest_section(projection):
        sections.append(beside)
    if projection.performance is not None:
        sections.extend(scaling.sections(projection.performance.scaling))
    if projection.memory is not None and projection.memory.activations:
        sections.append(activations.section(projection.memory))
    shown = () if projection.memory is None else memory.chosen(projection.memory)
    sections.append(parameters.section(projection.parameters, shown))
    sections.extend(provenance.sections(projection))
    return printable("\n\n".join(sections) + "\n")


def printable(text: str) -> str:
    """Names come from files of others: control characters of theirs must not reach the terminal."""
    return "".join(mark if mark.isprintable() or mark == "\n" else "?" for mark in text)
