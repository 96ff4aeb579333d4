"""Facts about GPUs, hosts, models and tokenizers, as data files with their sources, and the typed doors to them.

One file a device and one a model; only the file that is asked for is read. Names are found without regard to case,
by canonical name or alias (node labels, architecture names, PCI device ids, framework presets).
"""

from functools import cache
from pathlib import Path

from projector.catalog import names
from projector.catalog.allocator import ReservedRatio, reserved_ratio
from projector.catalog.calibration import Calibration, OutsideMeasurement
from projector.catalog.device import CollectiveCurve, Device, Link, LinkKind, peak_format
from projector.catalog.device_file import device_of, read_device
from projector.catalog.dispatch import DispatchBuffers, dispatch_buffers
from projector.catalog.evidence import MeasuredMode, MeasuredTime, measured_modes, measured_times
from projector.catalog.facts import Provenance, read_mapping
from projector.catalog.host import HostCosts, host_costs
from projector.catalog.model import CatalogModel, ModelStatus, RefusedModel, TokenizerVocabulary
from projector.catalog.model_file import read_model
from projector.catalog.origami import OrigamiTarget, origami_targets
from projector.catalog.overrides import HardwareOverrides
from projector.catalog.rates import (
    AttentionShape,
    CollectiveTimes,
    DispatchRates,
    GemmShape,
    GroupedShape,
    MeasuredCollective,
    MeasuredRates,
    Rates,
    Regime,
)
from projector.catalog.tokenizers import find_vocabulary
from projector.errors import DeviceUnknown, NotAvailable, PresetUnknown, shown

__all__ = [
    "AttentionShape",
    "Calibration",
    "CatalogModel",
    "CollectiveCurve",
    "CollectiveTimes",
    "Device",
    "DispatchBuffers",
    "DispatchRates",
    "GemmShape",
    "GroupedShape",
    "HardwareOverrides",
    "HostCosts",
    "Link",
    "LinkKind",
    "MeasuredCollective",
    "MeasuredMode",
    "MeasuredRates",
    "MeasuredTime",
    "ModelStatus",
    "OrigamiTarget",
    "OutsideMeasurement",
    "Provenance",
    "Rates",
    "RefusedModel",
    "Regime",
    "ReservedRatio",
    "TokenizerVocabulary",
    "citations",
    "device",
    "device_of",
    "devices",
    "dispatch_buffers",
    "host_costs",
    "measured_modes",
    "measured_times",
    "model",
    "models",
    "origami_targets",
    "peak_format",
    "refused_models",
    "reserved_ratio",
    "tokenizer_vocabulary",
]

_HERE = Path(__file__).parent
_DEVICES = _HERE / "devices"
_MODELS = _HERE / "models"


def device(name: str) -> Device:
    """The GPU called `name`: canonical name, alias, node label, architecture or PCI device id, in any case.

    Raises `DeviceUnknown`, which names the nearest known ones.
    """
    path = names.find(_DEVICES, name)
    if path is None:
        from difflib import get_close_matches  # noqa: PLC0415 - for complaints alone

        near = get_close_matches(names.normalised(name), names.known_names(_DEVICES), n=1, cutoff=0.6)
        hint = f"did you mean {near[0]}? " if near else ""
        known = ", ".join(stem.upper() for stem in names.stems(_DEVICES))
        raise DeviceUnknown(f"the GPU {shown(name)} is not in the catalog", expected=f"{hint}known are {known}")
    return _device(path)


def devices() -> tuple[Device, ...]:
    """Every GPU of the catalog, by name."""
    return tuple(_device(_DEVICES / f"{stem}.yaml") for stem in names.stems(_DEVICES))


def model(name: str) -> CatalogModel:
    """The model called `name`: canonical name, framework preset or Hugging Face repository, in any case.

    Raises `PresetUnknown`, which names the nearest known ones, and `NotAvailable` for a model that the engine cannot
    describe at all, with the reason.
    """
    path = names.find(_MODELS, name)
    if path is None:
        from difflib import get_close_matches  # noqa: PLC0415 - for complaints alone

        near = get_close_matches(names.normalised(name), names.known_names(_MODELS), n=3, cutoff=0.6)
        hint = f"did you mean {', '.join(near)}?" if near else "`projector models` lists what is known"
        raise PresetUnknown(f"the model {shown(name)} is not in the catalog", expected=hint)
    found = _model(path)
    if isinstance(found, RefusedModel):
        raise NotAvailable(f"the model {shown(name)} {found.reason}", expected="`projector models` lists what is known")
    return found


def models() -> tuple[CatalogModel, ...]:
    """Every model of the catalog that `model` answers, by name."""
    return tuple(found for found in _all_models() if isinstance(found, CatalogModel))


def refused_models() -> tuple[RefusedModel, ...]:
    """Every model that `model` refuses, by name."""
    return tuple(found for found in _all_models() if isinstance(found, RefusedModel))


def tokenizer_vocabulary(tokenizer_type: str | None, tokenizer_model: str | None) -> TokenizerVocabulary | None:
    """Sizes of the tokenizer that a configuration names, None when the catalog does not know it.

    `tokenizer_model` (a Hugging Face repository) decides where it is known; `tokenizer_type` by itself only for
    types that always mean the same vocabulary.
    """
    return find_vocabulary(tokenizer_type, tokenizer_model)


def citations() -> dict[str, str]:
    """Full citation of every source tag in `Provenance.source`."""
    return {tag: str(text) for tag, text in read_mapping(_HERE / "sources.yaml").items()}


@cache
def _device(path: Path) -> Device:
    return read_device(path)


def _all_models() -> tuple[CatalogModel | RefusedModel, ...]:
    return tuple(_model(_MODELS / f"{stem}.yaml") for stem in names.stems(_MODELS))


@cache
def _model(path: Path) -> CatalogModel | RefusedModel:
    return read_model(path)
