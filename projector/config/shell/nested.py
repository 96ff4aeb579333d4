"""Commands that hold a script themselves: `eval`, `bash -c`, and a shell or `sbatch` fed by a here-document."""

from collections.abc import Sequence
from dataclasses import dataclass

from projector.config.shell.expansion import Expander
from projector.config.shell.syntax import HereDocument, RawWord
from projector.config.shell.values import BLANK, Text, joined

_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})


@dataclass(frozen=True, kw_only=True, slots=True)
class NestedScript:
    """A script within a command."""

    text: Text
    """What the inner shell reads, after expansion by the outer one."""
    line: int
    """Of its first line."""
    one_line: bool
    """Whether all of it stands at that line, as far as can be told."""
    new_shell: bool
    """Whether another shell runs it, which inherits what is exported, and whose changes end with it."""
    batch: bool
    """Whether Slurm runs it."""
    arguments: tuple[Text, ...] = ()
    """Its positional parameters."""


def nested_script(
    words: Sequence[Text], reads: HereDocument | RawWord | None, expander: Expander, line: int
) -> NestedScript | None:
    """The script within a command, None when there is none."""
    names = [word.plain.rpartition("/")[2] if word.known else "" for word in words]
    if names[0] == "eval":
        text = joined(part for word in words[1:] for part in (word, BLANK))
        return NestedScript(text=text, line=line, one_line=True, new_shell=False, batch=False)
    for index, name in enumerate(names):
        if name in _SHELLS and (found := _option_c(words, index + 1)):
            text, *arguments = words[found:]
            return NestedScript(
                text=text, line=line, one_line=True, new_shell=True, batch=False, arguments=tuple(arguments[1:])
            )
    fed = names[0] == "sbatch" or any(
        name in _SHELLS and all(word.plain.startswith("-") for word in words[index + 1 :])
        for index, name in enumerate(names)
    )
    if not fed or not isinstance(reads, HereDocument):
        return None
    return NestedScript(
        text=expander.document(reads), line=reads.line, one_line=False, new_shell=True, batch=names[0] == "sbatch"
    )


def _option_c(words: Sequence[Text], start: int) -> int:
    """Where the text of a `-c` among the options from `start` stands; 0 when there is none."""
    for index in range(start, len(words) - 1):
        option = words[index].plain
        if not option.startswith("-"):
            return 0
        if not option.startswith("--") and option.endswith("c"):
            return index + 1
    return 0
