"""Words of a command line -> arguments, as Megatron-LM's parser reads them.

Differences from argparse are on purpose and are said: a flag that the table does not have takes the words up to the
next flag, and a word that belongs to no flag is reported instead of ending the run. There are no abbreviations
(Megatron-LM's parser has `allow_abbrev=False`).
"""

import re
from collections.abc import Mapping, Sequence

from projector.config.launching import is_flag
from projector.config.megatron.flags import Flag, find_flag
from projector.config.megatron.values import Collected, Gap
from projector.config.shell import Word
from projector.errors import ConfigurationError
from projector.provenance import Source

_WHOLE = re.compile(r"\$(?:\w+|\{[^{}]*\}|[@*#?$!-])|`[^`]*`|\$\(.*\)", re.DOTALL)
"""A word that is nothing but one variable or command substitution."""


def parse(words: Sequence[Word], *, name: str, reasons: Mapping[str, str] | None = None) -> Collected:
    """The arguments of a command line; `name` is the file in messages.

    `reasons` tell of names that could not be resolved, as `Script.reasons` has them.
    """
    collected = Collected(file=name)
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if not is_flag(word.text):
            place = _place(word, name)
            if _is_gap(word):
                collected.gaps.append(Gap(text=word.text, place=place, names=word.unresolved))
            else:
                collected.stray.append((word.text, place))
            continue
        head, equals, attached = word.text.partition("=")
        flag = find_flag(head)
        given = [Word(text=attached, line=word.line, unresolved=word.unresolved)] if equals else []
        if not equals:
            end = _end_of_values(words, index, flag)
            given, index = list(words[index:end]), end
        _keep(collected, flag, head, given, word, reasons or {})
    return collected


def _end_of_values(words: Sequence[Word], start: int, flag: Flag | None) -> int:
    """Where the values of a flag end: a switch has none, a plain flag one, an unknown one all up to the next flag."""
    if flag is not None and flag.kind.is_switch:
        return start
    end = start
    limit = start + 1 if flag is not None and not flag.kind.is_list else len(words)
    while end < min(limit, len(words)) and not is_flag(words[end].text):
        if end > start and _is_gap(words[end]):
            break
        end += 1
    return end


def _keep(  # noqa: PLR0913, PLR0917 - the parts of one argument
    collected: Collected, flag: Flag | None, head: str, given: Sequence[Word], word: Word, reasons: Mapping[str, str]
) -> None:
    place = f"{_place(word, collected.file)}: {head}"
    texts = [each.text for each in given]
    source = Source.VARIABLE if any(each.variables for each in given) else Source.EXPERIMENT
    names = list(dict.fromkeys(name for each in given for name in each.unresolved))
    if flag is None:
        key = head.lstrip("-").replace("-", "_")
        if key:
            collected.put(key, " ".join(texts) or True, source)
    elif names:
        collected.put(flag.key, " ".join(texts), source, problem=unresolved(names, reasons, place=place, key=flag.key))
    else:
        collected.put_texts(flag, texts, source, place=place)


def unresolved(names: Sequence[str], reasons: Mapping[str, str], *, place: str, key: str) -> ConfigurationError:
    """The error for a value that depends on variables nobody has given."""
    first = names[0]
    why = reasons.get(first, "nothing sets it")
    message = f"{' and '.join(names)} cannot be resolved ({why})"
    setting = f"set {first} in the environment or among the variables, or " if first.isidentifier() else ""
    return ConfigurationError(message, place=place, expected=f"{setting}state {key}=VALUE")


def _is_gap(word: Word) -> bool:
    return bool(word.unresolved) and _WHOLE.fullmatch(word.text) is not None


def _place(word: Word, name: str) -> str:
    return f"{name}:{word.line}" if word.line else name
