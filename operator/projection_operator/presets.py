"""Recipes that `spec.training.preset` can name: the files of `projector/catalog/recipes`."""

from functools import cache
from importlib import resources

from projector.errors import PresetUnknown

_SUFFIX = ".yaml"


@cache
def preset_names() -> tuple[str, ...]:
    """Every known recipe, sorted."""
    folder = resources.files("projector") / "catalog" / "recipes"
    return tuple(sorted(item.name.removesuffix(_SUFFIX) for item in folder.iterdir() if item.name.endswith(_SUFFIX)))


def preset_text(name: str) -> str:
    """Content of a recipe; `PresetUnknown`, with the known names, when there is none of that name.

    The name is looked up among the known ones and never becomes part of a path by itself.
    """
    if name not in preset_names():
        known = ", ".join(preset_names())
        raise PresetUnknown(
            f"no recipe is called {name!r}", place="spec.training.preset", expected=f"known are {known}"
        )
    return (resources.files("projector") / "catalog" / "recipes" / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
