"""What a config.json leaves open or says of other code: sizes by default, misspelt keys, classes of another family."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches

from projector.config.huggingface.facts import Family
from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.errors import ConfigurationError, shown
from projector.provenance import ConfigValue

_HEADS = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
"""How the names of classes end that predict tokens."""
_REMOTE = "auto_map"
"""Section that names classes of code beside the config.json; each value is `module.Class`."""
_NEAR = 0.85
"""Likeness (difflib) from which a key is taken for another one misspelt."""
_LONGEST_KEY, _MOST_KEYS = 100, 200
"""Characters of a key and number of keys that are compared: likeness takes long."""


def renamed(text: Mapping[str, ConfigValue], aliases: Mapping[str, str], *, name: str) -> dict[str, ConfigValue]:
    """The values by the family's own keys; raises `ConfigurationError` where a key and its alias disagree."""
    values = {key: value for key, value in text.items() if key not in aliases}
    for alias in (key for key in text if key in aliases):
        key, value = aliases[alias], text[alias]
        other = values.setdefault(key, value)
        if other.value != value.value:
            message = f"{alias} is {shown(value.value)} and {other.key} is {shown(other.value)}"
            expected = f"one of the two: both are {key}"
            raise ConfigurationError(message, place=f"{value.file or name}: {alias}", expected=expected)
    return values


def assume_sizes(keys: Keys, defaults: Mapping[str, ConfigValue], family: Family, notes: Notes) -> None:
    """Say which numbers that decided something come from the defaults of the class."""
    sizes = {key: value.value for key, value in defaults.items() if type(value.value) is int and key in keys.read}
    if sizes:
        listed = ", ".join(f"{key} {value}" for key, value in sorted(sizes.items()))
        why = f"config.json leaves them out, and {family.config_class} of transformers 5.24.0 makes them so; state them"
        notes.assume(listed, why)


def refuse_misspelt(text: Mapping[str, ConfigValue], family: Family, known: Collection[str], *, name: str) -> None:
    """Raise `ConfigurationError` for a key that nobody knows and that is nearly one that the family leaves out."""
    absent = family.keys.difference(text)
    whole = (key for key in text if "." not in key and len(key) <= _LONGEST_KEY)
    unknown = [key for key in whole if key not in known and key not in family.keys]
    for key in unknown[:_MOST_KEYS]:
        for match in get_close_matches(key, absent, n=1, cutoff=_NEAR):
            message = f"is not a key of models of the type {family.name}"
            expected = f"did you mean {match}, which is not stated?"
            raise ConfigurationError(message, place=f"{text[key].file or name}: {key}", expected=expected)


def note_classes(stated: Mapping[str, ConfigValue], family: Family, notes: Notes, *, nested: bool, name: str) -> None:
    """Say which classes the file names beside those of its `model_type`, whose layers are counted.

    A nested decoder stands in a class of another name, which the note on what surrounds it covers.
    """
    own = "" if nested else _stem(family.config_class.removesuffix("Config").removesuffix("Text"))
    listed = stated.get("architectures")
    names = [str(item) for item in listed.value] if listed is not None and isinstance(listed.value, list) else []
    for other in names:
        place = f"{name}: architectures"
        head = next((end for end in _HEADS if other.endswith(end)), None)
        if head is None:
            effect = "a token head is counted"
            notes.not_modelled(f"the head of {other}", where=place, effect=effect, decides=True)
        elif own and _stem(other.removesuffix(head)) != own:
            _note_other(f"the layers of {other}", family, notes, where=place)
    for key, value in stated.items():
        section, _, kind = key.partition(".")
        if section != _REMOTE or not isinstance(value.value, str) or kind.startswith("AutoTokenizer"):
            continue
        other = value.value.rpartition(".")[2]
        if own and not _stem(other).startswith(own):
            _note_other(f"the code of {value.value}", family, notes, where=f"{name}: {key}")


def _note_other(what: str, family: Family, notes: Notes, *, where: str) -> None:
    effect = f"those of {family.config_class}, the class of model_type {family.name}, are counted"
    notes.not_modelled(what, where=where, effect=effect, decides=True)


def _stem(name: str) -> str:
    """A name of a class without what differs between two spellings of it."""
    return name.lower().replace("_", "")
