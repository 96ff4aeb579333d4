"""Names that options, requests and people use whatever the dialect of the file: Megatron-LM's.

Each reader states its own key for them (`LoadedConfiguration.spelling`), so that `--micro-batch-size 2` means the same
for every file.
"""

from collections.abc import Mapping, Sequence

from projector.config.overrides import Override
from projector.errors import ConfigurationError, shown


def in_own_words(overrides: Sequence[Override], spelling: Mapping[str, str]) -> tuple[Override, ...]:
    """The overrides under the keys of a dialect; names that the dialect does not spell otherwise stay as they are.

    Raises `ConfigurationError` where two names of one key say different things; of one name, the later wins.
    """
    own = [override._replace(key=spelling.get(override.key, override.key)) for override in overrides]
    said: dict[str, Override] = {}
    for given, translated in zip(overrides, own, strict=True):
        before = said.setdefault(translated.key, given)
        if before.key != given.key and before.value != given.value:
            message = f"{before.key} says {shown(before.value)}, {given.key} says {shown(given.value)}"
            raise ConfigurationError(message, place=f"override {translated.key}", expected="say one of the two")
        said[translated.key] = given
    return tuple(own)
