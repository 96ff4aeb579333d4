"""Readers of people's training configurations: text or file in, `LoadedConfiguration` out.

Where the parts are: `reading` recognises the dialect; `primus` holds the reader of Primus experiment files;
`hardware_file` reads figures of a machine; `safe_yaml`, `variables`, `expressions`, `files` and `overrides` are what
every reader shares to take in untrusted text; `tree` keeps the source of each value.
"""

from projector.config.hardware_file import read_hardware_file
from projector.config.overrides import Override, overrides_from_pairs, parse_override, parse_overrides
from projector.config.reading import FORMATS, detect, read, read_file
from projector.provenance import Assumption, ConfigValue, LoadedConfiguration, Source, Unmodelled

__all__ = [
    "FORMATS",
    "Assumption",
    "ConfigValue",
    "LoadedConfiguration",
    "Override",
    "Source",
    "Unmodelled",
    "detect",
    "overrides_from_pairs",
    "parse_override",
    "parse_overrides",
    "read",
    "read_file",
    "read_hardware_file",
]
