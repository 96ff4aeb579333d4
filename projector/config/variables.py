"""`${NAME}` and `${NAME:default}` in the text of a configuration, resolved from a mapping that the caller hands in.

The rules are those of AMD-AGI/Primus fd1eeabb (primus/core/config): a text that a substitution changed is read again as
a boolean, an integer or a number when it looks like one; a text without a variable keeps its type; `null` stays text.
A variable's value is taken as it is and not searched for variables again.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from projector.errors import ConfigurationError

_VARIABLE = re.compile(r"\$\{([^:{}]+)(?::([^}]*))?\}")
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"-?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Substituted:
    """A text after substitution."""

    value: str | bool | int | float
    """The text itself when it held no variable, else the retyped result."""
    variables: tuple[str, ...] = ()
    """The variables that were set and used; a default counts as the file's own words."""


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

    changed = _VARIABLE.sub(replacement, text)
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
