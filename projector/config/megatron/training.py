"""Batch, element widths, optimizer and framework choices from Megatron-LM's and Primus's arguments."""

from projector.config.keys import Keys
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

_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes of an element by Megatron-LM's names."""
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


def batch(keys: Keys) -> Batch:
    """How many sequences an iteration trains on."""
    return Batch(
        micro=keys.required("micro_batch_size"),
        global_=keys.required("global_batch_size"),
        sequence_length=keys.required("seq_length"),
    )


def precision(keys: Keys) -> Precision:
    """Element widths of everything that is stored.

    Main gradients are fp32 under bf16 unless reduced or kept in bf16; the precision-aware optimizer alone may narrow
    moments and master weights (Megatron-LM megatron/training/arguments.py). FSDP2 has no main gradients: it keeps a
    shard's gradient in the type of its weight (PyTorch torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py).
    """
    half = keys.boolean("bf16") | keys.boolean("fp16")
    names = tuple(_BYTES)
    main = keys.choice("main_grads_dtype", "fp32", ("fp32", "bf16"))
    first, second = keys.choice("exp_avg_dtype", "fp32", names), keys.choice("exp_avg_sq_dtype", "fp32", names)
    master = keys.choice("main_params_dtype", "fp32", names)
    aware = keys.boolean("use_precision_aware_optimizer")
    narrow = keys.boolean("grad_reduce_in_bf16") | keys.boolean("use_torch_fsdp2") or (aware and main == "bf16")
    keys.boolean("accumulate_allreduce_grads_in_fp32")
    adam = keys.choice("optimizer", "adam", ("adam", "sgd", "muon", "dist_muon")) == "adam"
    low = _low_precision(keys)
    narrow_weights = keys.boolean("fp8_param_gather") | keys.boolean("fp4_param")
    return Precision(
        weight_bytes=2 if half else 4,
        gradient_bytes=2 if half and narrow else 4,
        master_weight_bytes=(_BYTES[master] if aware else 4) if half else 0,
        first_moment_bytes=_BYTES[first] if aware else 4,
        second_moment_bytes=(_BYTES[second] if aware else 4) if adam else 0,
        activation_bytes=2 if half else 4,
        low_precision=low,
        low_precision_weights=low is not None and narrow_weights,
    )


def _low_precision(keys: Keys) -> LowPrecision | None:
    fp8, fp4 = keys.raw("fp8"), keys.raw("fp4")
    recipe8 = keys.choice("fp8_recipe", "delayed", _FP8_RECIPES)
    recipe4 = keys.choice("fp4_recipe", "nvfp4", _FP4_RECIPES)
    if fp4 not in {None, False}:
        keys.choice("fp4", "e2m1", ("e2m1",))
        return _FP4_RECIPES[recipe4]
    if fp8 in {None, False}:
        return None
    keys.choice("fp8", "hybrid", ("e4m3", "hybrid"))
    return _FP8_RECIPES[recipe8]


def optimizer(keys: Keys) -> Optimizer:
    """The update rule and where its state lives."""
    kind = keys.choice("optimizer", "adam", ("adam", "sgd", "muon", "dist_muon"))
    fraction = keys.number("optimizer_offload_fraction", 1.0)
    if fraction > 1:
        keys.wrong("optimizer_offload_fraction", "a number from 0 to 1")
    return Optimizer(
        kind=OptimizerKind(kind.removeprefix("dist_")),
        offload_fraction=fraction if keys.boolean("optimizer_cpu_offload") else 0.0,
        muon_newton_schulz_steps=keys.integer("muon_num_ns_steps", 5, minimum=1),
    )


def software(keys: Keys) -> Software:
    """Framework choices. `enable_primus_turbo: false` switches every Turbo feature off, whatever their own keys say."""
    turbo = keys.boolean("enable_primus_turbo")
    stage = keys.integer("turbo_sync_free_moe_stage", 0) * turbo
    permute_fusion = keys.boolean("moe_permute_fusion") or stage > 0
    implementation = keys.choice("transformer_impl", "transformer_engine", ("transformer_engine", "local"))
    own = Dialect.MEGATRON_LOCAL if implementation == "local" else Dialect.MEGATRON_TE
    return Software(
        dialect=Dialect.PRIMUS_TURBO if turbo else own,
        flash_attention=_flash_attention(keys, turbo=turbo),
        cross_entropy=_cross_entropy(keys),
        gradient_accumulation_fusion=keys.boolean("gradient_accumulation_fusion", default=True),
        overlap_gradient_reduce=keys.boolean("overlap_grad_reduce"),
        overlap_parameter_gather=keys.boolean("overlap_param_gather"),
        overlap_tensor_parallel=keys.boolean("tp_comm_overlap"),
        expert_dispatch=_dispatch(keys, turbo=turbo, stage=stage),
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
        if keys.raw("padded_vocab_size") is None
        else 1,
    )


def _flash_attention(keys: Keys, *, turbo: bool) -> bool:
    """Whether attention scores are never stored."""
    backend = keys.choice("attention_backend", "auto", ("auto", "flash", "fused", "unfused", "local"))
    flash, turbo_attention = keys.boolean("use_flash_attn"), keys.boolean("use_turbo_attention")
    return (turbo and turbo_attention) or backend in {"flash", "fused"} or (flash and backend == "auto")


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


def _dispatch(keys: Keys, *, turbo: bool, stage: int) -> ExpertDispatch:
    kinds = ("allgather", "alltoall", "alltoall_seq", "flex")
    kind = keys.choice("moe_token_dispatcher_type", "allgather", kinds)
    wanted = keys.boolean("use_turbo_deepep") or stage >= _SYNC_FREE_DISPATCH_STAGE
    backend, megatron = keys.text("moe_flex_dispatcher_backend"), keys.boolean("moe_enable_deepep")
    if (turbo and wanted) or megatron or (kind == "flex" and backend in {None, "deepep"}):
        return ExpertDispatch.DEEPEP
    return ExpertDispatch.ALL_GATHER if kind == "allgather" else ExpertDispatch.ALL_TO_ALL


def _expert_backend(keys: Keys, *, turbo: bool, stage: int) -> ExpertBackend:
    grouped = keys.boolean("moe_grouped_gemm")
    keys.boolean("moe_use_legacy_grouped_gemm")
    wanted = keys.boolean("use_turbo_grouped_gemm") | keys.boolean("use_turbo_grouped_mlp")
    if turbo and (wanted or stage >= _SYNC_FREE_DISPATCH_STAGE):
        return ExpertBackend.GROUPED_FUSED
    return ExpertBackend.GROUPED_LOOP if grouped else ExpertBackend.SEQUENTIAL
