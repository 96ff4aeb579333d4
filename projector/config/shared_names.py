"""Names that options, requests and people use whatever the dialect of the file: Megatron-LM's.

Each reader states its own key for them (`LoadedConfiguration.spelling`), so that `--micro-batch-size 2` means the same
for every file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from projector.config.overrides import Override


def in_own_words(overrides: Sequence[Override], spelling: Mapping[str, str]) -> tuple[Override, ...]:
    """The overrides under the keys of a dialect; names that the dialect does not spell otherwise stay as they are."""
    return tuple(replace(override, key=spelling.get(override.key, override.key)) for override in overrides)
