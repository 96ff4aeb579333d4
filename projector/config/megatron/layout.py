"""Parallel layout, recomputation and pipeline schedule from Megatron-LM's and Primus's arguments."""

from collections.abc import Sequence

from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.errors import ConfigurationError, LayoutImpossible, shown
from projector.job import (
    ZERO_STAGES,
    Parallelism,
    Recompute,
    RecomputeGranularity,
    RecomputeMethod,
    Schedule,
    Sharding,
)

_STRATEGIES = {
    "no_shard": Sharding.NONE,
    "optim": Sharding.OPTIMIZER,
    "optim_grads": Sharding.GRADIENTS,
    "optim_grads_params": Sharding.PARAMETERS,
}
"""`data_parallel_sharding_strategy` of Megatron-FSDP."""
_MODULES = frozenset({"core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts"})
"""Modules of selective recomputation (megatron/core/transformer/transformer_config.py)."""
_CONTEXT = {"p2p": "p2p", "all_gather": "all_gather", "allgather": "all_gather", "a2a": "a2a", "a2a+p2p": "a2a+p2p"}
_PRIMUS_PIPELINE: dict[str, Schedule | None] = {
    "1f1b": Schedule.ONE_F_ONE_B,
    "1f1b-interleaved": None,
    "zero-bubble": Schedule.ZERO_BUBBLE,
    "zero-bubble-heuristic": Schedule.ZERO_BUBBLE_HEURISTIC,
    "zbv-formatted": Schedule.ZBV_FORMATTED,
    "v-half": Schedule.ZBV_GREEDY_HALF,
    "v-min": Schedule.ZBV_GREEDY_MIN,
}
"""`pp_algorithm` of Primus's own pipeline (primus/configs/modules/megatron/primus_pipeline.yaml)."""
_ZERO_BUBBLE_V = {
    "half": Schedule.ZBV_GREEDY_HALF,
    "min": Schedule.ZBV_GREEDY_MIN,
    "zb": Schedule.ZBV_FORMATTED,
}
"""`zero_bubble_v_schedule_mem_setup` of the zero-bubble patch."""


def parallelism(keys: Keys, notes: Notes, *, layers: int, stock: bool = False) -> Parallelism:
    """The layout as stated; `stock` Megatron-LM refuses layers that do not divide over the stages.

    Raises `LayoutImpossible` for spellings of virtual stages that contradict one another, and for offloading of
    activations with a pipeline.
    """
    pipeline = keys.integer("pipeline_model_parallel_size", 1, minimum=1)
    counts_ends, deepspeed = _partition_counts_ends(keys), keys.boolean("deepspeed")
    _refuse_offloading(keys, pipeline=pipeline)
    stated = Parallelism(
        tensor=keys.integer("tensor_model_parallel_size", 1, minimum=1),
        pipeline=pipeline,
        virtual_pipeline=_virtual_pipeline(keys, notes, layers=layers, pipeline=pipeline),
        micro_batch_group=keys.integer("microbatch_group_size_per_vp_stage", minimum=1),
        pending_micro_batches=_pending(keys),
        expert=keys.integer("expert_model_parallel_size", 1, minimum=1),
        expert_tensor=keys.integer("expert_tensor_parallel_size", minimum=1),
        context=keys.integer("context_parallel_size", 1, minimum=1),
        sequence_parallel=keys.boolean("sequence_parallel"),
        first_stage_layers=keys.integer("decoder_first_pipeline_num_layers", minimum=1) if pipeline > 1 else None,
        last_stage_layers=keys.integer("decoder_last_pipeline_num_layers", minimum=1) if pipeline > 1 else None,
        pipeline_layout=_layout(keys, notes, pipeline=pipeline),
        embedding_counts_as_layer=counts_ends | keys.boolean("account_for_embedding_in_pipeline_split"),
        loss_counts_as_layer=counts_ends | keys.boolean("account_for_loss_in_pipeline_split"),
        spread_remainder=not stock or deepspeed,
        sharding=_sharding(keys, notes),
        replicas=keys.integer("num_distributed_optimizer_instances", 1, minimum=1),
        reshard_after_forward=keys.boolean("torch_fsdp2_reshard_after_forward", default=True),
        context_communication=_context_communication(keys, notes),
        context_exchange=_context_exchange(keys),
        pipeline_before_data=keys.boolean("use_tp_pp_dp_mapping"),
    )
    if stated.spread_remainder:
        _note_uneven_stages(stated, notes, layers=layers)
    return stated


def _note_uneven_stages(stated: Parallelism, notes: Notes, *, layers: int) -> None:
    """Say how layers that do not divide are spread: Primus does it silently, and stock Megatron-LM refuses."""
    stages = stated.pipeline * stated.virtual_pipeline
    by_hand = (stated.first_stage_layers, stated.last_stage_layers, stated.pipeline_layout)
    if layers % stages and not (stated.embedding_counts_as_layer or stated.loss_counts_as_layer or any(by_hand)):
        notes.assume(
            f"{layers} layers over {stages} stages: the first {layers % stages} hold one more",
            "they do not divide evenly; state decoder_first_pipeline_num_layers, decoder_last_pipeline_num_layers or"
            " pipeline_model_parallel_layout to decide it",
        )


def _partition_counts_ends(keys: Keys) -> bool:
    """Whether DeepSpeed's partition of the layers counts the token table and the tied output layer as one each.

    `type:` takes a regular expression for the classes that count (deepspeed/runtime/pipe/module.py); those of
    Megatron-DeepSpeed's pipeline are called `...Transformer...` and `Embedding...`.
    """
    method = keys.text("pp_partition_method", "").strip("'\"").lower()
    return keys.boolean("deepspeed") and method.startswith("type:") and "embedding" in method


def _refuse_offloading(keys: Keys, *, pipeline: int) -> None:
    """Megatron-LM offloads activations only without a pipeline (megatron/core/transformer/transformer_config.py)."""
    if pipeline > 1 and keys.boolean("cpu_offloading"):
        message = f"activations cannot be offloaded to the host with {pipeline} pipeline stages"
        expected = "false, or pipeline_model_parallel_size 1"
        raise LayoutImpossible(message, place=keys.place("cpu_offloading"), expected=expected)


def _layout(keys: Keys, notes: Notes, *, pipeline: int) -> str | None:
    key = "pipeline_model_parallel_layout"
    value = keys.raw(key)
    if isinstance(value, list):
        # Megatron-LM also takes a list of stages, each a list of layer names or their symbols.
        symbols = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
        stages = [stage if isinstance(stage, list) else [stage] for stage in value]
        value = "|".join("".join(symbols.get(str(item), str(item)) for item in stage) for stage in stages)
    elif value is not None and not isinstance(value, str):
        keys.wrong(key, "a layout string, such as Et*3|(tt|)*28,m|L")
    if value is not None and pipeline == 1:
        notes.assume(f"{key} has no effect", "pipeline_model_parallel_size is 1")
        return None
    return value or None


def _virtual_pipeline(keys: Keys, notes: Notes, *, layers: int, pipeline: int) -> int:
    """Model chunks per stage, from any of its three spellings; a layout string speaks for itself."""
    chunks: dict[str, int] = {}
    for key in ("virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"):
        value = keys.integer(key, minimum=1)
        if value is not None:
            chunks[key] = value
    key = "num_layers_per_virtual_pipeline_stage"
    size = keys.integer(key, minimum=1)
    if size is not None and pipeline > 1:
        ends = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")
        counted = layers + sum(keys.boolean(end) for end in ends)
        if counted % (pipeline * size):
            message = f"{counted} layers are not a multiple of {pipeline} stages x {size} layers"
            raise LayoutImpossible(message, place=keys.place(key))
        chunks[key] = counted // (pipeline * size)
    if pipeline == 1:
        if any(value > 1 for value in chunks.values()):
            notes.assume("one model chunk per stage", f"{' and '.join(chunks)} without pipeline parallelism")
        return 1
    if len(set(chunks.values())) > 1:
        stated = ", ".join(f"{key} gives {value}" for key, value in chunks.items())
        message = f"model chunks per stage contradict one another: {stated}"
        raise LayoutImpossible(message, place=keys.place(min(chunks)))
    return next(iter(chunks.values()), 1)


def layer_wise(keys: Keys) -> bool:
    """Whether the layer-wise optimizer divides state over ranks by whole matrices.

    It is what `use_distributed_optimizer` means beside another optimizer than Adam and SGD, and dist_muon without it
    (megatron/training/arguments.py of megatron-core 0.18.0, "emerging optimizer check").
    """
    name = keys.text("optimizer", "adam")
    return name == "dist_muon" or ("muon" in name and keys.boolean("use_distributed_optimizer"))


def _sharding(keys: Keys, notes: Notes) -> Sharding:
    strategy = _STRATEGIES[keys.choice("data_parallel_sharding_strategy", "no_shard", _STRATEGIES)]
    distributed = keys.boolean("use_distributed_optimizer")
    megatron_fsdp = keys.boolean("use_megatron_fsdp") | keys.boolean("use_custom_fsdp")
    zero = keys.integer("zero_stage", 0, maximum=len(ZERO_STAGES) - 1)
    if keys.boolean("deepspeed"):  # Megatron-DeepSpeed: the stage counts with it alone
        notes.not_modelled(
            "the DeepSpeed engine under Megatron-LM",
            where=keys.place("deepspeed"),
            effect="its buffers are not counted, and gradients are counted as wide as Megatron-LM's own",
            decides=True,
        )
        # DeepSpeed's BF16_Optimizer divides master weights and moments over the ranks by itself (runtime/engine.py).
        return Sharding.OPTIMIZER if not zero and keys.boolean("bf16") else ZERO_STAGES[zero]
    if zero:
        notes.assume(f"zero_stage {zero} has no effect", "nothing switches the DeepSpeed engine on (deepspeed)")
    if keys.boolean("use_torch_fsdp2"):
        return Sharding.PARAMETERS
    if megatron_fsdp:
        return strategy
    if distributed and layer_wise(keys):
        notes.assume(
            "the state of Muon divided over ranks by whole matrices",
            "what use_distributed_optimizer means beside it in megatron-core 0.18 and newer; older ones do not start",
        )
    return Sharding.OPTIMIZER if distributed or layer_wise(keys) else Sharding.NONE


def _context_communication(keys: Keys, notes: Notes) -> str:
    key = "cp_comm_type"
    value = keys.raw(key)
    if isinstance(value, list):
        if len({str(item) for item in value}) > 1:
            notes.not_modelled(
                "context communication that differs by layer",
                where=keys.place(key),
                effect="the first layer's kind is used for all",
                decides=False,
            )
        value = value[0] if value else None
    if value is None:
        return "p2p"
    if not isinstance(value, str) or value not in _CONTEXT:
        expected = f"one of {', '.join(_CONTEXT)}"
        raise ConfigurationError(f"{shown(value)} is not known", place=keys.place(key), expected=expected)
    if value == "a2a+p2p" and keys.integer("context_parallel_size", 1, minimum=1) > 1 and not _context_exchange(keys):
        notes.not_modelled(
            "hierarchical context communication (a2a+p2p)",
            where=keys.place(key),
            effect="its time is that of a ring; state hierarchical_context_parallel_sizes",
            decides=False,
        )
    return _CONTEXT[str(value)]


def _context_exchange(keys: Keys) -> int | None:
    """Ranks that exchange heads: the first of two levels (megatron/core/parallel_state.py); None without them.

    Raises `ConfigurationError` for sizes whose product is not the context-parallel degree.
    """
    key, degree = "hierarchical_context_parallel_sizes", keys.integer("context_parallel_size", 1, minimum=1)
    sizes, kind = keys.integers(key), keys.raw("cp_comm_type")
    if not sizes or "a2a+p2p" not in (kind if isinstance(kind, list) else [kind]):
        return None
    if len(sizes) != 2 or min(sizes) < 1 or sizes[0] * sizes[1] != degree:  # noqa: PLR2004 - levels
        expected = f"two sizes whose product is the context-parallel degree, {degree}"
        raise ConfigurationError(shown(sizes), place=keys.place(key), expected=expected)
    return sizes[0]


def recompute(keys: Keys, notes: Notes, *, layers: int) -> Recompute:
    """What backward computes again.

    `recompute_num_layers: 0` recomputes nothing, whatever the granularity says; selective granularity takes the
    attention core unless `recompute_modules` names others (megatron/core/transformer/transformer_config.py).
    """
    granularity = keys.choice("recompute_granularity", "none", ("none", "full", "selective"))
    if keys.boolean("recompute_activations"):  # wins over the granularity (megatron/training/arguments.py)
        granularity = "selective"
    method = keys.choice("recompute_method", "none", ("none", "uniform", "block"))
    count = keys.integer("recompute_num_layers")
    ids = keys.integers("recompute_layer_ids")
    modules = keys.texts("recompute_modules")
    if keys.boolean("moe_layer_recompute"):
        granularity = "selective" if granularity == "none" else granularity
        modules = [*(modules or []), "moe"]
    if granularity == "none":
        return Recompute()
    if granularity == "selective":
        modules = ["core_attn"] if modules is None else modules
        _note_modules(keys, notes, modules)
        return Recompute(granularity=RecomputeGranularity.SELECTIVE, modules=tuple(modules))
    if ids is not None:
        return _recompute_ids(keys, notes, ids, layers=layers + keys.integer("mtp_num_layers", 0))
    if count is None and method == "none":
        expected = "recompute_method and recompute_num_layers, or recompute_layer_ids"
        message = "full recomputation of no stated layers"
        raise ConfigurationError(message, place=keys.place("recompute_granularity"), expected=expected)
    if count == 0 or (count is None and method == "block"):
        return Recompute()
    return Recompute(
        granularity=RecomputeGranularity.FULL,
        method=None if method == "none" else RecomputeMethod(method),
        layers=1 if count is None else count,
    )


def _note_modules(keys: Keys, notes: Notes, modules: Sequence[str]) -> None:
    unknown = sorted(set(modules) - _MODULES)
    if unknown:
        others = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
        notes.not_modelled(
            f"recomputation of {shown(unknown[0])}{others}",
            where=keys.place("recompute_modules"),
            effect=f"activations count as kept but those of {', '.join(sorted(_MODULES))}",
            decides=True,
            overstates=True,
        )


def _recompute_ids(keys: Keys, notes: Notes, ids: list[int], *, layers: int) -> Recompute:
    inside = tuple(sorted({index for index in ids if 0 <= index < layers}))
    if len(inside) < len(set(ids)):
        notes.assume(
            f"{len(inside)} of {len(set(ids))} recompute_layer_ids",
            f"{keys.place('recompute_layer_ids')} names layers that a model of {layers} layers does not have",
        )
    if not inside:
        return Recompute()
    return Recompute(granularity=RecomputeGranularity.FULL, layer_ids=inside)


def _pending(keys: Keys) -> int | None:
    """Micro batches that the automatic zero-bubble schedule may keep; None where the device's memory decides."""
    key = "zero_bubble_max_pending_backward"
    stated = keys.raw(key)
    if isinstance(stated, str) and stated.isdecimal():
        return max(1, int(stated))
    return None if stated == "auto" else keys.integer(key, minimum=1)


def schedule(keys: Keys, notes: Notes, *, pipeline: int, stock: bool = False) -> Schedule | None:
    """The schedule that the run really uses; None when the layout decides (1F1B, interleaved with chunks).

    `enable_zero_bubble` is true in every Primus preset and means nothing unless `patch_zero_bubble` puts the
    zero-bubble runtime in place; `pp_algorithm` likewise needs `patch_primus_pipeline`. Without Primus (`stock`) only
    the zero-bubble fork, which needs no patch, knows `enable_zero_bubble`. Its automatic schedule keeps as many micro
    batches as are stated, else what the device has room for: at least those of ZB-H1, which stands for it.
    """
    primus = keys.boolean("patch_primus_pipeline")
    algorithm = keys.choice("pp_algorithm", "1f1b-interleaved", _PRIMUS_PIPELINE)
    patched, enabled = keys.boolean("patch_zero_bubble") or stock, keys.boolean("enable_zero_bubble")
    forward_v = keys.boolean("enable_1f1b_v")
    shaped = keys.boolean("zero_bubble_v_schedule")
    setup = keys.choice("zero_bubble_v_schedule_mem_setup", "half", _ZERO_BUBBLE_V)
    if patched and forward_v:
        notes.not_modelled(
            "the 1F1B-V schedule", where=keys.place("enable_1f1b_v"), effect="another schedule is used", decides=True
        )
    if pipeline == 1:
        return None
    if primus:
        return _PRIMUS_PIPELINE[algorithm]
    if patched and enabled:
        if stock:
            notes.assume(
                "the zero-bubble fork of Megatron-LM",
                f"{keys.place('enable_zero_bubble')}: NVIDIA's Megatron-LM has no such argument and does not start",
            )
        automatic = Schedule.ZERO_BUBBLE if _pending(keys) is None else Schedule.ZERO_BUBBLE_HEURISTIC
        return _ZERO_BUBBLE_V[setup] if shaped else automatic
    return None
