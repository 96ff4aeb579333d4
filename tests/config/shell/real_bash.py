"""What bash itself makes of a snippet of ours, to compare with."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from projector.config.shell import read_script

_BASH = shutil.which("bash") or "/bin/bash"
_SHOW = "exec 3>&1; show() { printf '%s\\0' \"$@\" $'\\1' >&3; }\n"
"""Writes past every redirection, as every command is recorded wherever its output goes."""
_UNSET = "unset A B C D E F K L M N NOTHING P Q T X Y Z i k n\n"
"""Bash knows what nobody sets to be unset; we know it where the script says so."""


def words_of_bash(snippet: str, directory: Path, variables: Mapping[str, str] | None = None) -> list[list[str]]:
    """The arguments of every `show` that bash runs, in an empty directory and with these variables alone."""
    shell = subprocess.run(
        [_BASH, "--norc", "--noprofile", "-c", _SHOW + _UNSET + snippet],
        capture_output=True,
        cwd=directory,
        env={"PATH": "/nowhere", "LC_ALL": "C.UTF-8", **(variables or {})},
        timeout=20,
        check=False,
    )
    shown: list[list[str]] = [[]]
    for word in shell.stdout.decode().split("\0")[:-1]:
        if word == "\1":
            shown.append([])
        else:
            shown[-1].append(word)
    return shown[:-1]


def words_of_ours(snippet: str, variables: Mapping[str, str] | None = None) -> list[list[str]]:
    """The arguments of every `show` that the interpreter records; nothing in them may be unresolved."""
    script = read_script(_UNSET + snippet, name="snippet", variables=variables or {})
    shown = [command for command in script.commands if command.words[0].text == "show"]
    assert [word for command in shown for word in command.words if word.unresolved] == []
    assert [command for command in shown if command.undecided] == []
    return [[word.text for word in command.words[1:]] for command in shown]
