"""Resolving a Primus experiment file into the flat values of its trainer module.

Order of AMD-AGI/Primus fd1eeabb (primus/core/config): the file with its `extends`; the module preset; keys of the model
preset that the module preset lacks; other keys of the module that the presets lack; the module's `overrides` on top;
overrides from outside last. A text `null` at the top level of the module becomes null.

What differs from Primus on purpose is listed in docs/primus-loader.md.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, NoReturn

from projector.config.nearest import nearest
from projector.config.primus.presets import Presets, file_name
from projector.config.tree import Tree, merge, rekey, subtree
from projector.errors import ConfigurationError, NotAvailable, shown
from projector.provenance import ConfigValue, Source

REQUIRED = ("work_group", "user_name", "exp_name", "workspace")
"""Keys without which Primus refuses an experiment file."""
FRAMEWORKS = ("megatron", "torchtitan", "maxtext", "megatron_bridge")
"""Frameworks of Primus that are read, each by the module of its name."""
_DIFFUSION = "diffusion models are not modelled; what works instead: language models"
_RECOMMENDER = "recommenders are not modelled; what works instead: language models"
FRAMEWORKS_REFUSED = {
    "diffusion": _DIFFUSION,
    "nemo_automodel": _DIFFUSION,
    "hummingbirdxt": _DIFFUSION,
    "maxdiffusion": _DIFFUSION,
    "torchrec_dlrm": _RECOMMENDER,
    "torchrec": _RECOMMENDER,
    "dlrm": _RECOMMENDER,
    "dlrm_v4": _RECOMMENDER,
}
"""Frameworks of Primus that are not read, with the reason: what their recipes train is none of the engine's models
(AMD-AGI/Primus primus/backends and primus/configs/models)."""

_NOT_VALUES = {"framework", "config", "model", "overrides"}


class Module(NamedTuple):
    """A trainer module with all its values."""

    name: str
    """Such as `pre_trainer`."""
    framework: str
    """One of `FRAMEWORKS`."""
    config: str | None
    """Module preset as the file names it; None for a module that is already flat."""
    model: str | None
    """Model preset as the file names it."""
    tree: Tree
    """Effective values, before what is given beside the file."""
    place: str
    """File and module, for messages."""
    others: tuple[str, ...] = ()
    """Keys of the experiment file outside this module, other modules included."""


def resolve(tree: Tree, *, name: str, presets: Presets) -> Module:
    """Resolve the trainer module of an experiment file.

    Raises `ConfigurationError` for what is missing, malformed or unknown, `PresetUnknown` for presets, `NotAvailable`
    for frameworks that are not read yet.
    """
    for key in REQUIRED:
        if key not in tree:
            expected = "Primus requires it; any text will do"
            raise ConfigurationError("is missing", place=f"{name}: {key}", expected=expected)
    modules = subtree(tree, "modules")
    if not modules:
        problem = "is not a mapping" if modules is None else "is missing or empty"
        raise ConfigurationError(problem, place=f"{name}: modules", expected="a mapping with pre_trainer")
    for module_name, module in modules.items():
        if "trainer" not in module_name:
            expected = "names that contain `trainer`, such as pre_trainer"
            raise ConfigurationError(f"{module_name!r} is no trainer", place=f"{name}: modules", expected=expected)
        if not isinstance(module, dict):
            raise ConfigurationError("is not a mapping", place=f"{name}: modules.{module_name}")
    chosen = "pre_trainer" if "pre_trainer" in modules else next(iter(modules))
    others = [f"modules.{other}" for other in modules if other != chosen]
    others += [key for key in tree if key not in {*REQUIRED, "modules"}]
    module = modules[chosen]
    assert isinstance(module, dict)  # noqa: S101 - checked above; for the type checker
    place = f"{name}: modules.{chosen}"
    framework = _framework(module, place)
    config, model, below = _below(module, framework, place=place, presets=presets)
    stated = subtree(module, "overrides")
    if stated is None:
        raise ConfigurationError("is not a mapping", place=f"{place}.overrides")
    merged = nulls(merge(below, rekey(stated)))
    return Module(
        name=chosen,
        framework=framework,
        config=config,
        model=model,
        tree=merged,
        place=place,
        others=tuple(others),
    )


def _framework(module: Tree, place: str) -> str:
    framework = _text(module, "framework", place)
    if framework is None:
        raise ConfigurationError("is missing", place=f"{place}.framework", expected="megatron")
    if framework in FRAMEWORKS_REFUSED:
        what, _, instead = FRAMEWORKS_REFUSED[framework].partition("; ")
        raise NotAvailable(f"{framework}: {what}", place=f"{place}.framework", expected=instead)
    if framework not in FRAMEWORKS:
        expected = nearest(framework, [*FRAMEWORKS, *FRAMEWORKS_REFUSED])
        message = f"{framework!r} is not a framework of Primus"
        raise ConfigurationError(message, place=f"{place}.framework", expected=expected)
    return framework


def _below(module: Tree, framework: str, *, place: str, presets: Presets) -> tuple[str | None, str | None, Tree]:
    """Names of the module and model preset, and what lies below the module's `overrides`."""
    config, model = _text(module, "config", place), _text(module, "model", place)
    if config is not None and model is None:
        expected = "a model preset, such as llama3.1_70B.yaml"
        raise ConfigurationError("is missing", place=f"{place}.model", expected=expected)
    if (model or "").startswith("diffusion/"):
        refuse_diffusion(model, place=place)
    own = rekey({key: value for key, value in module.items() if key not in _NOT_VALUES})
    if config is None or model is None:
        return config, model, own
    return config, model, {**own, **_presets(framework, config, model, place, presets)}


def refuse_diffusion(model: str | None, *, place: str) -> NoReturn:
    """Say that no diffusion model can be projected; `place` is the module."""
    what, _, instead = _DIFFUSION.partition("; ")
    raise NotAvailable(f"{model}: {what}", place=f"{place}.model", expected=instead)


def _presets(framework: str, config: str, model: str, place: str, presets: Presets) -> Tree:
    """The module preset, and the model preset's keys where the module preset has none."""
    module_values = presets.module(framework, config, place=f"{place}.config")
    model_values = presets.model(framework, model, place=f"{place}.model")
    stem = Path(file_name(model)).stem
    named: Tree = {
        "model": ConfigValue(key="model", value=stem, source=Source.EXPERIMENT, file=place.partition(":")[0])
    }
    return {**named, **{key: value for key, value in model_values.items() if key != "name"}, **module_values}


def _text(module: Tree, key: str, place: str) -> str | None:
    stated = module.get(key)
    if stated is None:
        return None
    value = stated.value if isinstance(stated, ConfigValue) else stated
    if value is not None and not isinstance(value, str):
        what = "a mapping" if isinstance(value, dict) else shown(value)
        raise ConfigurationError(f"{what} is not a text", place=f"{place}.{key}", expected="a name")
    return value or None


def nulls(tree: Tree) -> Tree:
    """`null` as text, left over from `${VAR:null}` or typed as an override, is null at the top level."""
    return {
        key: replace(value, value=None) if isinstance(value, ConfigValue) and value.value == "null" else value
        for key, value in tree.items()
    }
