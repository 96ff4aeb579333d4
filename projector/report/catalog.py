"""What the catalog knows, for `projector models` and `projector devices`: documents for programs, tables for people."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from projector import catalog
from projector.catalog import CatalogModel, Device, ModelStatus, RefusedModel
from projector.catalog.names import normalised
from projector.costs import gemm_backends
from projector.job import (
    Attention,
    Batch,
    LatentAttention,
    MixtureOfExperts,
    ModelArchitecture,
    Parallelism,
    Target,
    TrainingJob,
)
from projector.layers import unmodelled_blocks
from projector.memory import count_parameters
from projector.parallelism import resolve
from projector.report.table import columns, heading, paragraph
from projector.report.text import printable
from projector.report.units import GIB, parameters

_NAMES = ("name", "file", "vendor", "architecture", "aliases", "product_names", "pci_device_ids")
"""What identifies a device, beside its facts."""


def devices_document(own: Sequence[Device] = ()) -> dict[str, Any]:
    """Every device with all its facts in SI units, the source of each, and the full citations.

    A person's `own` come first, and instead of the catalog's of the same name.
    """
    names = {normalised(name) for device in own for name in (device.name, *device.aliases)}
    others = [device for device in catalog.devices() if normalised(device.name) not in names]
    return {"devices": [_device(device) for device in (*own, *others)], "sources": catalog.citations()}


def backends_document() -> dict[str, Any]:
    """Every cost model of matrix products."""
    return {"gemm": [backend._asdict() for backend in gemm_backends()]}


def backends_report(document: Mapping[str, Any]) -> str:
    """One line a backend."""
    known: Sequence[Mapping[str, Any]] = document["gemm"]
    rows = [("GEMM backend", "installed", "GPUs")]
    rows += [(each["name"], "yes" if each["installed"] else "no", each["devices"]) for each in known]
    notes = [paragraph(f"{each['name']}: {each['note']}", indent="    ") for each in known]
    rest = "Attention, element-wise work and communication have one model each, projector's own."
    return printable("\n".join([columns(rows, left=3), "", *notes, paragraph(rest)]) + "\n")


def models_document() -> dict[str, Any]:
    """Every name: modelled, partly (what not) or refused (why), with its architecture in figures and its sources."""
    known = [*map(_model, catalog.models()), *map(_refused, catalog.refused_models())]
    return {"models": sorted(known, key=lambda model: model["name"])}


def devices_report(document: Mapping[str, Any]) -> str:
    """One line a device; estimates carry a tilde."""
    rows = [("GPU", "vendor", "target", "usable GiB", "TB/s", "BF16", "FP8", "in training")]
    tags: set[str] = set()
    for device in document["devices"]:
        facts = device["facts"]
        shown = [
            _fact(facts, "memory_capacity_bytes", 1 / GIB, 2),
            _fact(facts, "memory_bandwidth_bytes_per_second", 1e-12, 2),
            *(_fact(facts, name, 1, 0) for name in ("peak_tflops.bf16", "peak_tflops.fp8", "gemm_tflops.bf16")),
        ]
        tags.update(fact["source"] for fact in facts.values() if fact["source"])
        rows.append((device["name"], device["vendor"], device["architecture"], *shown))
    note = (
        "BF16, FP8: dense peak, TFLOP/s. In training: BF16 GEMMs at the sustained clock, TFLOP/s."
        " ~ estimated; - not known. --output json has every fact with its source."
    )
    files = [
        paragraph(f"{device['name']}: described in {device['file']}", indent="    ")
        for device in document["devices"]
        if device["file"]
    ]
    sources = [paragraph(f"{tag}: {document['sources'].get(tag, tag)}", indent="    ") for tag in sorted(tags)]
    return printable(
        "\n".join([columns(rows, left=3), paragraph(note), *files, "", heading("Sources"), *sources]) + "\n"
    )


def models_report(document: Mapping[str, Any]) -> str:
    """One line a model, then what is not modelled of which and why; facts that are not verified carry a mark."""
    rows = [("model", "engine", "layers", "experts", "vocabulary", "parameters")]
    for model in document["models"]:
        figures = (_figure(model[key]) for key in ("layers", "experts", "vocabulary"))
        count = "-" if model["parameters"] is None else parameters(model["parameters"])
        rows.append((model["name"] + _MARKS.get(model["status"], ""), model["standing"], *figures, count))
    note = (
        "Of a model that is modelled partly, memory is given without a verdict; a refused one is not answered at all."
        " ~ not verified against a primary source; # compared with it by the number of parameters alone."
        " - not stated, or not known. --output json has aliases and sources."
    )
    parts = (
        ("Modelled partly, without", "not_modelled", "; "),
        ("Refused", "refused", ""),
        ("Notes", "note", ""),
        ("Sources", "sources", "; "),
    )
    sections = []
    for title, key, separator in parts:
        told = [(model["name"], separator.join(model[key])) for model in document["models"] if model[key]]
        sections += ["", heading(title), *(paragraph(f"{name}: {text}", indent="    ") for name, text in told)]
    return printable("\n".join([columns(rows, left=2), paragraph(note), *sections]) + "\n")


_MARKS = {ModelStatus.UNVERIFIED: " ~", ModelStatus.TOTAL: " #"}
"""What stands behind the name of a model whose facts are not verified."""
DOCUMENTS = {"backends": backends_document, "devices": devices_document, "models": models_document}
"""What each command knows, by its name."""
REPORTS = {"backends": backends_report, "devices": devices_report, "models": models_report}
"""How each command shows it, by its name."""


def _device(device: Device) -> dict[str, Any]:
    known = {name: _plain(getattr(device, name)) for name in _NAMES}
    return {**known, "facts": dict(_facts(device))}


def _facts(device: Device) -> Iterator[tuple[str, dict[str, Any]]]:
    """Figures by name, entries of a mapping as `peak_tflops.bf16`; what nobody knows is left out."""
    for field in fields(device):
        value = getattr(device, field.name)
        if field.name in {*_NAMES, "provenance"} or value is None:
            continue
        entries = {f"{field.name}.{key}": item for key, item in value.items()} if isinstance(value, Mapping) else {}
        for name, item in (entries or {field.name: value}).items():
            found = device.provenance.get(name) or device.provenance.get(field.name)
            if item not in ((), {}):
                yield (
                    name,
                    {
                        "value": _plain(item),
                        "source": found.source if found else None,
                        "estimated": found is not None and found.estimated,
                        "why": found.why if found else "",
                    },
                )


def _model(model: CatalogModel) -> dict[str, Any]:
    architecture = model.architecture
    mixer = next((layer.mixer for layer in architecture.layers if layer.mixer is not None), None)
    experts = next(
        (layer.feed_forward for layer in architecture.layers if isinstance(layer.feed_forward, MixtureOfExperts)), None
    )
    missing = _not_modelled(architecture)
    return {
        "name": model.name,
        "standing": "partly" if missing else "modelled",
        "not_modelled": missing,
        "refused": None,
        "aliases": list(model.aliases),
        "huggingface_id": model.huggingface_id,
        "layers": len(architecture.layers),
        "hidden": architecture.hidden,
        "heads": mixer.heads if isinstance(mixer, Attention | LatentAttention) else None,
        "key_value_heads": mixer.key_value_heads if isinstance(mixer, Attention) else None,
        "experts": None if experts is None else experts.experts,
        "vocabulary": model.vocabulary,
        "parameters": _parameters(model, whole=not missing),
        "status": model.status.value,
        "sources": list(model.sources),
        "note": model.note,
    }


_UNKNOWN = ("huggingface_id", "layers", "hidden", "heads", "key_value_heads", "experts", "vocabulary", "parameters")
"""What is not told of a refused model."""


def _refused(model: RefusedModel) -> dict[str, Any]:
    """The same keys as of a model that is known."""
    return {
        "name": model.name,
        "standing": "refused",
        "not_modelled": [],
        "refused": model.reason,
        "aliases": list(model.aliases),
        **dict.fromkeys(_UNKNOWN),
        "status": None,
        "sources": list(model.sources),
        "note": "",
    }


def _not_modelled(model: ModelArchitecture) -> list[str]:
    """What answers about the model would name as not modelled."""
    count = len(model.layers)
    blocks = [f"{name} in {len(where)} of {count} layers" for name, where in unmodelled_blocks(model).items()]
    return [*blocks, *model.leaves_out]


def _parameters(model: CatalogModel, *, whole: bool) -> int | None:
    """Published parameters, else the engine's count where it knows all of the model."""
    if model.parameters is not None or not whole:
        return model.parameters
    job = TrainingJob(
        model=model.architecture, parallelism=Parallelism(), batch=Batch(micro=1, global_=1, sequence_length=1)
    )
    return count_parameters(job, resolve(job, Target(device="", nodes=1, devices_per_node=1))).total


def _figure(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _fact(facts: Mapping[str, Any], name: str, factor: float, digits: int) -> str:
    fact = facts.get(name)
    if fact is None:
        return "-"
    return f"{'~' if fact['estimated'] else ''}{fact['value'] * factor:,.{digits}f}"


def _plain(value: object) -> Any:  # noqa: ANN401 - JSON is recursive and untyped
    """A fact as JSON values."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return value
