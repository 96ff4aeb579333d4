"""From a text or file to the reader of its dialect.

Everything a reader needs comes in as arguments: no environment, no working directory. The command passes
`os.environ` as variables, the operator passes the variables of the request.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from projector.config.allocator_settings import with_allocator_settings
from projector.config.detection import FORMATS, detect
from projector.config.document import Document
from projector.config.files import Files, decoded
from projector.config.nearest import nearest
from projector.config.overrides import Override
from projector.config.variables import Counted
from projector.errors import ConfigurationError
from projector.provenance import LoadedConfiguration

_READERS = {
    "primus": "projector.config.primus.reader",
    "megatron": "projector.config.megatron.reader",
    "torchtitan": "projector.config.torchtitan.reader",
    "huggingface": "projector.config.huggingface.reader",
    "projector": "projector.config.own.reader",
}
"""Module whose `read` takes a document of the dialect; imported when the first one comes."""
_WITH_COMPANIONS = frozenset({"huggingface", "megatron"})
"""Dialects that take files beside the configuration."""


def read(  # noqa: PLR0913 - each argument is one thing that a configuration depends on
    text: str | bytes,
    *,
    name: str,
    format: str | None = None,  # noqa: A002 - the word people use, and the field's name in a request
    variables: Mapping[str, str] | None = None,
    overrides: Sequence[Override] = (),
    primus_root: Path | None = None,
    root: Path | None = None,
    companions: Mapping[str, str] | None = None,
) -> LoadedConfiguration:
    """Read a configuration from its text.

    `name` is what messages call it. `root` is the folder that `extends` of the text may reach, relative to it; without
    one the text may not extend anything. `primus_root` is a Primus checkout with presets; without one they come from
    the catalog. `companions` are texts of files beside it, by name.

    Raises `ConfigurationError` and its children, `LayoutImpossible`, `NotAvailable`.
    """
    document = Document(
        text=decoded(text, name=name),
        name=name,
        variables=Counted(variables or {}),
        overrides=overrides,
        primus_root=primus_root,
        files=None if root is None else Files(root),
        companions=companions or {},
    )
    return _read(document, format)


def read_file(  # noqa: PLR0913 - as `read`
    path: Path,
    *,
    format: str | None = None,  # noqa: A002 - as `read`
    variables: Mapping[str, str] | None = None,
    overrides: Sequence[Override] = (),
    primus_root: Path | None = None,
    root: Path | None = None,
    companions: Mapping[str, str] | None = None,
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
    document = Document(
        text=decoded(files.read(located), name=files.label(located)),
        name=files.label(located),
        variables=Counted(variables or {}),
        overrides=overrides,
        primus_root=primus_root,
        files=files,
        path=located,
        companions=companions or {},
    )
    return _read(document, format)


def _reader(dialect: str) -> Callable[[Document], LoadedConfiguration]:
    reader: Callable[[Document], LoadedConfiguration] = import_module(_READERS[dialect]).read
    return reader


def _read(document: Document, format_: str | None) -> LoadedConfiguration:
    dialect = format_.lower() if format_ is not None else None
    if dialect is not None and dialect not in FORMATS:
        raise ConfigurationError(f"{format_!r} is not a format", place="format", expected=nearest(dialect, FORMATS))
    dialect = dialect or detect(document.text, name=document.name)
    if document.companions and dialect not in _WITH_COMPANIONS:
        message = f"stands beside a configuration of the format {dialect}, which states everything itself"
        expected = f"a file beside it serves the formats {', '.join(sorted(_WITH_COMPANIONS))} alone"
        raise ConfigurationError(message, place=min(document.companions), expected=expected)
    try:
        loaded = _reader(dialect)(document)
        # The own format states the allocator's settings among its values.
        return loaded if dialect == "projector" else with_allocator_settings(loaded, document.variables)
    except ConfigurationError as error:
        hint = "" if format_ is None else _seems_other(document, dialect)
        if not hint:
            raise
        expected = f"{error.expected}; {hint}" if error.expected else hint
        raise type(error)(error.message, place=error.place, expected=expected) from error


def _seems_other(document: Document, dialect: str) -> str:
    """What the content looks like when that is not the format that was asked for; empty else."""
    try:
        seems = detect(document.text, name=document.name)
    except ConfigurationError:
        return ""
    return f"the content looks like {seems}, not {dialect}" if seems != dialect else ""
