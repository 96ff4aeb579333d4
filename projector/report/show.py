"""The report of `projector show`: every effective value and who decided it."""

import json
from collections.abc import Iterable

from projector.projection import Projection
from projector.provenance import ConfigValue, Source
from projector.report.sections import provenance, summary
from projector.report.table import heading, paragraph
from projector.report.text import printable


def report(projection: Projection) -> str:
    """Effective layout, every value with its source and file, and what the reader made of the rest."""
    read = paragraph(projection.format, first="format    ")
    sections = [f"{summary.section(projection)}\n{read}", _values(projection.values), *provenance.sections(projection)]
    return printable("\n\n".join(sections) + "\n")


def values_report(values: Iterable[ConfigValue]) -> str:
    """The values alone, for a configuration that has no layout on the target."""
    return printable(_values(values) + "\n")


def _values(values: Iterable[ConfigValue]) -> str:
    """The values, grouped by who decided them; who wins over others comes first."""
    strength = list(Source)
    groups: dict[tuple[int, str], list[ConfigValue]] = {}
    for each in values:
        groups.setdefault((-strength.index(each.source), each.file or ""), []).append(each)
    parts = [heading("Values, by who decided them")]
    for (_, file), group in sorted(groups.items()):
        parts.append(paragraph(f"{group[0].source}{f': {file}' if file else ''}"))
        parts += [paragraph(f"{each.key} = {_text(each.value)}", first="  ", indent="      ") for each in group]
    return "\n".join(parts)


def _text(value: object) -> str:
    return json.dumps(value, default=str, ensure_ascii=False)
