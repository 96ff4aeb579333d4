"""Batch, element widths, optimizer, recomputation and framework choices from TorchTitan's values."""

from dataclasses import replace

from projector.config.element_types import ELEMENT_BYTES
from projector.config.expert_dispatch import FUSED_BACKENDS, fused_dispatch
from projector.config.notes import Notes
from projector.config.optimizers import OptimizerRule, optimizers
from projector.config.torchtitan.spelling import MICRO_BATCH, TitanKeys
from projector.errors import BatchIndivisible, ConfigurationError, shown
from projector.job import (
    AttentionBackend,
    Batch,
    CrossEntropy,
    Dialect,
    ExpertBackend,
    ExpertDispatch,
    LowPrecision,
    ModelArchitecture,
    Optimizer,
    Precision,
    Recompute,
    RecomputeGranularity,
    RecomputeMethod,
    Sharding,
    Software,
)

_GLOBAL = "training.global_batch_size"
_TOKENS, _ALL_TOKENS = "training.num_tokens_per_microbatch_per_dp_rank", "training.num_tokens_per_train_step"
_TYPES = ("float32", "bfloat16", "float16")
"""Types that a value may be stored in (torchtitan/config `TORCH_DTYPE_MAP`)."""
_FLOAT8 = frozenset({"float8", "quantize.linear.float8", "quantize.dense.float8"})
_MX = frozenset({"mx", "quantize.linear.mx", "quantize.dense.mx"})
_WIDE_GRADIENTS = "rowwise_with_gw_hp"
_FLOAT8_RECIPES = ("tensorwise", "rowwise", _WIDE_GRADIENTS)
"""Scalings of pytorch/ao torchao/float8/config.py; scales of rows are too few to count."""
_GROUPED = frozenset({"quantize.grouped_mm.float8", "quantize.grouped_mm.mx", "quantize.moe.float8", "quantize.moe.mx"})
_CONVERTERS = frozenset({*_FLOAT8, *_MX, *_GROUPED, "primus_turbo"})
"""Converters of models that are known; others are reported."""
_UNQUANTIZED_ANYWAY = ("output", "lm_head", "router", "gate", "embed")
"""Parts of names of modules that no format here covers, whether or not a filter names them."""
_PRODUCTS = frozenset(
    {*(f"attention.w{name}" for name in "qkvo"), *(f"feed_forward.w{number}" for number in (1, 2, 3))}
)
"""Matrix products of a dense layer of Llama, by TorchTitan's names."""
MAXIMUM_SEQUENCES = 10**9
"""Sequences of one batch."""


def batch(keys: TitanKeys, *, stages: int) -> Batch:
    """How many sequences an iteration trains on.

    A pipeline of some `stages` cuts the local batch into micro batches; without a global batch it is one local batch
    per rank. From 2026 on a file counts the tokens of one micro batch instead, and of a step. A larger global batch
    makes the pipeline run several times (torchtitan/trainer.py, gradient accumulation).
    Raises `BatchIndivisible` where the local batch does not divide.
    """
    sequence = keys.integer("training.seq_len", 2048, minimum=1)
    local = keys.integer("training.local_batch_size", 8, minimum=1, maximum=MAXIMUM_SEQUENCES)
    size = keys.integer(MICRO_BATCH, 1, minimum=1, maximum=MAXIMUM_SEQUENCES)
    count = keys.integer("parallelism.num_pp_microbatches", minimum=1, maximum=MAXIMUM_SEQUENCES)
    stated = None if _is_open(keys, _GLOBAL) else keys.integer(_GLOBAL, minimum=1, maximum=MAXIMUM_SEQUENCES)
    micro = _sequences(keys, _TOKENS, sequence)
    whole = _sequences(keys, _ALL_TOKENS, sequence)
    if micro is not None:
        _refuse_both(keys)
        return _batch(micro, count or 1, sequence, whole, stages=stages)
    micro, pieces = local, 1
    if stages > 1:
        # Up to 2024 their number was stated, by default that of the stages; later their size.
        if count is None and keys.own("parallelism.pipeline_parallel_degree").startswith("experimental."):
            count = stages
        pieces = count or local // size
        if pieces == 0 or local % pieces or (count is None and local % size):
            message = f"the local batch {local} does not divide into micro batches"
            expected = f"a divisor of {local}"
            place = keys.place("parallelism.num_pp_microbatches" if count else MICRO_BATCH)
            raise BatchIndivisible(message, place=place, expected=expected)
        micro = local // pieces
    return _batch(micro, pieces, sequence, stated or whole, stages=stages)


def _batch(micro: int, pieces: int, length: int, whole: int | None, *, stages: int) -> Batch:
    """A batch of which every run of a pipeline takes `pieces` micro batches."""
    run = pieces if stages > 1 else None
    return Batch(micro=micro, micro_batches=run or 1, sequence_length=length, global_=whole, pipeline_micro_batches=run)


def _is_open(keys: TitanKeys, key: str) -> bool:
    """Whether a size is -1: what the other sizes make it."""
    return keys.raw(key) == -1


def _sequences(keys: TitanKeys, key: str, length: int) -> int | None:
    """Whole sequences among a number of tokens; None for -1 and where the file counts in sequences."""
    tokens = None if _is_open(keys, key) else keys.integer(key, minimum=1)
    if tokens is None:
        return None
    if tokens % length:
        message = f"{tokens} tokens are no whole number of sequences of {length}"
        raise BatchIndivisible(message, place=keys.place(key), expected=f"a multiple of {length}")
    return tokens // length


def _refuse_both(keys: TitanKeys) -> None:
    """Raise `ConfigurationError` for a batch that is counted in tokens and in sequences."""
    for key in ("training.local_batch_size", _GLOBAL):
        if keys.stated_by_person(key) and keys.raw(key) is not None and not _is_open(keys, key):
            message = f"{shown(keys.raw(key))} sequences, and {keys.own(_TOKENS)} counts the batch in tokens"
            raise ConfigurationError(message, place=keys.place(key), expected="one of the two")


def precision(keys: TitanKeys, notes: Notes) -> Precision:
    """Element widths of everything that is stored.

    `training.dtype` is the type of parameters, gradients and moments, with no copy beside them; mixed precision only
    changes what is computed with, and what gradients are summed in (torchtitan/config/job_config.py).
    """
    stored = ELEMENT_BYTES[keys.choice("training.dtype", "float32", _TYPES)]
    computed = ELEMENT_BYTES[keys.choice("training.mixed_precision_param", "bfloat16", _TYPES)]
    reduced = ELEMENT_BYTES[keys.choice("training.mixed_precision_reduce", "float32", _TYPES)]
    first, second = _rule(keys, None).moments(stored, stored)
    return Precision(
        weight_bytes=stored,
        gradient_bytes=stored,
        reduction_bytes=reduced,
        master_weight_bytes=0,
        first_moment_bytes=first,
        second_moment_bytes=second,
        activation_bytes=min(stored, computed),
        low_precision=_low_precision(keys, notes),
    )


def _low_precision(keys: TitanKeys, notes: Notes) -> LowPrecision | None:
    """Format of the linear layers: what a converter of the model, or a switch of 2024, puts in place."""
    converters = _names(keys, "model.converters")
    for name in sorted(set(converters) - _CONVERTERS):
        notes.not_modelled(
            f"the model converter {name}", where=keys.place("model.converters"), effect="it is left out", decides=True
        )
    old = keys.boolean("float8.enable_float8_linear") or keys.raw("training.fp8_linear") not in {None, False, ""}
    grouped = {kind: _names(keys, f"quantize.grouped_mm.{kind}.fqns") for kind in ("float8", "mx")}
    scaling = keys.choice("quantize.linear.float8.recipe_name", "tensorwise", _FLOAT8_RECIPES)
    recipe = keys.text("quantize.linear.mx.recipe_name", "mxfp8")
    for section in ("float8", "mx"):
        _names(keys, f"quantize.linear.{section}.filter_fqns")
    if _MX & set(converters):
        if not recipe.startswith(("mxfp4", "mxfp8")):
            keys.wrong("quantize.linear.mx.recipe_name", "a recipe of mxfp8 or mxfp4, such as mxfp8_cublas")
        _note_partial(keys, notes, "quantize.linear.mx", experts=bool(grouped["mx"]))
        return LowPrecision.MXFP4 if recipe.startswith("mxfp4") else LowPrecision.MXFP8
    if old or _FLOAT8 & set(converters):
        if scaling == _WIDE_GRADIENTS:
            notes.not_modelled(
                "weight gradients computed in 16 bits",
                where=keys.place("quantize.linear.float8.recipe_name"),
                effect="their products count as float8, which is faster",
                decides=False,
            )
        _note_partial(keys, notes, "quantize.linear.float8", experts=bool(grouped["float8"]))
        return LowPrecision.FP8
    return None


def _note_partial(keys: TitanKeys, notes: Notes, section: str, *, experts: bool) -> None:
    """Say which linear layers stay in 16 bits that the answer counts in the low format."""
    key = f"{section}.filter_fqns"
    kept = [name for name in _names(keys, key) if not any(part in name for part in _UNQUANTIZED_ANYWAY)]
    # A turbo switch of Primus covers the experts too.
    turbo = keys.boolean("primus_turbo.use_moe_fp8")
    if keys.integer("parallelism.expert_parallel_degree", 1) > 1 and not (experts or turbo):
        kept.append("experts")
    if kept:
        notes.not_modelled(
            f"linear layers that stay in 16 bits ({', '.join(kept)})",
            where=keys.place(key),
            effect="they count as low precision, in time and in what they keep",
            decides=False,
        )


def _names(keys: TitanKeys, key: str) -> list[str]:
    """A list of names, or one text of names with commas."""
    value = keys.raw(key)
    if isinstance(value, str):
        return [name.strip() for name in value.split(",") if name.strip()]
    return keys.texts(key) or []


def optimizer(keys: TitanKeys, notes: Notes) -> Optimizer:
    """The update rule, what its step makes, and whether FSDP keeps weights, gradients and its state in host memory.

    The step runs in one kernel by default since 2025 (`optimizer.implementation`); before, `optimizer.fused` asked for
    it, and torch otherwise takes its multi-tensor kernels (torchtitan/components/optimizer.py).
    """
    rule, dtype = _rule(keys, notes), keys.choice("training.dtype", "float32", _TYPES)
    offload = keys.boolean("training.enable_cpu_offload")
    stored = ELEMENT_BYTES[dtype]
    return replace(
        rule.optimizer,
        exempt_first_bytes=float(stored),
        exempt_second_bytes=float(stored),
        step_bytes=rule.foreach_copies * stored if _multi_tensor(keys) else 0.0,
        newton_schulz_bytes=2,
        offload_fraction=1.0 if offload else 0.0,
        offload_shards=offload,
    )


def _multi_tensor(keys: TitanKeys) -> bool:
    """Whether torch's multi-tensor kernels run the step."""
    implementation, asked = keys.text("optimizer.implementation"), keys.raw("optimizer.fused")
    if implementation is None:
        return asked is not None and not keys.boolean("optimizer.fused")
    return implementation == "foreach"


def _rule(keys: TitanKeys, notes: Notes | None) -> OptimizerRule:
    known, name = optimizers("torchtitan"), keys.text("optimizer.name", "AdamW")
    if name not in known and notes is not None:
        notes.not_modelled(
            f"the optimizer {name}", where=keys.place("optimizer.name"), effect="Adam stands in for it", decides=True
        )
    return known.get(name, known["AdamW"])


def recompute(keys: TitanKeys, notes: Notes, *, layers: int, by_operation: bool) -> Recompute:
    """Activation checkpointing (torchtitan/distributed/activation_checkpoint.py).

    `selective` takes every n-th layer (0: each), or single operations; `by_operation` says that a file which leaves
    it open means the latter, as from 2026 on.
    """
    modes = ("none", "selective", "full", "memory_budget")
    mode = keys.choice("activation_checkpoint.mode", "selective", modes)
    stated = keys.raw("activation_checkpoint.selective_ac_option")
    option = ("op" if by_operation else "2") if stated is None else str(stated)
    forced = _names(keys, "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns")
    if mode == "none":
        return Recompute()
    if mode == "full":
        return Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.UNIFORM, layers=1)
    if mode == "memory_budget":
        notes.not_modelled(
            "activation checkpointing by a memory budget",
            where=keys.place("activation_checkpoint.mode"),
            effect="what the compiler keeps is not known; nothing counts as recomputed: memory is an upper bound",
            decides=True,
        )
        return Recompute()
    if option == "op":
        keeps = not _PRODUCTS.issubset(forced)
        if keeps:
            _note_forced(keys, notes, forced)
        return Recompute(granularity=RecomputeGranularity.OPERATIONS, keeps_products=keeps)
    if not option.isascii() or not option.isdigit() or len(option) > 6:  # noqa: PLR2004 - digits of a number of layers
        expected = "a number of layers, or op"
        place = keys.place("activation_checkpoint.selective_ac_option")
        raise ConfigurationError(f"{option[:40]!r} is not known", place=place, expected=expected)
    every = int(option) or 1
    ids = tuple(range(every - 1, layers, every))
    return Recompute(granularity=RecomputeGranularity.FULL, layer_ids=ids) if ids else Recompute()


def _note_forced(keys: TitanKeys, notes: Notes, forced: list[str]) -> None:
    others = [name for name in forced if "router.gate" not in name]
    if others:
        notes.not_modelled(
            f"matrix products that are always computed again ({', '.join(others)})",
            where=keys.place("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns"),
            effect="every second product counts as kept, so that memory is an upper bound",
            decides=False,
        )


def software(
    keys: TitanKeys, notes: Notes, *, model: ModelArchitecture, sharding: Sharding, registry: bool
) -> Software:
    """Framework choices; Primus's turbo kernels count where they change what is kept.

    Data parallelism of PyTorch reduces gradients beside the backward pass, and FSDP gathers the next layer's weights
    beside a layer (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py). Nothing pads the vocabulary. Until the
    generation with the `registry` (torchtitan/models/common/attention.py `enable_gqa`) keys and values were copied to
    every query head (torchtitan/models/llama3/model/model.py `repeat_kv`); turbo kernels take them as they are. Nor was
    the way of tokens to experts and back compiled (torchtitan/models/llama4/infra/parallelize.py `apply_compile`, pull
    request 1895).
    """
    turbo = keys.boolean("primus_turbo.enable_primus_turbo")
    attention = turbo and keys.boolean("primus_turbo.use_turbo_attention")
    asynchronous = keys.boolean("parallelism.enable_async_tensor_parallel")
    keys.boolean("primus_turbo.use_turbo_async_tp")
    compiled_layers, compiled_loss = _compiled(keys, notes, model)
    if not compiled_layers:
        notes.assume("norms in one kernel", "torch has one from 2.9 on; before, they kept three times as much")
    return Software(
        dialect=Dialect.TORCHTITAN,
        gradients_given_up=True,
        compiled_layers=compiled_layers,
        compiled_dispatch=registry,
        compiled_loss=compiled_loss,
        gradient_accumulation_fusion=False,
        cross_entropy=_cross_entropy(keys, notes),
        overlap_gradient_reduce=True,
        overlap_parameter_gather=sharding is Sharding.PARAMETERS,
        overlap_tensor_parallel=asynchronous,
        expert_dispatch=_dispatch(keys, notes),
        expert_backend=ExpertBackend.GROUPED_FUSED,
        attention_backend=AttentionBackend.FLASH if attention else None,
        repeated_key_values=not (attention or registry),
        force_load_balancing=keys.boolean("debug.moe_force_load_balance"),
        vocabulary_divisible_by=1,
    )


def _dispatch(keys: TitanKeys, notes: Notes) -> ExpertDispatch:
    key = "parallelism.expert_parallel_comm_backend"
    backend = keys.choice(key, "standard", ("standard", *FUSED_BACKENDS))
    if backend == "standard":
        return ExpertDispatch.ALL_TO_ALL
    used = keys.integer("parallelism.expert_parallel_degree", 1) > 1
    return fused_dispatch(backend, notes if used else Notes(), where=keys.place(key))


def _cross_entropy(keys: TitanKeys, notes: Notes) -> CrossEntropy:
    """A loss in chunks runs the output layer piece by piece (torchtitan/components/loss.py ChunkedCELoss)."""
    chunks = keys.integer("loss.num_chunks", 1, minimum=1)
    if chunks == 1:
        return CrossEntropy.UNFUSED
    notes.not_modelled(
        f"the loss in {chunks} chunks",
        where=keys.place("loss.num_chunks"),
        effect=f"no logits are counted; those of one chunk, a share of 1/{chunks}, live for a moment",
        decides=False,
    )
    return CrossEntropy.LINEAR_FUSED


def _compiled(keys: TitanKeys, notes: Notes, model: ModelArchitecture) -> tuple[bool, bool]:
    """Whether torch.compile takes the layers, and the loss (torchtitan/components/loss.py, `compile.components`).

    While the switch was `training.compile` it left out the loss at first (torchtitan/train.py, 9dec370).
    """
    components = _names(keys, "compile.components") or ["model", "loss"]
    if not keys.boolean("compile.enable"):
        return False, False
    layers, loss = "model" in components, "loss" in components
    if loss and keys.own("compile.enable").startswith("training."):
        why = (
            f"{keys.own('compile.enable')} left the loss out until 2025, which takes more memory; later it took it too"
        )
        notes.assume("a loss that is not compiled", why)
        loss = False
    if layers and model.expert_blocks:
        notes.not_modelled(
            "torch.compile of routing and permutation of experts",
            where=keys.place("compile.enable"),
            effect="kernels that it fuses there count as run one by one, which takes longer",
            decides=False,
        )
    return layers, loss
