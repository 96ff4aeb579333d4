"""What is said of words in a launch that stand for arguments nobody knows, such as `${EXTRA_ARGS}`."""

from collections.abc import Sequence

from projector.config.launching import is_flag
from projector.config.megatron.facts import megatron_facts
from projector.config.megatron.flags import find_flag
from projector.config.megatron.values import Gap
from projector.config.notes import Notes
from projector.config.shell import Script
from projector.errors import shown

_SOURCING = ("source", ".")
_NO_SETTINGS = ("activate", ".bashrc", ".bash_profile", ".profile", "conda.sh", "setvars.sh", "modules.sh")
"""Files that launch scripts read for their environment: none of them sets arguments."""


def note_gaps(gaps: Sequence[Gap], script: Script | None, notes: Notes) -> None:
    """Name the gaps: those that the script says are filled decide, unless nothing possible in them would.

    A variable that nothing sets stays empty in a run, unless its environment has it.
    """
    for gap in gaps:
        why, possible = _why(gap, script), _possible(gap, script)
        if not why or (possible and not any(_decides(text) for text in possible)):
            notes.assume(f"no arguments in {gap.text}", f"{gap.place} hands them over, and nothing says what they are")
            continue
        choice = f"; possible are {' and '.join(shown(text) for text in possible)}" if possible else ""
        notes.not_modelled(
            f"the arguments in {gap.text}",
            where=gap.place,
            effect=f"they are not counted: they depend on {why}, which nothing decides{choice}",
            decides=True,
        )


def _why(gap: Gap, script: Script | None) -> str:
    """What the arguments depend on; empty where nothing in the script gives any."""
    if script is None:
        return ""
    for name in gap.names:
        if name in script.reasons:
            return script.reasons[name]
        if name.startswith(("$(", "`")):
            return "what a command prints"
        if name.isidentifier() and (file := _sourced(script)):
            return f"what {file} sets"
    return ""


def _sourced(script: Script) -> str:
    """The first file that the script reads and that may set arguments; empty when there is none."""
    for command in script.commands:
        words = [word.text for word in command.words[:2]]
        if len(words) == 2 and words[0] in _SOURCING and words[1].rpartition("/")[2] not in _NO_SETTINGS:  # noqa: PLR2004 - command and file
            return words[1]
    return ""


def _possible(gap: Gap, script: Script | None) -> tuple[str, ...]:
    return script.possible.get(gap.names[0], ()) if script is not None and len(gap.names) == 1 else ()


def _decides(text: str) -> bool:
    """Whether a text holds arguments that have an influence, or that are not known."""
    ignored = megatron_facts().ignored
    flags = [find_flag(word.partition("=")[0]) for word in text.split() if is_flag(word)]
    return any(flag is None or flag.key not in ignored for flag in flags)
