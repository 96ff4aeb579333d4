"""Which command of a launch script starts Megatron-LM, with which arguments."""

from collections.abc import Sequence

from projector.config.launching import (
    MAXIMUM_WORDS,
    PRINTING,
    Launch,
    directed_cluster,
    is_flag,
    launch_cluster,
    launch_environment,
)
from projector.config.megatron.flags import find_flag
from projector.config.shell import Command, Script, Word


def launches(script: Script) -> list[Launch]:
    """The commands that hand Megatron-LM arguments, else one made of all argument lists that the script assigns."""
    found = [launch for command in script.commands if (launch := _launch(command, script)) is not None]
    if found:
        return found
    loose = [word for command in script.commands if is_flag(command.words[0].text) for word in command.words]
    if not loose:
        lists = [_assigned(words) for words in script.assignments.values()]
        loose = [word for words in lists if words and is_flag(words[0].text) for word in words]
    if not any(_is_known(word) for word in loose):
        return []
    return [
        Launch(program="", words=tuple(loose[:MAXIMUM_WORDS]), line=loose[0].line, cluster=directed_cluster(script))
    ]


def _assigned(words: Sequence[Word]) -> Sequence[Word]:
    """The words of an array, or of a list that is one text."""
    if len(words) != 1:
        return words
    whole = words[0]
    return [
        Word(text=piece, line=whole.line, unresolved=tuple(name for name in whole.unresolved if name in piece))
        for piece in whole.text.split()
    ]


def _launch(command: Command, script: Script) -> Launch | None:
    words = command.words[:MAXIMUM_WORDS]
    if words[0].text in PRINTING:
        return None
    start = next((index for index, word in enumerate(words) if word.text.endswith(".py")), None)
    if start is None:
        # A wrapper such as `bash run.sh --num-layers 2`, or a list of arguments without any program.
        start = next((index - 1 for index, word in enumerate(words) if _is_known(word)), None)
        if start is None or start < 0:
            return None
    behind = words[start + 1 :]
    if not any(_is_known(word) for word in behind) and not _hands_over(behind):
        return None
    return Launch(
        program=words[start].text if words[start].text.endswith(".py") else "",
        words=behind,
        line=command.line,
        cluster=launch_cluster(command, words[:start], script),
        undecided=command.undecided,
        environment=launch_environment(command, words[:start], script),
    )


def _is_known(word: Word) -> bool:
    return word.text.startswith("--") and find_flag(word.text.partition("=")[0]) is not None


def _hands_over(words: Sequence[Word]) -> bool:
    """Whether the arguments come from variables that nobody has given."""
    return any(word.unresolved and not is_flag(word.text) for word in words[:1])
