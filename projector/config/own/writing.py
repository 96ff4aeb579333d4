"""A job of any dialect as text of the project's own format, which reads back to the same job.

Every value is stated, so that a default that changes later does not change the job. What the reader of the job's file
did not understand goes with it: a job without an honest verdict does not get one by being converted.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict
from textwrap import wrap
from typing import Any

import yaml

from projector.catalog.model_file import NOTHING, POST_NORMS
from projector.catalog.record import slots
from projector.config.own.schema import BLOCKS, MARK, VERSION, plain, plain_keys, sections
from projector.errors import ConfigurationError, shown
from projector.job import DecoderLayer, ModelArchitecture, TrainingJob
from projector.provenance import LoadedConfiguration

_LONGEST_PATTERN = 16
"""Layers that repeat as a group; the longest pattern of a public model has 8."""
_WIDTH = 120
_Block = Hashable
"""A mixer or a feed-forward block."""


class _OneLine(dict[str, Any]):
    """A mapping that is written on one line."""


class _Dumper(yaml.SafeDumper):
    """Blocks of the model and lists on one line each; lists of lists and of mappings on several."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True

    def represent_rows(self, data: Sequence[object]) -> yaml.Node:
        several = isinstance(data[0], list | dict) if data else False
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=not several)

    def represent_text(self, data: str) -> yaml.Node:
        # Parsers differ in what else than a line feed ends a line; between double quotes it is escaped.
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if data.isprintable() else '"')

    def represent_one_line(self, data: _OneLine) -> yaml.Node:
        return self.represent_mapping("tag:yaml.org,2002:map", data, flow_style=True)


_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_representer(list, _Dumper.represent_rows)
_Dumper.add_representer(_OneLine, _Dumper.represent_one_line)


def write(loaded: LoadedConfiguration) -> str:
    """The text; raises `ConfigurationError` for a text of the job that the format would read as a variable."""
    content = document(loaded)
    for group in BLOCKS:
        content["model"][group] = {name: _OneLine(block) for name, block in content["model"][group].items()}
    parts = [_comment([f"Converted by projector from a configuration of the format {loaded.format}."])]
    parts += [
        yaml.dump({key: value}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
        for key, value in content.items()
    ]
    if loaded.ignored:
        parts.append(_comment(["Without influence on memory and time, and not taken over:", ", ".join(loaded.ignored)]))
    return "\n".join(parts)


def document(loaded: LoadedConfiguration) -> dict[str, Any]:
    """The same as values of YAML and JSON."""
    job = loaded.job
    content: dict[str, Any] = {MARK: VERSION, "model": model_mapping(job.model)}
    for slot in slots(TrainingJob):
        if slot.name != "model":
            value = getattr(job, slot.name)
            section = slot.key in sections() and value is not None
            content[slot.key] = _fields(slot.key, value) if section else plain(value)
    cluster = {"nodes": loaded.nodes, "devices_per_node": loaded.devices_per_node}
    if stated := {key: value for key, value in cluster.items() if value is not None}:
        content["cluster"] = stated
    _refuse_variables(content)
    for key, notes in (("unmodelled", loaded.unmodelled), ("assumed", loaded.assumed)):
        if notes:
            content[key] = [asdict(note) for note in notes]
    return content


def model_mapping(model: ModelArchitecture) -> dict[str, Any]:
    """A model with its blocks by name and its layers as runs, as the catalog's files have them."""
    mixers = _named((layer.mixer for layer in model.layers), BLOCKS["mixers"])
    feed_forwards = _named((layer.feed_forward for layer in model.layers), BLOCKS["feed_forwards"])
    every = all(layer.post_norms for layer in model.layers)

    def pair(layer: DecoderLayer) -> list[str]:
        words = [mixers[layer.mixer], feed_forwards[layer.feed_forward]]
        return [*words, POST_NORMS] if layer.post_norms and not every else words

    return {
        **_fields("model", model),
        POST_NORMS: every,
        "mixers": _described(mixers, BLOCKS["mixers"]),
        "feed_forwards": _described(feed_forwards, BLOCKS["feed_forwards"]),
        "layers": [[times, *map(pair, group)] for times, group in runs(model.layers)],
    }


def runs(layers: Sequence[DecoderLayer]) -> list[tuple[int, Sequence[DecoderLayer]]]:
    """The layers as groups with how often each repeats; at every place the group that covers most."""
    found: list[tuple[int, Sequence[DecoderLayer]]] = []
    numbers: dict[DecoderLayer, int] = {}
    kinds = [numbers.setdefault(layer, len(numbers)) for layer in layers]
    start = 0
    while start < len(kinds):
        # Of groups that cover as much, the shortest; a group that does not repeat is one layer.
        times, length = max(
            ((_repeats(kinds, start, length), length) for length in range(1, _LONGEST_PATTERN + 1)),
            key=lambda found: (found[0] * found[1] if found[0] > 1 or found[1] == 1 else 0, -found[1]),
        )
        found.append((times, layers[start : start + length]))
        start += times * length
    return found


def _repeats(kinds: Sequence[int], start: int, length: int) -> int:
    """How often the group of `length` from `start` stands there, one after the other."""
    group = kinds[start : start + length]
    times = 1
    while kinds[start + times * length : start + (times + 1) * length] == group:
        times += 1
    return times


def _named(blocks: Iterable[_Block], kinds: Mapping[str, type]) -> dict[_Block, str]:
    """A name for each distinct block: its kind, with a number from the second one on."""
    names: dict[_Block, str] = {}
    counts: dict[str, int] = {}
    for block in dict.fromkeys(blocks):
        if block is None:
            names[block] = NOTHING
            continue
        kind = _kind(block, kinds)
        counts[kind] = counts.get(kind, 0) + 1
        names[block] = kind if counts[kind] == 1 else f"{kind}_{counts[kind]}"
    return names


def _described(names: Mapping[_Block, str], kinds: Mapping[str, type]) -> dict[str, Any]:
    return {
        name: {
            "kind": _kind(block, kinds),
            **{slot.key: plain(getattr(block, slot.name)) for slot in slots(type(block))},
        }
        for block, name in names.items()
        if block is not None
    }


def _kind(block: _Block, kinds: Mapping[str, type]) -> str:
    return next(kind for kind, cls in kinds.items() if isinstance(block, cls))


def _fields(section: str, value: object) -> dict[str, Any]:
    return {slot.key: plain(getattr(value, slot.name)) for slot in plain_keys(section)}


def _refuse_variables(value: object) -> None:
    """A reader would take `${NAME}` in a text for a variable."""
    if isinstance(value, str) and "${" in value:
        message = f"{shown(value)} would be read as a variable"
        raise ConfigurationError(message, place="the project's own format", expected="a name without ${")
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for item in inner:
        _refuse_variables(item)


def _comment(paragraphs: Iterable[str]) -> str:
    """Lines of comment; names come from files of others and may not end the line."""
    clean = ("".join(mark if mark.isprintable() else "?" for mark in text) for text in paragraphs)
    return "".join(f"# {line}\n" for text in clean for line in wrap(text, _WIDTH - 2))
