"""Vocabulary sizes of tokenizers, from `tokenizers.yaml`."""

from functools import cache
from pathlib import Path

from projector.catalog.facts import Facts, read_mapping
from projector.catalog.model import TokenizerVocabulary

_FILE = Path(__file__).parent / "tokenizers.yaml"


def find_vocabulary(tokenizer_type: str | None, tokenizer_model: str | None) -> TokenizerVocabulary | None:
    """Sizes by the tokenizer's repository or the name of a copy of it, else by its type; None when neither is known.

    A copy, in a folder or another owner's repository, is known by the last part of its name.
    """
    by_model, by_type = _tables()
    found = by_model.get(tokenizer_model.lower()) if tokenizer_model else None
    if found is None and tokenizer_model:
        found = _copies().get(_last_part(tokenizer_model))
    if found is None and tokenizer_type:
        found = by_type.get(tokenizer_type.lower())
    return found


@cache
def _tables() -> tuple[dict[str, TokenizerVocabulary], dict[str, TokenizerVocabulary]]:
    facts = Facts(read_mapping(_FILE), place=_FILE.name)
    by_model: dict[str, TokenizerVocabulary] = {}
    by_type: dict[str, TokenizerVocabulary] = {}
    for family in facts:
        inner = facts.inner(family)
        entries = inner.required("entries", int)
        sizes = TokenizerVocabulary(
            entries=entries,
            table_entries=inner.default("table_entries", entries),
            source=inner.required("source", str),
            verified=inner.required("status", str) == "verified",
        )
        by_model |= {name.lower(): sizes for name in inner.texts("models")}
        by_type |= {name.lower(): sizes for name in inner.texts("types")}
        inner.finish()
    return by_model, by_type


@cache
def _copies() -> dict[str, TokenizerVocabulary]:
    """Sizes by the last part of a repository's name, where only one tokenizer has it."""
    by_model, _ = _tables()
    found: dict[str, set[TokenizerVocabulary]] = {}
    for name, sizes in by_model.items():
        found.setdefault(_last_part(name), set()).add(sizes)
    return {name: sizes.pop() for name, sizes in found.items() if len(sizes) == 1}


def _last_part(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2].lower()
