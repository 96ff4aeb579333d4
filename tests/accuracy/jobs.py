"""The layout and training columns of a row as a `TrainingJob` on a `Target`.

What a source does not print is taken from its framework's documented defaults here, in one place, so that the engine
itself never guesses.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import lcm
from typing import Any

from projector import catalog
from projector.config.optimizers import optimizers
from projector.job import (
    ActivationOffload,
    Batch,
    CrossEntropy,
    Dialect,
    LowPrecision,
    Optimizer,
    Parallelism,
    Precision,
    Recompute,
    RecomputeGranularity,
    RecomputeMethod,
    Schedule,
    Sharding,
    Software,
    Target,
    TrainingJob,
)
from tests.accuracy import sharded
from tests.accuracy.architecture import UnscorableError, architecture
from tests.accuracy.batches import global_batch, lowered, micro_batch_group, pending
from tests.accuracy.containers import containers
from tests.accuracy.early import early, is_early
from tests.accuracy.experts import experts
from tests.accuracy.finetuning import adapters, layout, overlaps_tensor_parallel
from tests.accuracy.primus import is_precision_aware, primus, recipe_recompute, stated_precision
from tests.accuracy.rows import Row
from tests.accuracy.torchtitan import is_torchtitan, torchtitan

CI_SOURCE = "megatron-ci-golden"
"""Megatron-LM's own tests, of which a row that states no devices is a release test."""

RELEASE_ROTARY_SHARE = 0.5
"""`--rotary-percent` of its gpt3_15b_8t and mixtral_8x7b_alltoall release tests."""

DEFERRED = 2
"""`--wgrad-deferral-limit` of the defer_embedding_wgrad_compute test."""

CI_WORLD = 8
"""Devices of a Megatron-LM functional test where the tree does not say (one DGX node)."""

LOW_PRECISIONS = {
    "mxfp8": LowPrecision.MXFP8,
    "fp8-mx": LowPrecision.MXFP8,
    "nvfp4": LowPrecision.NVFP4,
    "fp8 block": LowPrecision.FP8_BLOCK,
}
"""Words of the precision column, the more telling first; any other `fp8` is tensor-wise."""

NULL_TOKENIZER_SOURCES = ("simumax-b200-v1.2",)
"""Sources that train on random tokens through Megatron-LM's null tokenizer."""

UNPRINTED_TOKENIZERS = {"megatron-ci-golden": "Llama2Tokenizer", "primus-raw-logs": "MixtralTokenizer"}
"""Types of the tokenizers that rows of a source have where they print no vocabulary: those of Megatron-LM's
mixtral_8x7b_*_release/model_config.yaml and of Primus's primus/configs/models/megatron/grok2.yaml."""

SCHEDULES = {
    "zb-1p": Schedule.ZERO_BUBBLE_HEURISTIC,
    "zb-2p": Schedule.ZERO_BUBBLE_HEURISTIC,
    "zbb": Schedule.ZERO_BUBBLE,
    "zbv": Schedule.ZBV_FORMATTED,
    "v-half": Schedule.ZBV_GREEDY_HALF,
    "v-min": Schedule.ZBV_GREEDY_MIN,
}
"""Schedules by the sources' names; others follow from the layout."""

LADDER = {
    "loss fusion": ("loss fusion", "cross entropy", "deepep", "sync-free", "launch", "numa", "vpp", "all of the above"),
    "deepep": ("deepep", "sync-free", "launch", "numa", "vpp", "all of the above"),
    "sync-free": ("sync-free", "numa", "vpp5", "all of the above"),
}
"""Words of the `features` column that imply a feature: each step of Primus's MoE package keeps the steps before it."""

BRIDGE = "Megatron-Bridge"
"""Start of the framework's name. Its performance recipes reduce gradients in 16 bits, gather fp8 weights under current
scaling and cache no transposes of weights (scripts/performance/configs: `grad_reduce_in_fp32`,
`disable_parameter_transpose_cache`; training/mixed_precision.py: `bf16_with_fp8_current_scaling_mixed`)."""

FUSING_FRAMEWORKS = ("NeMo", "Megatron-Bridge", "Megatron-Core dev")
"""Frameworks whose recipes overlap data-parallel communication and fuse the experts' permutation and GEMMs."""


def _has(row: Row, feature: str) -> bool:
    stated = lowered(row.train.get("features", ""))
    return any(word in stated for word in LADDER[feature])


def is_release(row: Row) -> bool:
    """Whether a row is one of Megatron-LM's release tests, whose world its tree does not state."""
    return row.source == CI_SOURCE and row.devices is None


def _tests(row: Row, mode: str) -> bool:
    """Whether a row's figures stand in the file of a Megatron-LM test that is named after a mode, and so runs in it."""
    return row.source == CI_SOURCE and mode in row.notes.rpartition("file ")[2]


def _low_precision(row: Row) -> LowPrecision | None:
    text = lowered(row.train.get("precision", ""))
    for word, kind in LOW_PRECISIONS.items():
        if word in text:
            return kind
    return LowPrecision.FP8 if text.startswith("fp8") else None


def _precision(row: Row) -> Precision:
    text = lowered(stated_precision(row))
    titan = "torchtitan" in row.framework
    short_gradients = row.train.get("grad_reduce") == "bf16" or "bf16 main grads" in text
    short_moments = "bf16 main grads and adam moments" in text or "bf16 moments" in lowered(
        row.train.get("optimizer_state", "")
    )
    moment = 2 if short_moments else 4
    low, bridge = _low_precision(row), row.framework.startswith(BRIDGE)
    short_gradients |= bridge
    return Precision(
        weight_bytes=4 if titan else 2,
        gradient_bytes=4 if titan or not short_gradients else 2,
        # The lower half beside a bf16 weight (Megatron-LM `store_param_remainders`).
        master_weight_bytes=0 if titan else 2 if is_precision_aware(row) else 4,
        first_moment_bytes=moment,
        second_moment_bytes=0 if _flag(row, "optimizer") == "muon" else moment,
        low_precision=low,
        weight_transposes=not bridge,
        # The names of Megatron-Bridge's FP8 recipes end in `cs`, current scaling, or `mx`; torchao's float8 takes the
        # scales of the tensor at hand.
        delayed_scaling=not (bridge or titan)
        and not any(word in text for word in ("current", "tensorwise"))
        and _flag(row, "fp8-recipe") in {None, "delayed"},
        low_precision_weights=bool(_flag(row, "fp8-param-gather")) or (bridge and low is LowPrecision.FP8),
    )


def _optimizer(row: Row) -> Optimizer:
    """TorchTitan's step ran torch's multi-tensor kernels until 2025 (torchtitan b5bcd76c, `optimizer.fused` false)."""
    named = _flag(row, "optimizer") or "adam"
    # The tests whose names hold dist_muon say so; a parameter layout made for it divides embeddings like Adam does.
    whole = _tests(row, "dist_muon") and not _tests(row, "param_layout")
    rule = optimizers("megatron")["dist_muon" if whole else named].optimizer
    return replace(
        rule,
        step_bytes=4 if row.source == "torchtitan-2024-12" else 0,
        moment_copy_bytes=8 if is_precision_aware(row) else 0,
        master_in_state=is_precision_aware(row),
    )


def _flag(row: Row, name: str) -> Any:  # noqa: ANN401 - flags are bool or str as the framework has them
    return (row.train.get("flags") or {}).get(name)


def _recompute(row: Row) -> Recompute:
    stated = row.train.get("recompute")
    if stated is None:
        return recipe_recompute(row)
    if isinstance(stated, Mapping):
        modules = lowered(stated.get("modules", "core_attn")).strip("[]").replace(",", " ").split()
        if stated["granularity"] == "full":
            return Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.UNIFORM, layers=1)
        if stated.get("policy") == "op":
            return Recompute(granularity=RecomputeGranularity.OPERATIONS)
        return Recompute(granularity=RecomputeGranularity.SELECTIVE, modules=tuple(modules))
    if lowered(stated) == "full":
        return Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.UNIFORM, layers=1)
    return sharded.recompute(row) or Recompute()


def _offload(row: Row) -> ActivationOffload:
    if not _flag(row, "fine-grained-activation-offloading"):
        return ActivationOffload()
    return ActivationOffload(modules=tuple(_flag(row, "offload-modules").strip("[]").split()))


def _cross_entropy(row: Row) -> CrossEntropy:
    stated = row.train.get("cross_entropy_fusion")
    if stated == "te" or _has(row, "loss fusion"):
        return CrossEntropy.TRANSFORMER_ENGINE
    if _flag(row, "cross-entropy-loss-fusion"):
        engine = _flag(row, "cross-entropy-fusion-impl") == "te"
        return CrossEntropy.TRANSFORMER_ENGINE if engine else CrossEntropy.NATIVE_FUSED
    return CrossEntropy.UNFUSED


def _dialect(row: Row) -> Dialect:
    if is_torchtitan(row):
        return Dialect.TORCHTITAN
    if "primus" in lowered(row.framework):
        return Dialect.PRIMUS_TURBO
    local = _flag(row, "transformer-impl") == "local" or is_early(row)
    return Dialect.MEGATRON_LOCAL if local else Dialect.MEGATRON_TE


def _drops_out(row: Row) -> bool:
    """Whether the run has Megatron-LM's default dropout of 0.1.

    Its larger functional tests state 0 in their `model_config.yaml`, which are those without learned positions.
    """
    if row.source == "megatron-ci-golden":
        return row.model.get("position") == "learned"
    return is_early(row)


def _software(row: Row) -> Software:
    dialect = _dialect(row)
    old = dialect is Dialect.MEGATRON_LOCAL
    modern = row.framework.startswith(FUSING_FRAMEWORKS)
    overlaps = modern or dialect is Dialect.PRIMUS_TURBO
    dropout = 0.1 if _drops_out(row) else 0.0
    described = Software(
        dialect=dialect,
        flash_attention=_flag(row, "attention-backend") != "unfused" and not old,
        cross_entropy=_cross_entropy(row),
        gradient_accumulation_fusion=old
        or (not _flag(row, "no-gradient-accumulation-fusion") and dialect is Dialect.MEGATRON_TE),
        overlap_gradient_reduce=bool(_flag(row, "overlap-grad-reduce") or overlaps),
        overlap_parameter_gather=bool(_flag(row, "overlap-param-gather") or overlaps),
        overlap_tensor_parallel=bool(_flag(row, "tp-comm-overlap"))
        or overlaps_tensor_parallel(row)
        or "async tp" in lowered(row.train.get("extra", "")),
        **experts(row, modern=modern, sync_free=_has(row, "sync-free"), deepep=_has(row, "deepep")),
        attention_dropout=dropout,
        hidden_dropout=dropout,
        # All of Megatron-LM's tests state --no-rope-fusion or run without rotary; release tests may differ by bits.
        attention_mask_tensor=row.source == CI_SOURCE and not _tests(row, "no_create_attention_mask_in_dataloader"),
        deferred_output_gradients=DEFERRED if _tests(row, "defer_embedding_wgrad_compute") else 0,
        deterministic=row.source == CI_SOURCE and not is_release(row),
        **containers(row, sync_free=_has(row, "sync-free")),
        weight_gradient_placeholders=row.train.get("identified", {}).get("placeholders", True),
        rotary_fusion=row.source != CI_SOURCE,
        vocabulary_divisible_by=row.model.get("vocab_pad_multiple", 128),
    )
    return replace(described, **primus(row), **torchtitan(row), **sharded.software(row), **early(row))


def _virtual_pipeline(row: Row, layers: int) -> int:
    stated = row.parallel.get("vpp", 1)
    if isinstance(stated, int):
        return int(stated)
    if lowered(stated).startswith("max"):
        return max(1, -(-layers // int(row.parallel["pp"])))
    return 1


def _ends_count_as_layers(row: Row, layers: int) -> bool:
    """Depths such as 126 over 128 slots: embedding and output layer fill the two that are missing (Llama 3, NeMo)."""
    slots = row.parallel["pp"] * _virtual_pipeline(row, layers)
    return bool(slots > 1 and layers % slots != 0 and (layers + 2) % slots == 0)


def _sharding(row: Row) -> Sharding:
    if "fsdp_shard" in row.parallel or _flag(row, "data-parallel-sharding-strategy") == "optim_grads_params":
        return Sharding.PARAMETERS
    return Sharding.OPTIMIZER if row.parallel.get("distributed_optimizer", True) else Sharding.NONE


def _parallelism(row: Row, layers: int) -> Parallelism:
    columns = row.parallel
    if not {"tp", "pp"} <= columns.keys():
        raise UnscorableError("the source does not print the layout")
    shortened = _ends_count_as_layers(row, layers)
    described = Parallelism(
        tensor=columns["tp"],
        pipeline=columns["pp"],
        virtual_pipeline=_virtual_pipeline(row, layers),
        expert=columns.get("ep", 1),
        expert_tensor=columns.get("etp"),
        context=columns.get("cp", 1),
        sequence_parallel=bool(columns.get("sp", False)) and columns["tp"] > 1,
        embedding_counts_as_layer=shortened or bool(_flag(row, "account-for-embedding-in-pipeline-split")),
        loss_counts_as_layer=shortened or bool(_flag(row, "account-for-loss-in-pipeline-split")),
        pipeline_layout=_flag(row, "pipeline-model-parallel-layout"),
        sharding=_sharding(row),
        shard_degree=columns.get("fsdp_shard"),
        context_communication=columns.get("cp_comm", "p2p"),
    )
    return replace(described, **sharded.parallelism(row))


def _devices(row: Row, parallelism: Parallelism) -> int:
    stated = row.devices or row.train.get("identified", {}).get("devices")
    if stated is not None:
        return int(stated)
    experts = (parallelism.expert_tensor or parallelism.tensor) * parallelism.expert * parallelism.pipeline
    return lcm(CI_WORLD, parallelism.tensor * parallelism.pipeline * parallelism.context, experts)


def _with_vocabulary(row: Row) -> Mapping[str, Any]:
    """Facts of the row's model, with the vocabulary of its tokenizer where none is printed."""
    if {"vocab", "vocab_unpadded"} & row.model.keys():
        return row.model
    known_size = catalog.tokenizer_vocabulary(UNPRINTED_TOKENIZERS.get(row.source), None)
    return row.model if known_size is None else {**row.model, "vocab": known_size.entries}


def assumed(row: Row) -> tuple[str, ...]:
    """What the job of a row takes from elsewhere than the row."""
    notes = []
    if _with_vocabulary(row) is not row.model:
        notes.append(f"vocabulary of {UNPRINTED_TOKENIZERS[row.source]}")
    if layout(row) is not row.parallel:
        notes.append("layout of the submission's configuration files")
    if adapters(row) is not None and "rank" not in str(row.train["task"]):
        notes.append("rank and targets of the framework's recipe")
    if is_torchtitan(row):
        notes.append("the allocator's setting of the script that starts as many devices")
    if is_release(row):
        notes.append("world size and container that the persistent bytes tell, half of a head's width rotary")
    return tuple(notes)


def job(row: Row) -> tuple[TrainingJob, Target]:
    """Build job and target; raises `UnscorableError` when the row's columns do not suffice."""
    if "seq" not in row.train:
        raise UnscorableError("the source prints neither sequence length nor batch")
    row = replace(row, parallel=layout(row), model=_with_vocabulary(row))
    if _tests(row, "qk_layernorm"):
        row = replace(row, model={**row.model, "qk_norm": True})
    model = architecture(row.model, row.id, null_tokenizer=row.source in NULL_TOKENIZER_SOURCES)
    if is_release(row):
        model = replace(model, rotary_share=RELEASE_ROTARY_SHARE)
    parallelism = _parallelism(row, len(model.layers))
    replica = parallelism.tensor * parallelism.pipeline * parallelism.context
    devices = _devices(row, parallelism)
    micro = int(row.train.get("mbs", 1))
    data = max(1, devices // replica)
    total = global_batch(row, micro, data)
    per_node = min(devices, 4 if row.hardware.startswith("GB") else 8)
    built = TrainingJob(
        model=model,
        parallelism=replace(
            parallelism,
            micro_batch_group=micro_batch_group(parallelism, total // (micro * data)),
            pending_micro_batches=pending(row, parallelism),
        ),
        batch=Batch(
            micro=micro,
            global_=total,
            sequence_length=int(row.train["seq"]),
        ),
        precision=_precision(row),
        optimizer=_optimizer(row),
        recompute=_recompute(row),
        offload=_offload(row),
        software=_software(row),
        adapters=adapters(row),
        schedule=SCHEDULES.get(lowered(row.parallel.get("schedule", ""))),
    )
    return built, Target(device=row.hardware, nodes=max(1, devices // per_node), devices_per_node=per_node)
