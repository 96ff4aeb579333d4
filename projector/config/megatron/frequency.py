"""Which layers hold what: a period, or a flag for each layer (`moe_freq_type` of megatron/training/arguments.py)."""

from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.errors import ConfigurationError

_EXPECTED = "an integer of at least 1, or a list of 0 and 1"


def frequency(keys: Keys, key: str, notes: Notes, *, layers: int) -> int | list[bool] | None:
    """A period, or a flag for each layer; either may be written as a text. None when nothing is stated.

    A longer list is cut, so that a proxy with fewer layers keeps the pattern's beginning; a shorter one is an error, as
    is any other value.
    """
    value = keys.raw(key)
    if isinstance(value, str):
        found = keys.integers(key)
        value = found[0] if found is not None and len(found) == 1 and layers > 1 else found
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            keys.wrong(key, _EXPECTED)
        return value
    pattern = keys.integers(key)
    if pattern is None or any(flag not in {0, 1} for flag in pattern):
        keys.wrong(key, _EXPECTED)
    return [bool(flag) for flag in _cut(pattern, keys, key, notes, layers=layers)]


def all_but_every(frequency: int | list[bool] | None, *, layers: int) -> list[bool]:
    """Flags of layers of which every n-th is left out, and none without a period; a list says it itself."""
    if isinstance(frequency, list):
        return frequency
    return [frequency is None or (index + 1) % frequency != 0 for index in range(layers)]


def _cut(pattern: list[int], keys: Keys, key: str, notes: Notes, *, layers: int) -> list[int]:
    if len(pattern) < layers:
        message = f"{len(pattern)} entries for {layers} layers"
        expected = f"{layers} entries, or a period as an integer"
        raise ConfigurationError(message, place=keys.place(key), expected=expected)
    if len(pattern) > layers:
        notes.assume(
            f"the first {layers} of {len(pattern)} entries of {key}",
            f"num_layers is {layers}; a longer pattern is cut, as for a proxy of a deeper model",
        )
    return pattern[:layers]
