"""Overrides on TorchTitan's values, under its own keys or the names that options and requests share."""

from collections.abc import Sequence

from projector.config.overrides import Override
from projector.config.overriding import overridden
from projector.config.shared_names import in_own_words
from projector.config.torchtitan.facts import torchtitan_facts
from projector.config.torchtitan.spelling import TitanKeys
from projector.config.tree import Tree, flatten

_DEPENDS = "micro_batch_size"
"""The shared name whose key depends on whether there is a pipeline, which another override may decide."""


def with_overrides(tree: Tree, overrides: Sequence[Override]) -> Tree:
    """The tree with the overrides on top; raises `ConfigurationError` for a name that is not known."""
    known = torchtitan_facts().known
    for group in (
        [override for override in overrides if override.key != _DEPENDS],
        [override for override in overrides if override.key == _DEPENDS],
    ):
        if group:
            own = in_own_words(group, TitanKeys(flatten(tree)).spelling())
            tree = overridden(tree, own, known=known)
    return tree
