"""How many tokens a model's table has, from Megatron-LM's tokenizer arguments."""

from projector import catalog
from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.errors import ConfigurationError, shown

_NULL_TOKENIZERS = {"NullTokenizer", "null", "null-text"}
"""Values of `tokenizer_type` and `tokenizer_library` without a vocabulary of their own: they add an end-of-document
token to the stated one (megatron/training/tokenizer/tokenizer.py, until megatron-core 0.17)."""
_NAMING = ("tokenizer_model", "hf_tokenizer_path", "tokenizer_type", "vocab_file")
"""Arguments that say which vocabulary it is, the most telling one first."""
_OPEN = frozenset("$`")
"""Characters of what a shell would have to resolve."""


def vocabulary(keys: Keys, notes: Notes) -> int:
    """Entries of the token table before padding: stated, or what the tokenizer has.

    Raises `ConfigurationError` naming what to state when the tokenizer is not known.
    """
    padded, stated = keys.integer("padded_vocab_size", minimum=1), keys.integer("vocab_size", minimum=1)
    kind, library, files = (_name(keys, key) for key in ("tokenizer_type", "tokenizer_library", "vocab_file"))
    model = _name(keys, "tokenizer_model") or _name(keys, "hf_tokenizer_path")
    if padded is not None:
        return padded
    if stated is not None:
        return stated + 1 if _NULL_TOKENIZERS & {kind, library} else stated
    known = catalog.tokenizer_vocabulary(kind, model)
    if known is None:
        named = {key: keys.values[key].value for key in _NAMING if key in keys.values}
        key = next((key for key, value in named.items() if value), "tokenizer_type")
        raise ConfigurationError(
            f"the vocabulary of {shown(named.get(key) or 'no tokenizer')} is not known",
            place=keys.place(key),
            expected="state vocab_size, the number of tokens before padding",
        )
    doubt = "" if known.verified else ", unverified"
    own_file = f"; the run reads its own vocabulary file {files}" if files else ""
    notes.assume(
        f"vocabulary {known.entries} (tokenizer {model or kind})",
        f"{known.source}{doubt}{own_file}; state vocab_size to use another",
    )
    return known.entries


def _name(keys: Keys, key: str) -> str | None:
    """A name; None where it is absent or its last part depends on something that nobody has given.

    The folder in front of it may be unknown, since the last part is what tells a tokenizer.
    """
    if keys.is_usable(key):
        return keys.text(key)
    keys.read.add(key)
    text = str(keys.values[key].value)
    return None if _OPEN & set(text.rpartition("/")[2]) else text
