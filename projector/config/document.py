"""A configuration as it comes in, with all that its reader may use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from projector.config.files import Files
from projector.config.overrides import Override


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """What a reader gets. There is nothing else: no environment, no working directory."""

    text: str
    """Content of the file, decoded and within the limit on its size."""
    name: str
    """What messages call the file."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Values for variables in the text."""
    overrides: Sequence[Override] = ()
    """Values given beside the file, in order; later ones win."""
    primus_root: Path | None = None
    """A Primus checkout with presets; None takes them from the catalog."""
    files: Files | None = None
    """Where files that the text names may lie; None allows none."""
    path: Path | None = None
    """The text's own file, inside `files`; None when it came from elsewhere."""
    companions: Mapping[str, str] = field(default_factory=dict)
    """Texts of files given beside it, by name, such as a DeepSpeed configuration."""
