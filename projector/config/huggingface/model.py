"""The architecture that a config.json, or the name of a model in the catalog, stands for."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from projector import catalog
from projector.config.huggingface.architecture import architecture
from projector.config.huggingface.checks import assume_sizes, note_classes, refuse_misspelt, renamed
from projector.config.huggingface.facts import Family, family, huggingface_facts
from projector.config.huggingface.modules import catalog_forms, module_forms, repeats_keys
from projector.config.huggingface.setup import Compute, FileFacts, rest
from projector.config.huggingface.training import Trained
from projector.config.keys import Keys
from projector.config.nearest import nearest
from projector.config.notes import Notes
from projector.config.overrides import Override
from projector.config.overriding import overridden
from projector.config.tree import Tree, flatten, rekey, subtree
from projector.errors import ConfigurationError, shown
from projector.job import Attention, ModelArchitecture
from projector.provenance import ConfigValue, Source

MODEL = "model"
"""The one key of a text that names a model of the catalog instead of describing one."""
TEXT = "text_config"
"""Section of a multimodal model that describes its decoder."""
_TYPES = {"bfloat16": Compute.BF16, "float16": Compute.FP16, "float32": Compute.FP32}
_SHARED = {
    "num_layers": ("model", "layers"),
    "padded_vocab_size": ("model", "vocabulary"),
    "ffn_hidden_size": ("dense", "ffn"),
    "num_query_groups": ("attention", "key_value_heads"),
    "kv_channels": ("attention", "head_dim"),
    "moe_router_topk": ("experts", "top_k"),
    "moe_ffn_hidden_size": ("experts", "expert_ffn"),
}
"""Names that all dialects share, and the field of the architecture that each states."""
_USUAL = {
    "hidden_size": ("model", "hidden"),
    "num_hidden_layers": ("model", "layers"),
    "num_attention_heads": ("attention", "heads"),
    "intermediate_size": ("dense", "ffn"),
    "num_experts": ("experts", "experts"),
    "num_local_experts": ("experts", "experts"),
    "n_routed_experts": ("experts", "experts"),
    "num_mtp_layers": ("model", "multi_token_prediction_layers"),
}
"""Names that other families or versions use (`attribute_map` of the configuration classes)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """A model, with what was found out on the way."""

    trained: Trained
    """The model of a run."""
    values: Mapping[str, ConfigValue]
    """Every value by key, those of the class's defaults included."""
    ignored: Sequence[str]
    """Keys without influence on memory or time."""


class Description:
    """A config.json, before its overrides are known."""

    def __init__(self, tree: Tree, *, name: str) -> None:
        """Find the family; raises `ConfigurationError` for one that is not known."""
        self._name = name
        self._tree = tree
        text = subtree(tree, TEXT)
        self._nested = bool(text)
        self._family = _family(tree, text or {}, name=name)

    @property
    def prefix(self) -> str:
        """What stands before the keys of the decoder."""
        return f"{TEXT}." if self._nested else ""

    @property
    def spelling(self) -> dict[str, str]:
        """The file's own key for names that all dialects share, and for those that other families use."""
        names = {**self._own(_SHARED), **self._aliases}
        spelled = {name: f"{self.prefix}{key}" for name, key in names.items()}
        own = {key: f"{self.prefix}{key}" for key in self._family.keys} if self._nested else {}
        return {**spelled, **own}

    @property
    def _aliases(self) -> dict[str, str]:
        """The family's key for each other name that a file may use."""
        return {**self._own(_USUAL), **self._family.aliases}

    def _own(self, names: Mapping[str, tuple[str, str]]) -> dict[str, str]:
        """The family's key for each name of a field that it spells otherwise and does not use for something else."""
        model = self._family
        keys = {
            name: model.fields[group].get(field) for name, (group, field) in names.items() if group in model.described
        }
        return {name: key for name, key in keys.items() if isinstance(key, str) and name not in model.keys}

    @property
    def known(self) -> set[str]:
        """Every key that may be overridden."""
        own = {f"{self.prefix}{key}" for key in self._family.keys}
        return {*own, *flatten(self._tree), "dtype", "torch_dtype"}

    def described(self, overrides: Sequence[Override], notes: Notes) -> Described:
        """The model with overrides on top; raises `ConfigurationError` and `LayoutImpossible`."""
        tree = overridden(self._tree, overrides, known=self.known)
        stated = flatten(tree)
        text = {**_labelled(subtree(tree, TEXT) or {}, self._name)} if self._nested else stated
        if self._nested and "tie_word_embeddings" in stated:
            text.setdefault("tie_word_embeddings", stated["tie_word_embeddings"])
        text = renamed(text, self._aliases, name=self._name)
        refuse_misspelt(text, self._family, _known_keys(), name=self._name)
        sections = {key.partition(".")[0] for key in text}
        defaults = _defaults(self._family, {*text, *sections})
        keys = Keys({**defaults, **text})
        model = architecture(keys, self._family, notes, name=_model_name(stated, self._family))
        assume_sizes(keys, defaults, self._family, notes)
        trained = self._trained(model, keys, stated)
        outer = Keys({key: value for key, value in stated.items() if not key.startswith(f"{TEXT}.")})
        ignored: list[str] = []
        for part, prefix in ((keys, self.prefix), *(((outer, ""),) if self._nested else ())):
            part.read |= {"model_type", "dtype", "torch_dtype", "tie_word_embeddings"}
            ignored += [f"{prefix}{key}" for key in rest(part, _file_facts(part), notes, name=self._name)]
        note_classes(stated, self._family, notes, nested=self._nested, name=self._name)
        # The default of a key that a nested section leaves out is listed as that section's.
        listed = {f"{self.prefix}{key}": replace(value, key=f"{self.prefix}{key}") for key, value in defaults.items()}
        return Described(trained=trained, values={**listed, **stated}, ignored=ignored)

    def _trained(self, model: ModelArchitecture, keys: Keys, stated: Mapping[str, ConfigValue]) -> Trained:
        dropout = self._family.fields["dropout"]
        implementation = keys.text("attn_implementation") or keys.text("_attn_implementation")
        eager = implementation == "eager" if implementation else self._family.eager_attention
        return Trained(
            model=model,
            eager_attention=eager,
            attention_dropout=_probability(keys, dropout.get("attention")),
            hidden_dropout=_probability(keys, dropout.get("hidden")),
            weight_type=_weight_type(stated),
            modules=replace(
                module_forms(self._family.name, keys, model), masked_windows=implementation in (None, "sdpa")
            ),
            repeated_key_values=repeats_keys(self._family.name),
        )


def _family(tree: Tree, text: Tree, *, name: str) -> Family:
    outer, inner = _text(tree, "model_type"), _text(text, "model_type")
    candidates = [inner, f"{outer}_text", outer] if text else [outer, f"{outer}_text"]
    for candidate in candidates:
        found = family(candidate) if candidate else None
        if found is not None:
            return found
    families = huggingface_facts().families
    if not outer and not inner:
        expected = "the model's type, such as llama, as in every config.json"
        raise ConfigurationError("model_type is missing", place=name, expected=expected)
    wanted = inner or outer or ""
    message = f"models of the type {shown(wanted)} are not known"
    expected = f"{nearest(wanted, families)}; a model of the same layers may be given as one of those"
    raise ConfigurationError(message, place=f"{name}: model_type", expected=expected)


def _text(tree: Tree, key: str) -> str | None:
    value = tree.get(key)
    return value.value if isinstance(value, ConfigValue) and isinstance(value.value, str) else None


def _labelled(tree: Tree, name: str) -> dict[str, ConfigValue]:
    """The values of the nested section by their own keys, with the section in what messages call the file."""
    values = flatten(rekey(tree))
    return {key: replace(value, file=f"{value.file or name}: {TEXT}") for key, value in values.items()}


def _defaults(model: Family, stated: Collection[str]) -> dict[str, ConfigValue]:
    file = f"defaults of {model.config_class} (transformers 5.24.0)"
    return {
        key: ConfigValue(key=key, value=value, source=Source.CATALOG, file=file)
        for key, value in model.defaults.items()
        if key not in stated
    }


def _file_facts(keys: Keys) -> FileFacts:
    """The facts, with what other values decide: formats that are widened to be trained, a table of usual width."""
    facts, section = huggingface_facts(), "quantization_config"
    method, width = keys.values.get(f"{section}.quant_method"), keys.values.get("hidden_size")
    widened = method is not None and method.value in facts.widened
    changes: dict[str, dict[str, Any]] = {
        section: {"decides": not widened},
        "word_embed_proj_dim": {"neutral": () if width is None else (width.value,)},
    }
    switches = (replace(each, **changes.get(each.key, {})) for each in facts.unmodelled)
    return FileFacts(ignored=facts.ignored | facts.fields, unmodelled=tuple(switches))


def _known_keys() -> frozenset[str]:
    """Keys of a config.json that the data name, whatever the family, and sections of them."""
    facts = huggingface_facts()
    return facts.ignored.union(facts.fields, (each.key for each in facts.unmodelled))


def _model_name(stated: Mapping[str, ConfigValue], model: Family) -> str:
    path = stated.get("_name_or_path")
    return str(path.value).rstrip("/").rpartition("/")[2] if path is not None and path.value else model.name


def _probability(keys: Keys, source: object) -> float:
    return keys.number(source, 0.0) if isinstance(source, str) else 0.0


def _weight_type(stated: Mapping[str, ConfigValue]) -> Compute | None:
    """The type that a person says; what config.json states is the type that weights were stored in."""
    keys = Keys(stated)
    for key in ("dtype", "torch_dtype"):
        if key in stated and stated[key].source is Source.OVERRIDE:
            return _TYPES[keys.choice(key, "float32", _TYPES)]
    return None


def catalog_model(name: str, overrides: Sequence[Override]) -> Described:
    """A model of the catalog, of which layers, vocabulary and tying may be overridden.

    Raises `PresetUnknown`, and `ConfigurationError` for another override.
    """
    known = catalog.model(name)
    model = known.architecture
    values: dict[str, Any] = {
        MODEL: known.name,
        "hidden_size": model.hidden,
        "num_hidden_layers": len(model.layers),
        "vocab_size": model.vocabulary,
        "tie_word_embeddings": model.tied_embeddings,
    }
    file = f"models/{known.name}.yaml"
    tree: Tree = {
        key: ConfigValue(key=key, value=value, source=Source.CATALOG, file=file) for key, value in values.items()
    }
    for override in overrides:
        if override.key in {MODEL, "hidden_size"}:
            expected = "num_hidden_layers, vocab_size and tie_word_embeddings; a config.json states the rest"
            raise ConfigurationError("cannot be changed here", place=f"override {override.key}", expected=expected)
    stated = flatten(overridden(tree, overrides))
    keys = Keys(stated)
    count = keys.required("num_hidden_layers", maximum=len(model.layers))
    model = replace(
        model,
        layers=model.layers[:count],
        vocabulary=keys.required("vocab_size"),
        tied_embeddings=keys.boolean("tie_word_embeddings"),
    )
    sinks = any(isinstance(layer.mixer, Attention) and layer.mixer.sinks for layer in model.layers)
    trained = Trained(model=model, eager_attention=sinks, modules=catalog_forms(known.huggingface_class, model))
    return Described(trained=trained, values=stated, ignored=())
