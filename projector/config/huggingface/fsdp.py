"""FSDP as accelerate's `fsdp_config` and the Trainer's FSDP file state it -> what it decides about a run.

Both spell the same keys, accelerate with the prefix `fsdp_`. Meanings are those of huggingface/accelerate
src/accelerate/utils/dataclasses.py (FullyShardedDataParallelPlugin) and transformers 5.24.0 training_args.py.
"""

from dataclasses import dataclass

from projector.config.huggingface.setup import Engine, Kind, Setup, file_facts, plain, rest
from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.errors import ConfigurationError, shown
from projector.job import Sharding
from projector.provenance import ConfigValue

MARKS = frozenset(
    {
        "activation_checkpointing",
        "auto_wrap_policy",
        "backward_prefetch",
        "cpu_offload",
        "limit_all_gathers",
        "min_num_params",
        "offload_params",
        "reshard_after_forward",
        "sharding_strategy",
        "transformer_layer_cls_to_wrap",
        "use_orig_params",
        "version",
        "xla",
    }
)
"""Keys of which every FSDP file has one, `fsdp_` in front or not."""
PREFIX = "fsdp_"
_STRATEGIES = {
    "full_shard": (Sharding.PARAMETERS, False),
    "shard_grad_op": (Sharding.GRADIENTS, False),
    "no_shard": (Sharding.NONE, False),
    "hybrid_shard": (Sharding.PARAMETERS, True),
    "hybrid_shard_zero2": (Sharding.GRADIENTS, True),
}
"""What a strategy divides, and whether within nodes alone; numbered from 1 in this order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Strategy:
    """What FSDP divides, and where its shards live."""

    sharding: Sharding
    """What is divided."""
    within_node: bool = False
    """Over the GPUs of a node alone."""
    offload: bool = False
    """Shards live in host memory."""


def read_fsdp(stated: Keys, notes: Notes, *, name: str) -> tuple[Setup, list[str]]:
    """What a file of the Trainer decides, and its keys without influence; raises `ConfigurationError`."""
    keys = Keys(_without_prefix(stated))
    setup = fsdp_setup(keys)
    ignored = rest(keys, file_facts(Kind.FSDP), notes, name=name)
    return setup, [keys.values[key].key for key in ignored]


def _without_prefix(stated: Keys) -> dict[str, ConfigValue]:
    return {key.removeprefix(PREFIX): value for key, value in plain(stated).items()}


def fsdp_setup(keys: Keys, prefix: str = "") -> Setup:
    """What keys behind a prefix decide."""
    found = _strategy(keys, prefix)
    checkpointing = truth(keys, f"{prefix}activation_checkpointing")
    offloads = [truth(keys, f"{prefix}{name}") for name in ("offload_params", "cpu_offload")]
    return Setup(
        engine=Engine.FSDP,
        sharding=found.sharding,
        within_node=found.within_node,
        offload_shards=found.offload or any(offloads),
        checkpointing=checkpointing,
        places={
            "sharding": keys.place(f"{prefix}sharding_strategy"),
            "checkpointing": keys.place(f"{prefix}activation_checkpointing"),
        },
    )


def strategy(words: str, *, place: str) -> Strategy:
    """What the words of the Trainer's `fsdp` say, such as `full_shard offload auto_wrap`."""
    stated = words.lower().split()
    names = [word for word in stated if word not in {"auto_wrap", "offload"}]
    if len(names) != 1 or names[0] not in _STRATEGIES:
        raise ConfigurationError(
            f"{shown(words)} is not a strategy of FSDP", place=place, expected=f"one of {', '.join(_STRATEGIES)}"
        )
    sharding, within = _STRATEGIES[names[0]]
    return Strategy(sharding=sharding, within_node=within, offload="offload" in stated)


def _strategy(keys: Keys, prefix: str) -> Strategy:
    """The strategy by name or number; FSDP2 says instead whether weights are divided again after forward."""
    keys.raw(f"{prefix}version")
    key = f"{prefix}sharding_strategy"
    value = keys.raw(key)
    if value is None:
        key = f"{prefix}reshard_after_forward"
        value = keys.raw(key)
    names = list(_STRATEGIES)
    words = {"true": "full_shard", "false": "shard_grad_op", **{str(n): name for n, name in enumerate(names, 1)}}
    text = "full_shard" if value is None else str(value).lower()
    return strategy(words.get(text, text), place=keys.place(key))


def truth(keys: Keys, key: str) -> bool | None:
    """A boolean that may be written as a text, as accelerate's questionnaire does; None when absent."""
    value = keys.raw(key)
    if value is None:
        return None
    text = str(value).lower()
    if text not in {"true", "false", "1", "0", "yes", "no"}:
        keys.wrong(key, "true or false")
    return text in {"true", "1", "yes"}
