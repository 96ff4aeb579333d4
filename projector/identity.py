"""Results that follow from a large immutable value, remembered by which value it is.

Hashing or comparing the layers of a model or the operations of a layer takes longer than most of what is derived from
them, and equal ones are nearly always one object, so identity is enough.
"""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

Value = TypeVar("Value")
More = ParamSpec("More")
Result = TypeVar("Result")

REMEMBERED = 512
"""Results of one function that are kept, as many as there are layers (`projector.layers.decoder`); a projection needs
about ten."""


def remembered(derive: Callable[Concatenate[Value, More], Result]) -> Callable[Concatenate[Value, More], Result]:
    """A function of a value, and of further hashable arguments, that is computed once for each."""
    known: dict[Hashable, tuple[Value, Result]] = {}

    @wraps(derive)
    def lookup(value: Value, /, *more: More.args, **named: More.kwargs) -> Result:
        key = (id(value), *more, *named.items()) if more or named else id(value)
        found = known.get(key)
        if found is None:
            if len(known) >= REMEMBERED:
                known.clear()
            # The value is kept beside the result, so that no other one can get its identity meanwhile.
            found = known[key] = value, derive(value, *more, **named)
        return found[1]

    return lookup
