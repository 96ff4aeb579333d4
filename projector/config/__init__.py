"""Readers of people's training configurations: text or file in, `LoadedConfiguration` out.

Where the parts are: `detection` recognises the dialect and `reading` calls its reader; `primus`, `megatron`,
`torchtitan`, `huggingface` and `own` hold one reader each; `hardware_file`, `gpu_file` and `calibration_file` read
figures of a machine, `pipeline_file` given chunk times; `safe_yaml`, `variables`, `expressions`, `files` and
`overrides` are what every reader shares to take in untrusted text; `tree` keeps the source of each value, `keys` types
it, `notes` collects what has to be said.
"""

from projector.config.allocator_settings import VARIABLES as ALLOCATOR_VARIABLES
from projector.config.detection import FORMATS, detect
from projector.config.gpu_file import named_device, read_gpu_files
from projector.config.hardware_file import read_hardware_file
from projector.config.overrides import Override, overrides_from_pairs, parse_override, parse_overrides
from projector.config.reading import read, read_file
from projector.provenance import Assumption, ConfigValue, LoadedConfiguration, Source, Unmodelled

__all__ = [
    "ALLOCATOR_VARIABLES",
    "FORMATS",
    "Assumption",
    "ConfigValue",
    "LoadedConfiguration",
    "Override",
    "Source",
    "Unmodelled",
    "detect",
    "named_device",
    "overrides_from_pairs",
    "parse_override",
    "parse_overrides",
    "read",
    "read_file",
    "read_gpu_files",
    "read_hardware_file",
]
