"""Reading a command line by the option table.

Every option arrives as the text that the person wrote; `question.py` decides what it means, together with the
environment. What is no option is an override of the configuration.
"""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, NoReturn

from projector.cli.options import OPTIONS, options_of
from projector.cli.row import CONFIGURED, Fate, Row, UsageError
from projector.errors import shown

COMMANDS: Mapping[str, str] = {
    "memory": "Does the job fit in each GPU's memory?",
    "performance": "How fast will it run?",
    "both": "Both questions at once.",
    "schedule": "What does the pipeline schedule look like, and which one would be faster?",
    "show": "Every effective value of a configuration and where it comes from.",
    "convert": "The configuration as the project's own plain YAML, which reads back to the same job.",
    "models": "Models that the catalog knows, with sources.",
    "devices": "GPUs that the catalog knows, with sources.",
    "backends": "Cost models of matrix products, and whether they are installed.",
}
"""The commands and what they answer."""

_OVERRIDES = """\
key=value, --key=value, --key value and --flag override values of the configuration by name; an unknown name is an
error. Write null for no value, dots for nested names."""
_EXIT_CODES = """\
exit codes: 0 answered; 2 wrong input or usage; 3 does not fit (with --check); 4 a benchmark was asked for and no
usable device is there; 1 a defect of projector."""


class CommandLine(NamedTuple):
    """A command line, read and not yet understood."""

    command: str
    """One of `COMMANDS`."""
    options: tuple[tuple[Row, str], ...]
    """The options that were given, with the text of their value (`true` for a switch), in the table's order."""
    rest: tuple[str, ...]
    """What is left over, in order: overrides."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, expected=f"see {self.prog} --help")


def read_command_line(tokens: Sequence[str]) -> CommandLine:
    """Read the words behind `projector`.

    Raises `UsageError` for a command line that cannot be used, and `SystemExit` when help or the version was asked for.
    """
    place = next((index for index, token in enumerate(tokens) if not token.startswith("-")), None)
    if place is None:
        _introduce(tokens)
    command = tokens[place]
    if "--" in tokens:
        raise UsageError("'--' has no meaning here", expected="options and key=value in any order")
    if command not in COMMANDS:
        raise UsageError(f"{shown(command)} is not a command", expected=_nearest(command, COMMANDS))
    rows = options_of(command)
    # What stands in front of the command may only be what every command takes.
    known, rest = _parser_of(command, rows).parse_known_args([*tokens[:place], *tokens[place + 1 :]])
    values = vars(known)
    given = tuple((row, text) for row in rows if row.name in values for text in _texts(row, values[row.name]))
    _refuse_strangers(command, rest)
    if command in CONFIGURED and "--config" not in values:
        raise UsageError("--config FILE, the training configuration, is needed", place=command)
    return CommandLine(command=command, options=given, rest=tuple(rest))


def _introduce(tokens: Sequence[str]) -> NoReturn:
    """Answer a command line without a command."""
    if "--version" in tokens:
        print("projector", _version())
        sys.exit(0)
    if "-h" in tokens or "--help" in tokens:
        print(_introduction())
        sys.exit(0)
    raise UsageError("a command is needed", expected=f"one of {_words()}; see projector --help")


def _introduction() -> str:
    width = max(map(len, COMMANDS))
    lines = [
        "usage: projector COMMAND --config FILE [options] [key=value ...]",
        "",
        "Will a distributed LLM training job fit in each GPU's memory, and how fast will it run?",
        "",
        *(f"  {name:<{width}}  {purpose}" for name, purpose in COMMANDS.items()),
        "",
        "projector COMMAND --help shows a command's options; projector --version the version.",
        "",
        _OVERRIDES,
        "",
        _EXIT_CODES,
    ]
    return "\n".join(lines)


def _version() -> str:
    from importlib import metadata  # noqa: PLC0415 - slow to import, and needed for this alone

    try:
        return metadata.version("projection-operator")
    except metadata.PackageNotFoundError:
        return "not installed"


def _parser_of(command: str, rows: Sequence[Row]) -> _Parser:
    configured = command in CONFIGURED
    parser = _Parser(
        prog=f"projector {command}",
        usage=f"projector {command} --config FILE [options] [key=value ...]" if configured else None,
        description=COMMANDS[command],
        epilog=f"{_OVERRIDES} {_EXIT_CODES}" if configured else _EXIT_CODES,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    groups = {name: parser.add_argument_group(name) for name in dict.fromkeys(row.group for row in rows)}
    for row in rows:
        _add(groups[row.group], row)
    return parser


def _add(group: "argparse._ArgumentGroup", row: Row) -> None:
    text = argparse.SUPPRESS if row.hidden else _help(row)
    if row.value is None:
        group.add_argument(row.name, *row.aliases, dest=row.name, action="store_const", const="true", help=text)
    elif row.optional_value:
        group.add_argument(row.name, *row.aliases, dest=row.name, metavar=row.value, nargs="?", const="", help=text)
    else:
        action = "append" if row.repeatable else "store"
        group.add_argument(row.name, *row.aliases, dest=row.name, metavar=row.value, action=action, help=text)


def _texts(row: Row, value: str | list[str]) -> Iterable[str]:
    """The texts that were given to an option."""
    return value if row.repeatable else (str(value),)


def _help(row: Row) -> str:
    notes = [row.meaning]
    if row.default:
        notes.append(f"Default: {row.default}.")
    if row.fate is not Fate.WORKS:
        notes.append(f"({row.fate}: {row.becomes})")
    return " ".join(notes).replace("%", "%%")


def _refuse_strangers(command: str, rest: Sequence[str]) -> None:
    """Complain about what looks like an option and is none of this command's, instead of taking it for an override.

    Names of configuration values have underscores, names of options have hyphens.
    """
    if command not in CONFIGURED and rest:
        raise UsageError(f"{rest[0]!r} is not understood", place=f"projector {command}", expected="options only")
    owners = {name: row for row in OPTIONS for name in (row.name, *row.aliases)}
    for token in rest:
        name = token.partition("=")[0]
        if not name.startswith("--"):
            continue
        if name in owners:
            home = ", ".join(owners[name].commands)
            raise UsageError(
                f"{name} is not an option of this command", place=command, expected=f"it belongs to {home}"
            )
        if "-" in name.removeprefix("--") and "." not in name:
            own = [spelling for row in options_of(command) for spelling in (row.name, *row.aliases)]
            raise UsageError(f"{name} is not an option", expected=_nearest(name, own))


def _nearest(word: str, words: Iterable[str]) -> str:
    from projector.config.nearest import nearest  # noqa: PLC0415 - for complaints alone

    return nearest(word, words, count=1)


def _words() -> str:
    return ", ".join(COMMANDS)
