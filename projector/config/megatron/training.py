"""Batch, element widths, optimizer and framework choices from Megatron-LM's and Primus's arguments."""

from dataclasses import replace

from projector.config.element_types import ELEMENT_BYTES
from projector.config.expert_dispatch import FUSED_BACKENDS, fused_dispatch
from projector.config.keys import Keys
from projector.config.megatron.compressed import is_compressed
from projector.config.megatron.graphs import graphed_modules
from projector.config.megatron.layout import layer_wise
from projector.config.megatron.vocabulary import padded_vocabulary
from projector.config.notes import Notes
from projector.config.optimizers import OptimizerRule, optimizers
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
_FP32_BYTES = 4
_HYBRID_STEPS = 10
"""Eight fast iterations and two that settle (DeepSeek-V4's report, section 2.4)."""
_WIDE_ROUTERS = ("fp32", "fp64")
"""Types in which a router hands on wider probabilities."""
_SYNC_FREE_DISPATCH_STAGE = 2
"""Sync-free MoE stage from which Primus-Turbo switches DeepEP and its grouped GEMM on by itself."""


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
        return Batch(micro=micro, sequence_length=sequence_length, masks_samples=_masks_samples(keys))
    global_ = keys.required("global_batch_size") if stated is None else stated
    return Batch(micro=micro, global_=global_, sequence_length=sequence_length, masks_samples=_masks_samples(keys))


def _masks_samples(keys: Keys) -> bool:
    """Whether attention stays inside the samples or documents of a sequence.

    Primus packs with `enable_packed_sequences` and lets attention cross samples unless `use_packed_attention` is on;
    Megatron-LM's `sft` and Megatron-Bridge's `packed_sequence` hand their ends to the kernel.
    """
    packs, apart = keys.boolean("enable_packed_sequences"), keys.boolean("use_packed_attention")
    others = [keys.boolean(key) for key in ("dataloader_inter_document_masking", "sft", "packed_sequence")]
    return (packs and apart) or any(others)


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
    stated = _stated_moments(keys)
    master = keys.choice("main_params_dtype", "fp32", names)
    aware = keys.boolean("use_precision_aware_optimizer")
    narrow = _narrow_gradients(keys)
    rule = _rule(keys).noted(keys.text("optimizer", "adam"), notes, where=keys.place("optimizer"))
    low = _low_precision(keys)
    narrow_weights = keys.boolean("fp8_param_gather") | keys.boolean("fp4_param") | keys.boolean("fp4_param_gather")
    primary = low is not None and narrow_weights
    first, second = rule.moments(*(stated if aware else (_FP32_BYTES, _FP32_BYTES)))
    return Precision(
        weight_bytes=2 if half else 4,
        gradient_bytes=2 if half and narrow else 4,
        master_weight_bytes=_master_bytes(keys, ELEMENT_BYTES[master], primary=primary) if half else 0,
        first_moment_bytes=first,
        second_moment_bytes=second,
        activation_bytes=2 if half else 4,
        low_precision=low,
        weight_transposes=not keys.boolean("no_fp8_weight_transpose_cache"),
        delayed_scaling=low is LowPrecision.FP8 and keys.choice("fp8_recipe", "delayed", _FP8_RECIPES) == "delayed",
        low_precision_weights=primary,
    )


def _master_bytes(keys: Keys, stated: int, *, primary: bool) -> int:
    """Bytes of a master weight; the precision-aware optimizer keeps the lower half of an fp32 one beside a bf16 weight.

    Megatron-LM megatron/core/optimizer/__init__.py passes `store_param_remainders` to Transformer Engine 2.1 and later,
    whose FusedAdam keeps 16 bits of each master weight then (pytorch/optimizers/fused_adam.py); weights that are stored
    in fp8 are no upper half.
    """
    remainders = keys.boolean("store_param_remainders", default=True) and not primary
    if not keys.boolean("use_precision_aware_optimizer"):
        return _FP32_BYTES
    halved = remainders and stated == _FP32_BYTES and keys.boolean("bf16")
    return stated // 2 if halved else stated


def _stated_moments(keys: Keys) -> list[int]:
    """Bytes of both moments as the precision-aware optimizer would keep them."""
    return [ELEMENT_BYTES[keys.choice(key, "fp32", _TYPES)] for key in ("exp_avg_dtype", "exp_avg_sq_dtype")]


def _narrow_gradients(keys: Keys) -> bool:
    """Whether main gradients have 16 bits in 16-bit training."""
    main = keys.choice("main_grads_dtype", "fp32", ("fp32", "bf16"))
    aware = keys.boolean("use_precision_aware_optimizer")
    narrow = keys.boolean("grad_reduce_in_bf16") | keys.boolean("use_torch_fsdp2") or (aware and main == "bf16")
    accumulated = keys.boolean("accumulate_allreduce_grads_in_fp32")
    return narrow or (keys.boolean("fp16") and not accumulated)


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


def _rule(keys: Keys) -> OptimizerRule:
    """How the optimizer is modelled; the precision-aware one refuses all but Adam (optimizer_config.py)."""
    known = optimizers("megatron")
    return known[keys.choice("optimizer", "adam", known)]


def optimizer(keys: Keys) -> Optimizer:
    """The update rule, what its step holds for a moment, and where its state lives.

    Without the precision-aware optimizer a step widens 16-bit gradients (distrib_optimizer.py and optimizer.py
    `_copy_model_grads_to_main_grads`); with it, master weights are part of the state that the first step makes.
    """
    rule = _rule(keys)
    aware = keys.boolean("use_precision_aware_optimizer")
    scalars = keys.choice("muon_scalar_optimizer", "adam", ("adam", "lion"))
    fraction = keys.number("optimizer_offload_fraction", 1.0)
    if fraction > 1:
        keys.wrong("optimizer_offload_fraction", "a number from 0 to 1")
    apart = rule.optimizer
    if apart.kind is OptimizerKind.MUON and scalars == "lion":
        apart = replace(apart, exempt_second_bytes=0.0)
    return replace(
        apart,
        step_bytes=_FP32_BYTES if _is_half(keys) and _narrow_gradients(keys) and not aware else 0.0,
        moment_copy_bytes=_FP32_BYTES * sum(width < _FP32_BYTES for width in _stated_moments(keys)) if aware else 0.0,
        master_in_state=aware,
        offload_fraction=fraction if keys.boolean("optimizer_cpu_offload") else 0.0,
        whole_tensors=apart.whole_tensors or layer_wise(keys),
        muon_newton_schulz_steps=_newton_schulz_steps(keys),
    )


def _newton_schulz_steps(keys: Keys) -> int:
    """Iterations of Muon. For DeepSeek-V4 Primus takes the ten of its report, unless a person states another number.

    AMD-AGI/Primus primus/backends/megatron/patches/ `patch_get_megatron_muon_optimizer_builder` (`deepseekv4`).
    """
    stated = keys.integer("muon_num_ns_steps", 5, minimum=1)
    return stated if keys.stated_by_person("muon_num_ns_steps") or not is_compressed(keys) else _HYBRID_STEPS


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
        overlap_expert_parallel=keys.boolean("overlap_moe_expert_parallel_comm"),
        overlap_tensor_parallel=keys.boolean("tp_comm_overlap"),
        expert_dispatch=_dispatch(keys, notes, turbo=turbo, stage=stage),
        expert_dispatch_units=_dispatch_units(keys, turbo=turbo),
        expert_backend=_expert_backend(keys, turbo=turbo, stage=stage),
        stacked_experts=_stacks_experts(keys, turbo=turbo),
        attention_backend=_attention_backend(keys, turbo=turbo),
        rotary_fusion=keys.boolean("apply_rope_fusion", default=True),
        deterministic=keys.boolean("deterministic_mode"),
        graphed_modules=graphed_modules(keys),
        deferred_output_gradients=_deferred_output_gradients(keys),
        optimizer_post_validation=keys.boolean("enable_optimizer_post_validation"),
        attention_mask_tensor=keys.boolean("create_attention_mask_in_dataloader", default=True),
        attention_dropout=keys.number("attention_dropout", 0.1),
        hidden_dropout=keys.number("hidden_dropout", 0.1),
        permute_fusion=permute_fusion,
        expert_capacity_factor=keys.number("moe_expert_capacity_factor"),
        expert_capacity_padded=_pads(keys),
        router_fusion=_router_fusion(keys, turbo=turbo, stage=stage),
        sync_free_stage=stage,
        router_in_fp32=keys.text("moe_router_dtype") in _WIDE_ROUTERS,
        force_load_balancing=keys.boolean("moe_router_force_load_balancing"),
        vocabulary_divisible_by=keys.integer("make_vocab_size_divisible_by", 128, minimum=1)
        if padded_vocabulary(keys) is None and not keys.integer("extra_vocab_size", 0)
        else 1,
    )


def _router_fusion(keys: Keys, *, turbo: bool, stage: int) -> bool:
    """Transformer Engine's fused router, or Turbo's, which every sync-free stage brings (Primus `validate_args`)."""
    fused, with_loss = keys.boolean("moe_router_fusion"), keys.boolean("moe_use_fused_router_with_aux_score")
    return fused or (turbo and (with_loss or stage > 0))


def _pads(keys: Keys) -> bool:
    """Whether experts compute their whole capacity, filled or not; True where there is none, which changes nothing."""
    padded = keys.boolean("moe_pad_expert_input_to_capacity")
    return padded or keys.number("moe_expert_capacity_factor") is None


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


def _deferred_output_gradients(keys: Keys) -> int:
    """Micro batches whose weight gradient of the output layer waits; without a limit all of them do.

    Megatron-LM megatron/core/model_parallel_config.py `wgrad_deferral_limit`.
    """
    limit = keys.integer("wgrad_deferral_limit", 0)
    return (limit or MAXIMUM_INTEGER) * keys.boolean("defer_embedding_wgrad_compute")


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


def _dispatch_units(keys: Keys, *, turbo: bool) -> int:
    """Compute units of DeepEP: `turbo_deepep_num_cu` of Primus-Turbo's, one of two names in Megatron-LM.

    Megatron-LM megatron/core/transformer/transformer_config.py, Primus configs/modules/megatron/primus_turbo.yaml.
    """
    stock = keys.integer("moe_deepep_num_sms", 20, minimum=2)
    flexible = keys.integer("moe_flex_dispatcher_num_sms", stock, minimum=2)
    own = keys.integer("turbo_deepep_num_cu", flexible, minimum=2)
    return own if turbo else flexible


def _stacks_experts(keys: Keys, *, turbo: bool) -> bool:
    """Whether one weight holds all experts: `GroupedMLP`, and Primus-Turbo's `PrimusTurboGroupedLinear`.

    AMD-AGI/Primus primus/backends/megatron/core/extensions/primus_turbo.py registers `weights` in place of `weight0` to
    `weight{n}` (0989272c); Megatron-LM transformer/moe/experts.py until 0.15.
    """
    wanted = keys.boolean("use_turbo_grouped_gemm") | keys.boolean("use_turbo_grouped_mlp")
    legacy = keys.boolean("moe_use_legacy_grouped_gemm")
    return keys.boolean("moe_grouped_gemm") and (legacy or (turbo and wanted))


def _expert_backend(keys: Keys, *, turbo: bool, stage: int) -> ExpertBackend:
    grouped = keys.boolean("moe_grouped_gemm")
    wanted = keys.boolean("use_turbo_grouped_gemm") | keys.boolean("use_turbo_grouped_mlp")
    if turbo and (wanted or stage >= _SYNC_FREE_DISPATCH_STAGE):
        return ExpertBackend.GROUPED_FUSED
    return ExpertBackend.GROUPED_LOOP if grouped else ExpertBackend.SEQUENTIAL
