"""What is known about a public model: its architecture as its weights define it, its names and the sources."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from projector.job import ModelArchitecture


class ModelStatus(StrEnum):
    """What the facts about a model were compared with that nobody of this project wrote."""

    VERIFIED = "verified"
    """Every size: with a public file or table that states them, or with the defaults of a public class."""
    TOTAL = "total"
    """Their number of parameters alone, with that of the published weights; the sizes themselves are recalled."""
    UNVERIFIED = "unverified"
    """Nothing, or not all of the sizes; what its sources call recalled."""

    @property
    def doubt(self) -> str:
        """What to say of facts with this status; empty when there is nothing to say."""
        return _DOUBTS[self]


_DOUBTS = {
    ModelStatus.VERIFIED: "",
    ModelStatus.TOTAL: "compared by its number of parameters alone",
    ModelStatus.UNVERIFIED: "not verified",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class CatalogModel:
    """One model of the catalog."""

    name: str
    """Canonical name, such as `llama3.1-70b`; the file's name."""
    aliases: tuple[str, ...] = ()
    """Other names that `catalog.model` accepts: framework presets, Hugging Face repositories."""
    architecture: ModelArchitecture
    """What its weights define; `vocabulary` is the size of the published token table."""
    sources: tuple[str, ...]
    """Where the facts come from: public files, library defaults, papers."""
    status: ModelStatus
    """What the facts were compared with."""
    huggingface_id: str | None = None
    """Repository at Hugging Face, such as `meta-llama/Llama-3.1-70B`; None for none."""
    huggingface_class: str | None = None
    """The class of `transformers` that builds it, such as `LlamaForCausalLM`; None when there is none."""
    parameters: int | None = None
    """Parameters of the published weights, or of the public class, where they are known exactly; only for reports."""
    note: str = ""
    """What to know about it, such as where a framework's preset differs."""

    @property
    def vocabulary(self) -> int:
        """Entries of the published token table."""
        return self.architecture.vocabulary


@dataclass(frozen=True, kw_only=True, slots=True)
class RefusedModel:
    """A model whose name is known and whose training the engine cannot describe at all."""

    name: str
    """Canonical name, such as `flux-12b`; the file's name."""
    aliases: tuple[str, ...] = ()
    """Its other names."""
    reason: str
    """Why it is refused, as the rest of a sentence that begins with its name."""
    sources: tuple[str, ...]
    """Where it is published, or which recipes name it."""


class TokenizerVocabulary(NamedTuple):
    """Sizes that go with a tokenizer."""

    entries: int
    """Length of the tokenizer, added tokens included (`len(tokenizer)`): what Megatron-LM pads and trains."""
    table_entries: int
    """Rows of the token table in the published weights; larger where the publisher padded it (Qwen)."""
    source: str
    """Where the sizes come from."""
    verified: bool
    """Compared with something that nobody of this project wrote."""
