"""`${NAME}` and `${NAME:default}` in the text of a configuration, resolved from a mapping that the caller hands in.

The rules are those of AMD-AGI/Primus fd1eeabb (primus/core/config): a text that a substitution changed is read again as
a boolean, an integer or a number when it looks like one; a text without a variable keeps its type; `null` stays text.
A variable's value is taken as it is and not searched for variables again.
"""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from projector.errors import ConfigurationError, ConfigurationTooLarge

MAXIMUM_CHARACTERS = 5 * 1024 * 1024
"""Characters that all variables of a configuration together may put into it."""
_VARIABLE = re.compile(r"\$\{([^:{}]+)(?::([^}]*))?\}")
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"-?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")


class Substituted(NamedTuple):
    """A text after substitution."""

    value: str | bool | int | float
    """The text itself when it held no variable, else the retyped result."""
    variables: tuple[str, ...] = ()
    """The variables that were set and used; a default counts as the file's own words."""


class Counted(Mapping[str, str]):
    """Variables that hand out at most `MAXIMUM_CHARACTERS`, so that a short file cannot grow without bound."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        """Count from nothing."""
        self._variables = variables
        self._handed_out = 0

    def __getitem__(self, name: str) -> str:
        """The value; raises `ConfigurationTooLarge` beyond the limit."""
        value = self._variables[name]
        self._handed_out += len(value)
        if self._handed_out > MAXIMUM_CHARACTERS:
            message = f"variables put more than {MAXIMUM_CHARACTERS} characters into the configuration"
            raise ConfigurationTooLarge(message, place=f"the variable {name}", expected="shorter values")
        return value

    def __contains__(self, name: object) -> bool:
        """Whether the variable is set."""
        return name in self._variables

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._variables)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._variables)


def substitute(text: str, variables: Mapping[str, str], *, place: str) -> Substituted:
    """Replace every variable of `text`.

    `place` names file and key. Raises `ConfigurationError` for a variable that is neither set nor has a default.
    """
    if "${" not in text:
        return Substituted(value=text)
    used: list[str] = []

    def replacement(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(2)
        if name in variables:
            used.append(name)
            return variables[name]
        if default is None:
            expected = f"set {name}, or give the file a default: ${{{name}:value}}"
            raise ConfigurationError(f"the variable {name} is not set", place=place, expected=expected)
        return default

    # What follows the last brace holds no variable; searching it takes time that grows with its square.
    end = text.rfind("}") + 1
    changed = _VARIABLE.sub(replacement, text[:end]) + text[end:]
    return Substituted(value=text if changed == text else retype(changed), variables=tuple(used))


def retype(text: str) -> str | bool | int | float:
    """Read a substituted text as boolean, integer or number where it looks like one."""
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        return float(text)
    return text
