"""Batch, element widths, optimizer and framework choices from Megatron-LM's and Primus's arguments."""

from collections.abc import Mapping
from dataclasses import dataclass

from projector.config.element_types import ELEMENT_BYTES
from projector.config.expert_dispatch import FUSED_BACKENDS, fused_dispatch
from projector.config.keys import Keys
from projector.config.megatron.vocabulary import padded_vocabulary
from projector.config.notes import Notes
from projector.errors import ConfigurationError
from projector.job import (
    AttentionBackend,
    Batch,
    CrossEntropy,
    Dialect,
    ExpertBackend,
    ExpertDispatch,
    LowPrecision,
    Optimizer,
    OptimizerKind,
    Precision,
    Software,
)
from projector.job.limits import MAXIMUM_INTEGER

_TYPES = ("fp32", "bf16", "fp16", "fp8")
"""Types of optimizer state by Megatron-LM's names."""
_FP8_RECIPES = {
    "delayed": LowPrecision.FP8,
    "tensorwise": LowPrecision.FP8,
    "custom": LowPrecision.FP8,
    "blockwise": LowPrecision.FP8_BLOCK,
    "mxfp8": LowPrecision.MXFP8,
}
_FP4_RECIPES = {"nvfp4": LowPrecision.NVFP4, "mxfp4": LowPrecision.MXFP4, "custom": LowPrecision.NVFP4}
_SYNC_FREE_DISPATCH_STAGE = 2
"""Sync-free MoE stage from which Primus-Turbo switches DeepEP and its grouped GEMM on by itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rule:
    """How a value of `optimizer` is modelled."""

    kind: OptimizerKind = OptimizerKind.ADAM
    """The update rule that is counted."""
    moments: int = 2
    """Moments that it keeps."""
    moment_bytes: int | None = None
    """Bytes of an element of a moment; None for what the arguments say."""
    lacking: str = ""
    """What the answer lacks because of a difference to `kind`; empty for none."""
    decides: bool = False
    """Whether memory may be wrong because of it."""


_EIGHT_BIT = _Rule(moment_bytes=1, lacking="scales of its blocks and small tensors kept in fp32 are not counted")
_OPTIMIZERS: Mapping[str, _Rule] = {
    "adam": _Rule(),
    "adamw": _Rule(),
    "sgd": _Rule(kind=OptimizerKind.SGD, moments=1),
    "muon": _Rule(kind=OptimizerKind.MUON, moments=1),
    "dist_muon": _Rule(kind=OptimizerKind.MUON, moments=1),
    "adaptive_muon": _Rule(
        kind=OptimizerKind.MUON, moments=1, lacking="its second moment is not counted", decides=True
    ),
    "lion": _Rule(kind=OptimizerKind.SGD, moments=1, lacking="its step takes the time of SGD with momentum"),
    "soap": _Rule(lacking="its preconditioners are not counted", decides=True),
    "adam-bnb-8bit": _EIGHT_BIT,
    "adamw-bnb-8bit": _EIGHT_BIT,
}
"""Values of `optimizer`: Megatron-LM's own (megatron/training/arguments.py of megatron-core 0.19.2) and those of public
forks (inclusionAI/Ling-V2 runs bitsandbytes' 8-bit AdamW, which keeps one byte a moment; arXiv 2110.02861)."""


def batch(keys: Keys, notes: Notes, *, stock: bool = False) -> Batch:
    """How many sequences an iteration trains on.

    Without a global batch `stock` Megatron-LM trains one micro batch a rank (megatron/training/arguments.py).
    """
    micro, sequence_length = keys.required("micro_batch_size"), keys.required("seq_length")
    stated = keys.integer("global_batch_size", minimum=1)
    if stated is None:
        stated = _last_of_schedule(keys)
    if stated is None and stock:
        notes.assume(
            "one micro batch per iteration and data-parallel rank",
            "no global_batch_size is stated, and Megatron-LM then takes micro_batch_size x data-parallel ranks",
        )
        return Batch(micro=micro, sequence_length=sequence_length)
    global_ = keys.required("global_batch_size") if stated is None else stated
    return Batch(micro=micro, global_=global_, sequence_length=sequence_length)


def _last_of_schedule(keys: Keys) -> int | None:
    """The batch that `step_batch_size_schedule` ends with: pairs `threshold:size`, spaces or commas between them."""
    key = "step_batch_size_schedule"
    entries = keys.text(key, "").replace(",", " ").split()
    if not entries:
        return None
    size = entries[-1].rpartition(":")[2]
    if not (size.isascii() and size.isdigit() and 0 < len(size) <= len(str(MAXIMUM_INTEGER))):
        keys.wrong(key, "pairs THRESHOLD:SIZE")
    return int(size)


def precision(keys: Keys, notes: Notes) -> Precision:
    """Element widths of everything that is stored.

    Main gradients are fp32 under bf16 unless reduced or kept in bf16, and fp16 under fp16 unless fp32 is asked for; the
    precision-aware optimizer alone may narrow moments and master weights (Megatron-LM megatron/training/arguments.py).
    FSDP2 has no main gradients: it keeps a shard's gradient in the type of its weight (PyTorch
    torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py).
    """
    half = _is_half(keys)
    if not half and not keys.values.keys() & {"bf16", "fp16"}:
        notes.assume("training in fp32", "neither bf16 nor fp16 is stated, and Megatron-LM then trains in fp32")
    names = _TYPES
    main = keys.choice("main_grads_dtype", "fp32", ("fp32", "bf16"))
    first, second = keys.choice("exp_avg_dtype", "fp32", names), keys.choice("exp_avg_sq_dtype", "fp32", names)
    master = keys.choice("main_params_dtype", "fp32", names)
    aware = keys.boolean("use_precision_aware_optimizer")
    narrow = keys.boolean("grad_reduce_in_bf16") | keys.boolean("use_torch_fsdp2") or (aware and main == "bf16")
    accumulated = keys.boolean("accumulate_allreduce_grads_in_fp32")
    narrow |= keys.boolean("fp16") and not accumulated
    rule = _rule(keys, notes)
    low = _low_precision(keys)
    narrow_weights = keys.boolean("fp8_param_gather") | keys.boolean("fp4_param") | keys.boolean("fp4_param_gather")
    return Precision(
        weight_bytes=2 if half else 4,
        gradient_bytes=2 if half and narrow else 4,
        master_weight_bytes=(ELEMENT_BYTES[master] if aware else 4) if half else 0,
        first_moment_bytes=rule.moment_bytes or (ELEMENT_BYTES[first] if aware else 4),
        second_moment_bytes=(rule.moment_bytes or (ELEMENT_BYTES[second] if aware else 4)) if rule.moments > 1 else 0,
        activation_bytes=2 if half else 4,
        low_precision=low,
        low_precision_weights=low is not None and narrow_weights,
    )


def _is_half(keys: Keys) -> bool:
    """Whether the model trains in 16 bits; Megatron-LM refuses both kinds at once (megatron/training/arguments.py)."""
    brain, plain = keys.boolean("bf16"), keys.boolean("fp16")
    if brain and plain:
        raise ConfigurationError("fp16 and bf16 are both on", place=keys.place("fp16"), expected="one of them")
    return brain or plain


def _low_precision(keys: Keys) -> LowPrecision | None:
    fp8, fp4 = keys.raw("fp8"), keys.raw("fp4")
    recipe8 = keys.choice("fp8_recipe", "delayed", _FP8_RECIPES)
    recipe4 = keys.choice("fp4_recipe", "nvfp4", _FP4_RECIPES)
    if fp4 not in (None, False):  # a tuple, since a list is no member of a set
        keys.choice("fp4", "e2m1", ("e2m1",))
        return _FP4_RECIPES[recipe4]
    if fp8 in (None, False):
        return None
    keys.choice("fp8", "hybrid", ("e4m3", "hybrid"))
    return _FP8_RECIPES[recipe8]


def _rule(keys: Keys, notes: Notes) -> _Rule:
    """How the optimizer is modelled; what is lacking is noted."""
    name = keys.choice("optimizer", "adam", _OPTIMIZERS)
    rule = _OPTIMIZERS[name]
    if rule.lacking:
        what = f"the optimizer {name}"
        notes.not_modelled(what, where=keys.place("optimizer"), effect=rule.lacking, decides=rule.decides)
    return rule


def optimizer(keys: Keys) -> Optimizer:
    """The update rule and where its state lives."""
    kind = _OPTIMIZERS[keys.choice("optimizer", "adam", _OPTIMIZERS)].kind
    fraction = keys.number("optimizer_offload_fraction", 1.0)
    if fraction > 1:
        keys.wrong("optimizer_offload_fraction", "a number from 0 to 1")
    return Optimizer(
        kind=kind,
        offload_fraction=fraction if keys.boolean("optimizer_cpu_offload") else 0.0,
        muon_newton_schulz_steps=keys.integer("muon_num_ns_steps", 5, minimum=1),
    )


def software(keys: Keys, notes: Notes) -> Software:
    """Framework choices. `enable_primus_turbo: false` switches every Turbo feature off, whatever their own keys say."""
    turbo = keys.boolean("enable_primus_turbo")
    stage = keys.integer("turbo_sync_free_moe_stage", 0) * turbo
    permute_fusion = keys.boolean("moe_permute_fusion") or stage > 0
    implementation = keys.choice(
        "transformer_impl", "transformer_engine", ("transformer_engine", "local", "inference_optimized")
    )
    own = Dialect.MEGATRON_LOCAL if implementation == "local" else Dialect.MEGATRON_TE
    return Software(
        dialect=Dialect.PRIMUS_TURBO if turbo else own,
        flash_attention=_flash_attention(keys, turbo=turbo, own=own),
        cross_entropy=_cross_entropy(keys),
        gradient_accumulation_fusion=keys.boolean("gradient_accumulation_fusion", default=True),
        overlap_gradient_reduce=keys.boolean("overlap_grad_reduce"),
        overlap_parameter_gather=keys.boolean("overlap_param_gather"),
        overlap_tensor_parallel=keys.boolean("tp_comm_overlap"),
        expert_dispatch=_dispatch(keys, notes, turbo=turbo, stage=stage),
        expert_backend=_expert_backend(keys, turbo=turbo, stage=stage),
        attention_backend=_attention_backend(keys, turbo=turbo),
        rotary_fusion=keys.boolean("apply_rope_fusion", default=True),
        attention_mask_tensor=keys.boolean("create_attention_mask_in_dataloader", default=True),
        attention_dropout=keys.number("attention_dropout", 0.1),
        hidden_dropout=keys.number("hidden_dropout", 0.1),
        permute_fusion=permute_fusion,
        expert_capacity_factor=keys.number("moe_expert_capacity_factor"),
        force_load_balancing=keys.boolean("moe_router_force_load_balancing"),
        vocabulary_divisible_by=keys.integer("make_vocab_size_divisible_by", 128, minimum=1)
        if padded_vocabulary(keys) is None and not keys.integer("extra_vocab_size", 0)
        else 1,
    )


def _flash_attention(keys: Keys, *, turbo: bool, own: Dialect) -> bool:
    """Whether attention scores are never stored.

    Transformer Engine takes a flash or fused kernel by itself, in 16 bits alone; Megatron-LM's own layers only when
    told to. Asked for in fp32 such a kernel is refused (TransformerEngine dot_product_attention/utils.py
    `get_attention_backend`, flash-attn).
    """
    half = _is_half(keys)
    backend = keys.choice("attention_backend", "auto", ("auto", "flash", "fused", "unfused", "local"))
    variants = ("use_flash_attn", "use_flash_attn_v1", "use_flash_attn_v2", "use_flash_attn_triton")
    asked, turbo_attention = [keys.boolean(key) for key in variants], keys.boolean("use_turbo_attention")
    if not half and not turbo and (any(asked) or backend in {"flash", "fused"}):
        key = next((key for key, is_on in zip(variants, asked, strict=True) if is_on), "attention_backend")
        message = "a flash or fused attention kernel works in 16 bits, and the training is in fp32"
        raise ConfigurationError(message, place=keys.place(key), expected="bf16 or fp16 beside it")
    wanted = any(asked) or (own is Dialect.MEGATRON_TE and half)
    return (turbo and turbo_attention) or backend in {"flash", "fused"} or (wanted and backend == "auto")


def _attention_backend(keys: Keys, *, turbo: bool) -> AttentionBackend | None:
    """The kernel family that is asked for; `fused` means cuDNN or AMD's kernels, so that the device decides."""
    turbo_attention = keys.boolean("use_turbo_attention")
    flash = keys.text("attention_backend") == "flash"
    return AttentionBackend.FLASH if flash or (turbo and turbo_attention) else None


def _cross_entropy(keys: Keys) -> CrossEntropy:
    implementation = keys.choice("cross_entropy_fusion_impl", "native", ("native", "te", "linear"))
    fused = keys.boolean("cross_entropy_loss_fusion")
    chunked = keys.boolean("enable_fused_linear_ce")
    if chunked or (fused and implementation == "linear"):
        return CrossEntropy.LINEAR_FUSED
    if not fused:
        return CrossEntropy.UNFUSED
    return CrossEntropy.TRANSFORMER_ENGINE if implementation == "te" else CrossEntropy.NATIVE_FUSED


def _dispatch(keys: Keys, notes: Notes, *, turbo: bool, stage: int) -> ExpertDispatch:
    kinds = ("allgather", "alltoall", "alltoall_seq", "flex")
    kind = keys.choice("moe_token_dispatcher_type", "allgather", kinds)
    wanted = keys.boolean("use_turbo_deepep") or stage >= _SYNC_FREE_DISPATCH_STAGE
    backend = keys.choice("moe_flex_dispatcher_backend", "deepep", FUSED_BACKENDS)
    if keys.boolean("moe_enable_deepep") or (turbo and wanted):
        return ExpertDispatch.DEEPEP
    if kind == "flex":
        return fused_dispatch(backend, notes, where=keys.place("moe_flex_dispatcher_backend"))
    return ExpertDispatch.ALL_GATHER if kind == "allgather" else ExpertDispatch.ALL_TO_ALL


def _expert_backend(keys: Keys, *, turbo: bool, stage: int) -> ExpertBackend:
    grouped = keys.boolean("moe_grouped_gemm")
    keys.boolean("moe_use_legacy_grouped_gemm")
    wanted = keys.boolean("use_turbo_grouped_gemm") | keys.boolean("use_turbo_grouped_mlp")
    if turbo and (wanted or stage >= _SYNC_FREE_DISPATCH_STAGE):
        return ExpertBackend.GROUPED_FUSED
    return ExpertBackend.GROUPED_LOOP if grouped else ExpertBackend.SEQUENTIAL
