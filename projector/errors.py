"""Everything that can be wrong with what a person handed in, as exceptions that carry their own explanation.

The hierarchy::

    ProjectorError
    +-- InputError                  the person can mend it; the command exits with 2, a request is not accepted
    |   +-- ConfigurationError      a file or value is malformed, missing, of the wrong type or unknown
    |   |   +-- PresetUnknown       a model or module preset that neither the given tree nor the catalog has
    |   |   +-- ConfigurationTooLarge  a file beyond the size, depth or alias limits
    |   +-- LayoutImpossible        the parallel layout does not divide the model or the cluster
    |   +-- BatchIndivisible        the global batch does not divide over micro batch and data parallelism
    |   +-- DeviceUnknown           a GPU that the catalog does not have
    |   +-- NotAvailable            understood, and not offered yet
    |       +-- RateUnknown         a figure of the GPU that time cannot be told without
    +-- DeviceMissing               a benchmark was asked for and no usable device is here; the command exits with 4

`reason` is the CamelCase word that the operator puts into the condition; it is part of the interface.
"""

from typing import ClassVar

_SHOWN_CHARACTERS = 60
"""Longest quotation of a value in a message, so that the message stays readable."""

_PART_CHARACTERS = 300
"""Longest part of a message: place, what is wrong, what would be right."""


def shown(value: object) -> str:
    """A value as messages quote it: its `repr`, cut where it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."


def _one_line(text: str) -> str:
    """A part of a message without line ends and of bounded length, whatever of a person's file it quotes."""
    line = " ".join(text.splitlines())
    return line if len(line) <= _PART_CHARACTERS else f"{line[: _PART_CHARACTERS - 3]}..."


class ProjectorError(Exception):
    """Base of every error that projector raises on purpose."""


class InputError(ProjectorError):
    """Something that a person wrote cannot be used; the message says where, what, and what would be right."""

    reason: ClassVar[str] = "InputInvalid"

    def __init__(self, message: str, *, place: str = "", expected: str = "") -> None:
        """Keep the parts apart, so that a report may lay them out.

        `place` is a file, key or option; `message` names the offending value; `expected` says what would be right.
        """
        self.message, self.place, self.expected = (_one_line(part) for part in (message, place, expected))
        super().__init__(self.message, self.place, self.expected)

    def __str__(self) -> str:
        """One line: `place: message; expected`."""
        head = f"{self.place}: " if self.place else ""
        tail = f"; {self.expected}" if self.expected else ""
        return f"{head}{self.message}{tail}"


class ConfigurationError(InputError):
    """A configuration file or value is malformed, missing, of the wrong type or unknown."""

    reason = "ConfigurationInvalid"


class PresetUnknown(ConfigurationError):  # noqa: N818 - named after the condition's reason
    """A model or module preset that neither the given tree nor the project's catalog has."""

    reason = "PresetUnknown"


class ConfigurationTooLarge(ConfigurationError):  # noqa: N818 - named after the condition's reason
    """A configuration beyond the limits on size, depth or aliases."""

    reason = "ConfigurationTooLarge"


class LayoutImpossible(InputError):  # noqa: N818 - named after the condition's reason
    """The parallel layout does not divide the model or the cluster."""

    reason = "LayoutImpossible"


class BatchIndivisible(InputError):  # noqa: N818 - named after the condition's reason
    """The global batch does not divide over micro batch and data parallelism."""

    reason = "BatchIndivisible"


class DeviceUnknown(InputError):  # noqa: N818 - named after the condition's reason
    """A GPU that the catalog does not have."""

    reason = "DeviceUnknown"


class NotAvailable(InputError):  # noqa: N818 - named after the condition's reason
    """An option or feature that is understood and not offered yet."""

    reason = "NotAvailable"


class RateUnknown(NotAvailable):
    """A figure of the GPU that nobody published or measured, and without which time cannot be told."""


class DeviceMissing(ProjectorError):  # noqa: N818 - reads as a fact in a traceback-free message
    """A benchmark was asked for and no usable device is on this machine."""
