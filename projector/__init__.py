"""Does a distributed LLM training job fit in each GPU's memory, and how fast will it run?

`project(Question(text=...))` answers both. Names are loaded when they are used, so that importing the package costs
nothing.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from projector.api import Question, project
    from projector.projection import Projection

__all__ = ["Projection", "Question", "project"]

_HOMES = {"Projection": "projector.projection", "Question": "projector.api", "project": "projector.api"}


def __getattr__(name: str) -> object:
    """Load a public name from its home."""
    home = _HOMES.get(name)
    if home is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module  # noqa: PLC0415 - only when a name is used

    return getattr(import_module(home), name)
