"""Values given beside a file, laid on top of the file's own."""

from collections.abc import Collection, Sequence

from projector.config.nearest import nearest
from projector.config.overrides import Override
from projector.config.tree import Tree, build, flatten, merge, nested
from projector.errors import ConfigurationError, shown
from projector.provenance import ConfigValue, Source


def overridden(tree: Tree, overrides: Sequence[Override], *, known: Collection[str] = ()) -> Tree:
    """The tree with the overrides on top, later ones last.

    A name must stand in the tree or among the `known` ones. Raises `ConfigurationError` for another.
    """
    names = {*flatten(tree), *tree, *known} if overrides else set()
    for override in overrides:
        if override.key not in names:
            message = f"{shown(override.key)} is not a value of this configuration"
            raise ConfigurationError(message, place="override", expected=nearest(override.key, names))
        patch: Tree | ConfigValue = ConfigValue(key=override.key, value=override.value, source=Source.OVERRIDE)
        if isinstance(override.value, dict):
            prefix = f"{override.key}."
            patch = build(override.value, source=Source.OVERRIDE, file="override", variables={}, prefix=prefix)
            names |= flatten(patch).keys()
        tree = merge(tree, nested(override.key, patch))
    return tree
