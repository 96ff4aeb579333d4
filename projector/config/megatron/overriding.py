"""Values given beside a Megatron-LM configuration: any spelling of an argument, under the name it is kept by."""

from collections.abc import Collection, Sequence

from projector.config.megatron.facts import VERSION_KEYS, megatron_facts
from projector.config.megatron.flags import Kind, find_flag, keys_of_flags
from projector.config.megatron.former import today
from projector.config.megatron.values import Collected, from_mapping
from projector.config.overrides import Override
from projector.config.overriding import overridden
from projector.config.tree import flatten
from projector.errors import ConfigurationError

_CHUNKS = frozenset(
    {
        "virtual_pipeline_model_parallel_size",
        "num_virtual_stages_per_pipeline_rank",
        "num_layers_per_virtual_pipeline_stage",
        "pipeline_model_parallel_layout",
    }
)
"""Arguments of which any one decides the model chunks of a stage: one given beside the file replaces the others."""


def override(arguments: Collected, overrides: Sequence[Override]) -> None:
    """Lay the overrides on top of the arguments; raises `ConfigurationError` for a name that is not known."""
    own = [_in_own_words(each) for each in overrides]
    for each in own:
        if each.key in _CHUNKS:
            for other in _CHUNKS - {each.key}:
                arguments.drop(other)
        arguments.unusable.pop(each.key, None)
    known = {*megatron_facts().known, *keys_of_flags(), *_CHUNKS, *VERSION_KEYS}
    arguments.values = flatten(overridden(dict(arguments.values), own, known=known))


def refuse_variables(overrides: Sequence[Override], variables: Collection[str]) -> None:
    """Raise `ConfigurationError` for an override that means a variable of the script: those are set beside it."""
    for each in overrides:
        if each.key in variables and find_flag(each.key.replace("-", "_")) is None:
            message = f"{each.key} is a variable of the script, not a value of the configuration"
            expected = f"set it in front of the command ({each.key}=... projector ...) or in spec.training.variables"
            raise ConfigurationError(message, place="override", expected=expected)


def _in_own_words(given: Override) -> Override:
    """The override under today's name of its argument, with its value read as the argument's type."""
    key, value = given.key.replace("-", "_"), given.value
    flag = find_flag(key)
    if key not in keys_of_flags() and flag is not None:
        key = flag.key
        if flag.kind is Kind.OFF and isinstance(value, bool):
            value = not value
    key = today(key)
    return Override(key=key, value=from_mapping(key, value, place=f"override {given.key}"))
