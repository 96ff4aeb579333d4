"""How many tokens a model's table has, from Megatron-LM's tokenizer arguments."""

from projector import catalog
from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.errors import ConfigurationError, shown

_NULL_TOKENIZERS = {"NullTokenizer", "null", "null-text"}
"""Values of `tokenizer_type` and `tokenizer_library` without a vocabulary of their own: they add an end-of-document
token to the stated one (megatron/training/tokenizer/tokenizer.py, until megatron-core 0.17)."""
_UNSTATED = "GPT2BPETokenizer"
"""What `pretrain_gpt.py` hands over as `args_defaults` for `tokenizer_type`."""
_KINDS = ("tokenizer_type", "tokenizer_library", "vocab_file")
_MODELS = ("tokenizer_model", "hf_tokenizer_path", "tokenizer_name_or_path")
_NAMING = (*_MODELS, "tokenizer_type", "vocab_file")
"""Arguments that say which vocabulary it is, the most telling one first."""
_OPEN = frozenset("$`")
"""Characters of what a shell would have to resolve."""


def vocabulary(keys: Keys, notes: Notes) -> int:
    """Entries of the token table before padding: stated, or what the tokenizer has.

    Raises `ConfigurationError` naming what to state when the tokenizer is not known.
    """
    padded, stated = padded_vocabulary(keys), keys.integer("vocab_size", minimum=1)
    kind, library, files = (_name(keys, key) for key in _KINDS)
    model = next((name for name in (_name(keys, key) for key in _MODELS) if name), None)
    extra = keys.integer("extra_vocab_size", 0)
    if padded is not None:
        return padded
    if stated is not None:
        return extra + stated + 1 if _NULL_TOKENIZERS & {kind, library} else extra + stated
    if kind is None and model is None and {"vocab_file", "merge_file"} <= keys.values.keys():
        kind = _UNSTATED
        notes.assume(f"tokenizer_type {kind}", "pretrain_gpt.py takes it where none is stated; it reads a merge_file")
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
    return known.entries + extra


def padded_vocabulary(keys: Keys) -> int | None:
    """Rows of the token table as stated outright, so that nothing is added for an even division; None where not.

    `pad_vocab_size_to` is the argument of bigscience-workshop/Megatron-DeepSpeed (megatron/arguments.py).
    """
    recorded, wanted = (keys.integer(key, minimum=1) for key in ("padded_vocab_size", "pad_vocab_size_to"))
    return wanted if recorded is None else recorded


def _name(keys: Keys, key: str) -> str | None:
    """A name; None where it is absent or its last part depends on something that nobody has given.

    The folder in front of it may be unknown, since the last part is what tells a tokenizer.
    """
    if keys.is_usable(key):
        return keys.text(key)
    keys.read.add(key)
    text = str(keys.values[key].value)
    return None if _OPEN & set(text.rpartition("/")[2]) else text
