"""Typed access to the flattened values of a configuration, with a record of which keys were read.

A key that no file states takes the framework's own default, which the caller passes; so it happens in the real run. A
value of the wrong type is an error that names key, file, value and what would be right.
"""

from collections.abc import Iterable, Mapping
from typing import NoReturn, overload

from projector.config.expressions import evaluate
from projector.config.nearest import nearest
from projector.errors import ConfigurationError, shown
from projector.job.limits import MAXIMUM_INTEGER
from projector.provenance import ConfigValue, Source


class Keys:
    """The values of one configuration."""

    def __init__(
        self,
        values: Mapping[str, ConfigValue],
        *,
        defaults: Mapping[str, object] | None = None,
        unusable: Mapping[str, ConfigurationError] | None = None,
        file: str | None = None,
    ) -> None:
        """`values` by dotted key; `file` is the place of a key that nothing states.

        `defaults` stand for keys that are absent and whose default depends on the framework's version; `unusable` are
        keys whose value nobody can read, with the error for whoever asks for it.
        """
        self.values = values
        self._defaults = defaults or {}
        self._unusable = unusable or {}
        self._file = file
        self.read: set[str] = set()
        self.sections = {key[: key.rindex(".")] for key in values if "." in key}

    def raw(self, key: str) -> object:
        """The value as it stands, None when absent; raises `ConfigurationError` for a mapping or an unusable value."""
        self.read.add(key)
        if key in self._unusable:
            raise self._unusable[key]
        stated = self.values.get(key)
        if stated is None and key in self.sections:
            place = next(self.place(inner) for inner in self.values if inner.startswith(f"{key}."))
            raise ConfigurationError(f"a mapping stands where {key} has one value", place=place)
        return self._defaults.get(key) if stated is None else stated.value

    def is_usable(self, key: str) -> bool:
        """Whether asking for the key raises no error for an unusable value."""
        return key not in self._unusable

    def stated_by_person(self, key: str) -> bool:
        """Whether the experiment, a variable or an override gives the key, rather than a preset."""
        stated = self.values.get(key)
        return stated is not None and stated.source in {
            Source.EXPERIMENT,
            Source.VARIABLE,
            Source.OVERRIDE,
            Source.OPTION,
        }

    def place(self, key: str) -> str:
        """File and key, for messages."""
        stated = self.values.get(key)
        file = self._file if stated is None else stated.file
        return f"{file}: {key}" if file else key

    def wrong(self, key: str, expected: str) -> NoReturn:
        """Complain about the value of `key`."""
        value = self.raw(key)
        message = f"{shown(value)} is {_kind(value)}"
        raise ConfigurationError(message, place=self.place(key), expected=f"expected {expected}")

    @overload
    def integer(self, key: str, default: int, *, minimum: int = ..., maximum: int = ...) -> int: ...
    @overload
    def integer(self, key: str, default: None = None, *, minimum: int = ..., maximum: int = ...) -> int | None: ...
    def integer(
        self, key: str, default: int | None = None, *, minimum: int = 0, maximum: int = MAXIMUM_INTEGER
    ) -> int | None:
        """An integer from `minimum` to `maximum`; `default` when absent or null."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            self.wrong(key, f"an integer of at least {minimum}")
        if value > maximum:
            self.wrong(key, f"an integer of at most {maximum}")
        return value

    def required(self, key: str, *, minimum: int = 1, maximum: int = MAXIMUM_INTEGER) -> int:
        """An integer that must be stated."""
        value = self.integer(key, minimum=minimum, maximum=maximum)
        if value is None:
            raise ConfigurationError("is missing", place=self.place(key), expected=f"an integer of at least {minimum}")
        return value

    def boolean(self, key: str, *, default: bool = False) -> bool:
        """A boolean; 0 and 1 are accepted as Megatron accepts them."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, int) or value not in {0, 1}:
            self.wrong(key, "true or false")
        return bool(value)

    @overload
    def number(self, key: str, default: float, *, minimum: float = ...) -> float: ...
    @overload
    def number(self, key: str, default: None = None, *, minimum: float = ...) -> float | None: ...
    def number(self, key: str, default: float | None = None, *, minimum: float = 0.0) -> float | None:
        """A number of at least `minimum`."""
        value = self.raw(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not minimum <= value < float("inf"):
            self.wrong(key, f"a number of at least {minimum:g}")
        if value > MAXIMUM_INTEGER:
            self.wrong(key, f"a number of at most {MAXIMUM_INTEGER}")
        return float(value)

    @overload
    def text(self, key: str, default: str) -> str: ...
    @overload
    def text(self, key: str, default: None = None) -> str | None: ...
    def text(self, key: str, default: str | None = None) -> str | None:
        """A text."""
        value = self.raw(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.wrong(key, "a text")
        return value

    def choice(self, key: str, default: str, choices: Iterable[str]) -> str:
        """One of the texts in `choices`."""
        value = self.text(key, default)
        names = tuple(choices)
        if value not in names:
            raise ConfigurationError(f"{value!r} is not known", place=self.place(key), expected=nearest(value, names))
        return value

    def integers(self, key: str) -> list[int] | None:
        """A list of integers, also as an expression or a text with commas; None when absent or null."""
        value = self.raw(key)
        if isinstance(value, str):
            text = value.strip()
            value = evaluate(text if text[:1] in {"[", "("} else f"[{text}]", place=self.place(key))
        if value is None:
            return None
        if not isinstance(value, list) or any(type(item) is not int for item in value):
            self.wrong(key, "a list of integers")
        return value

    def texts(self, key: str) -> list[str] | None:
        """A list of texts; None when absent or null."""
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, list) or any(not isinstance(item, str) for item in value):
            self.wrong(key, "a list of texts")
        return value


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else "nothing"
