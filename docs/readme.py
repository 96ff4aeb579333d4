"""Keeps the outputs that the README shows what the programs really print."""

import contextlib
import io
import re
import shlex
from pathlib import Path

from projector.cli import main

PAGE = Path(__file__).parents[1] / "README.md"
BLOCK = re.compile(
    r"^(?P<prompt>```console\n\$ projector (?P<arguments>[^|\n]+?)(?: \| head -n (?P<lines>\d+))?\n)(?:.*\n)*?```$",
    re.MULTILINE,
)


def _printed(arguments: str, lines: int | None) -> str:
    output = io.StringIO()
    with contextlib.chdir(PAGE.parent), contextlib.redirect_stdout(output):
        main(shlex.split(arguments))
    return "\n".join(output.getvalue().rstrip().splitlines()[:lines]) + "\n"


def render(text: str) -> str:
    """The page with the output of every `$ projector ...` block renewed."""

    def renewed(block: re.Match[str]) -> str:
        lines = int(block["lines"]) if block["lines"] else None
        return f"{block['prompt']}{_printed(block['arguments'], lines)}```"

    return BLOCK.sub(renewed, text)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
