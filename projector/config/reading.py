"""Recognising a configuration's dialect and handing it to its reader.

Everything a reader needs comes in as arguments: no environment, no working directory. The command passes
`os.environ` as variables, the operator passes the variables of the request.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from projector.config.files import Files
from projector.config.nearest import nearest
from projector.config.overrides import Override
from projector.config.primus.experiment import is_experiment, resolve
from projector.config.primus.extends import Extender
from projector.config.primus.job import load
from projector.config.primus.presets import CatalogPresets, Presets, TreePresets
from projector.config.safe_yaml import parse_mapping
from projector.config.variables import Counted
from projector.errors import ConfigurationError, NotAvailable
from projector.provenance import LoadedConfiguration, Source

FORMATS = ("primus", "megatron", "torchtitan", "huggingface", "projector")
"""Dialects by name; only `primus` is read so far."""


def read(  # noqa: PLR0913 - each argument is one thing that a configuration depends on
    text: str | bytes,
    *,
    name: str,
    format: str | None = None,  # noqa: A002 - the word people use, and the field's name in a request
    variables: Mapping[str, str] | None = None,
    overrides: Sequence[Override] = (),
    primus_root: Path | None = None,
    root: Path | None = None,
) -> LoadedConfiguration:
    """Read a configuration from its text.

    `name` is what messages call it. `root` is the folder that `extends` of the text may reach, relative to it; without
    one the text may not extend anything. `primus_root` is a Primus checkout with presets; without one they come from
    the catalog. Raises `ConfigurationError` and its children, `LayoutImpossible`, `NotAvailable`.
    """
    files = None if root is None else Files(root)
    return _read(
        text,
        name=name,
        format_=format,
        variables=variables or {},
        overrides=overrides,
        primus_root=primus_root,
        files=files,
        path=None,
    )


def read_file(  # noqa: PLR0913 - as `read`
    path: Path,
    *,
    format: str | None = None,  # noqa: A002 - as `read`
    variables: Mapping[str, str] | None = None,
    overrides: Sequence[Override] = (),
    primus_root: Path | None = None,
    root: Path | None = None,
) -> LoadedConfiguration:
    """Read a configuration file.

    `root` bounds what its `extends` may reach: by default the Primus checkout when the file lies inside it, else the
    file's own folder. Raises what `read` raises.
    """
    absolute = path.resolve()
    if root is None:
        inside = primus_root is not None and absolute.is_relative_to(primus_root.resolve())
        root = primus_root if inside and primus_root is not None else absolute.parent
    files = Files(root)
    located = files.locate(str(absolute), place="configuration file")
    return _read(
        files.read(located),
        name=files.label(located),
        format_=format,
        variables=variables or {},
        overrides=overrides,
        primus_root=primus_root,
        files=files,
        path=located,
    )


def detect(content: Mapping[str, Any], *, name: str) -> str:
    """The dialect of a parsed configuration; raises `ConfigurationError` when it looks like none of them."""
    modules = content.get("modules")
    if isinstance(modules, Mapping):
        return "primus"
    if {"architectures", "hidden_size"} <= content.keys() or "model_type" in content:
        return "huggingface"
    if isinstance(content.get("model"), Mapping) and isinstance(content.get("parallelism"), Mapping):
        return "torchtitan"
    if "apiVersion" in content:
        message = "this is a Kubernetes object, not a training configuration"
        raise ConfigurationError(message, place=name, expected="the training configuration that it carries")
    if any(key.replace("-", "_").lstrip("_") in {"num_layers", "MODEL_ARGS"} for key in content):
        return "megatron"
    expected = "a Primus experiment file: work_group, user_name, exp_name, workspace and modules.pre_trainer"
    raise ConfigurationError("not a training configuration that is known", place=name, expected=expected)


def _read(  # noqa: PLR0913 - as `read`
    text: str | bytes,
    *,
    name: str,
    format_: str | None,
    variables: Mapping[str, str],
    overrides: Sequence[Override],
    primus_root: Path | None,
    files: Files | None,
    path: Path | None,
) -> LoadedConfiguration:
    dialect = format_.lower() if format_ is not None else None
    if dialect is not None and dialect not in FORMATS:
        raise ConfigurationError(f"{format_!r} is not a format", place="format", expected=nearest(dialect, FORMATS))
    if dialect not in {None, "primus"}:
        message = f"the format {dialect} is not available yet"
        raise NotAvailable(message, place=name, expected="a Primus experiment file")
    variables = Counted(variables)
    extender = Extender(files=files, source=Source.EXPERIMENT, variables=variables)
    tree = extender.file(path) if path is not None else extender.text(text, name=name)
    if dialect is None and not is_experiment(tree):
        dialect = detect(parse_mapping(text, name=name), name=name)
        if dialect != "primus":
            message = f"this looks like the format {dialect}, which is not available yet"
            raise NotAvailable(message, place=name, expected="a Primus experiment file")
    presets: Presets = CatalogPresets(variables) if primus_root is None else TreePresets(primus_root, variables)
    return load(resolve(tree, name=name, presets=presets, overrides=overrides), file=name)
