"""Runs that Megatron-LM does not start, as a table of its own rules.

The rules are assertions of megatron-core 0.16.1 and 0.19.2: `validate_args` of megatron/training/arguments.py, and what
`OptimizerConfig`, `TransformerConfig` and `MoELayer` raise. Primus calls the same code; `stock` rules it may get around
with its patches.
"""

from collections.abc import Callable
from typing import NamedTuple

from projector.config.keys import Keys
from projector.config.megatron.former import LAYER_WISE_SINCE, stated_version
from projector.config.megatron.layout import layer_wise
from projector.errors import ConfigurationError
from projector.job import PositionKind, Recompute, TrainingJob
from projector.provenance import Source

_NARROW = ("main_grads_dtype", "main_params_dtype", "exp_avg_dtype", "exp_avg_sq_dtype")
"""Types that the precision-aware optimizer alone takes (megatron/core/optimizer/optimizer_config.py)."""


class Rule(NamedTuple):
    """A combination that Megatron-LM asserts against."""

    key: str
    """The argument that the message names."""
    message: str
    """What is wrong."""
    expected: str
    """What would be right."""
    breaks: Callable[[Keys, TrainingJob], bool]
    """Whether the run breaks it."""
    stock: bool = False
    """Whether it holds for Megatron-LM as NVIDIA publishes it alone."""


def _narrow(key: str) -> Rule:
    return Rule(
        key=key,
        message="another type than fp32 without the precision-aware optimizer",
        expected="fp32, or use_precision_aware_optimizer true",
        breaks=lambda keys, _: not keys.boolean("use_precision_aware_optimizer") and keys.text(key, "fp32") != "fp32",
    )


def _distributed(keys: Keys) -> bool:
    """Whether the distributed optimizer runs; Megatron-FSDP divides by itself."""
    return any(keys.boolean(name) for name in ("use_distributed_optimizer", "use_megatron_fsdp", "use_custom_fsdp"))


_EXPERTS = Rule(
    key="sequence_parallel",
    message="mixture-of-experts layers do not train under tensor parallelism without sequence parallelism",
    expected="sequence_parallel true, or tensor_model_parallel_size 1",
    # megatron/core/transformer/moe/moe_layer.py `MoELayer.forward`
    breaks=lambda _, job: (
        bool(job.model.expert_blocks) and job.parallelism.tensor > 1 and not job.parallelism.sequence_parallel
    ),
)


def _overlap(message: str, expected: str, breaks: Callable[[Keys, TrainingJob], bool]) -> Rule:
    return Rule(
        key="overlap_moe_expert_parallel_comm",
        message=f"the exchange of tokens with experts is not overlapped {message}",
        expected=f"{expected}, or overlap_moe_expert_parallel_comm false",
        # megatron/core/transformer/transformer_config.py, megatron/training/arguments.py
        breaks=lambda keys, job: job.software.overlap_expert_parallel and breaks(keys, job),
    )


_OVERLAP = (
    _overlap(
        "without expert parallelism",
        "expert_model_parallel_size above 1",
        lambda _, job: job.parallelism.expert == 1,
    ),
    _overlap(
        "in a pipeline without several model chunks per stage",
        "num_virtual_stages_per_pipeline_rank or num_layers_per_virtual_pipeline_stage beside it",
        lambda _, job: job.parallelism.pipeline > 1 and job.parallelism.virtual_pipeline == 1,
    ),
    _overlap(
        "beside the shared expert's own overlap",
        "moe_shared_expert_overlap false",
        lambda keys, _: keys.boolean("moe_shared_expert_overlap"),
    ),
)
_RULES = (
    Rule(
        key="moe_expert_capacity_factor",
        message="a capacity of 0 leaves every expert without a token",
        expected="a factor above 0, or none for dropless routing",
        breaks=lambda _, job: job.software.expert_capacity_factor == 0,
    ),
    Rule(
        key="recompute_num_layers",
        message="uniform recomputation in groups of 0 layers never ends",
        expected="at least 1 layer a group",
        # megatron/core/transformer/transformer_block.py `_checkpointed_forward` advances by this number.
        breaks=lambda keys, _: (
            keys.text("recompute_method") == "uniform" and keys.integer("recompute_num_layers", 1) == 0
        ),
    ),
    Rule(
        key="recompute_granularity",
        message="recomputation does not go with a schedule that separates weight gradients",
        expected="no recomputation, or a 1F1B schedule",
        # AMD-AGI/Primus refuses the pair (its projection's check of recompute beside split-wgrad schedules).
        breaks=lambda _, job: (
            job.schedule is not None
            and job.schedule.splits_backward
            and job.parallelism.pipeline > 1
            and job.recompute != Recompute()
        ),
    ),
    *_OVERLAP,
    _EXPERTS._replace(stock=True),
    _EXPERTS._replace(
        # Recipes of Megatron-Bridge switch it on by themselves where nothing is stated.
        breaks=lambda keys, job: keys.raw("sequence_parallel") is not None and _EXPERTS.breaks(keys, job),
    ),
    Rule(
        key="optimizer_cpu_offload",
        message="the optimizer is not offloaded without the precision-aware optimizer",
        expected="use_precision_aware_optimizer true beside it, or false",
        breaks=lambda keys, _: (
            keys.boolean("optimizer_cpu_offload") and not keys.boolean("use_precision_aware_optimizer")
        ),
    ),
    *map(_narrow, _NARROW),
    Rule(
        key="use_precision_aware_optimizer",
        message="the precision-aware optimizer works with the distributed optimizer alone",
        expected="use_distributed_optimizer true beside it, or false",
        breaks=lambda keys, _: keys.boolean("use_precision_aware_optimizer") and not _distributed(keys),
        stock=True,
    ),
    Rule(
        key="overlap_param_gather",
        message="parameters are gathered beside the computation under the distributed optimizer alone",
        expected="use_distributed_optimizer true beside it, or false",
        breaks=lambda keys, _: keys.boolean("overlap_param_gather") and not _distributed(keys) and not layer_wise(keys),
        stock=True,
    ),
    Rule(
        key="use_torch_fsdp2",
        message="PyTorch's FSDP2 is not supported with the distributed optimizer",
        expected="use_distributed_optimizer false, or use_torch_fsdp2 false",
        breaks=lambda keys, _: keys.boolean("use_torch_fsdp2") and keys.boolean("use_distributed_optimizer"),
        stock=True,
    ),
    Rule(
        key="use_torch_fsdp2",
        message="PyTorch's FSDP2 is not supported with pipeline or expert parallelism",
        expected="both degrees 1, or use_torch_fsdp2 false",
        breaks=lambda keys, job: (
            keys.boolean("use_torch_fsdp2") and max(job.parallelism.pipeline, job.parallelism.expert) > 1
        ),
        stock=True,
    ),
    Rule(
        key="recompute_method",
        message="selective recomputation takes no method",
        expected="null, or recompute_granularity full",
        breaks=lambda keys, _: (
            keys.text("recompute_granularity") == "selective" and keys.text("recompute_method") is not None
        ),
        stock=True,
    ),
    Rule(
        key="cpu_offloading",
        message="activations are not offloaded beside recomputation",
        expected="false, or no recompute_granularity",
        breaks=lambda keys, _: keys.boolean("cpu_offloading") and keys.text("recompute_granularity") is not None,
        stock=True,
    ),
    Rule(
        key="optimizer",
        message="Muon works neither with FSDP2 nor with Megatron-FSDP",
        expected="another optimizer, or no FSDP",
        breaks=lambda keys, _: (
            "muon" in keys.text("optimizer", "adam")
            and (keys.boolean("use_torch_fsdp2") or keys.boolean("use_megatron_fsdp"))
        ),
        stock=True,
    ),
    Rule(
        key="use_distributed_optimizer",
        message="Muon does not divide its state over ranks before megatron-core 0.18",
        expected="false, or optimizer dist_muon",
        # megatron/training/arguments.py of 0.17.0; that of 0.18.0 takes its place by the layer-wise one
        breaks=lambda keys, _: (
            "muon" in keys.text("optimizer", "adam")
            and keys.boolean("use_distributed_optimizer")
            and (stated_version(keys.values) or LAYER_WISE_SINCE) < LAYER_WISE_SINCE
        ),
        stock=True,
    ),
)
"""What is asserted, in the order in which it is told."""


def refuse_what_does_not_start(job: TrainingJob, keys: Keys, *, stock: bool) -> None:
    """Raise `ConfigurationError` for the first rule that the run breaks; `stock` ones apply to Megatron-LM alone."""
    for rule in _RULES:
        if (stock or not rule.stock) and rule.breaks(keys, job):
            raise ConfigurationError(rule.message, place=keys.place(rule.key), expected=rule.expected)


def refuse_few_positions(job: TrainingJob, keys: Keys) -> None:
    """Raise `ConfigurationError` for fewer positions than a sequence has (megatron/training/arguments.py).

    A sequence length given beside the file asks what would be: the positions follow it.
    """
    length = job.batch.sequence_length
    positions = keys.integer("max_position_embeddings")
    if positions is None and job.model.position is PositionKind.LEARNED:
        expected = f"the rows of the learned position table, at least {length}"
        raise ConfigurationError("is missing", place=keys.place("max_position_embeddings"), expected=expected)
    asked = keys.values.get("seq_length")
    beside = asked is not None and asked.source is Source.OVERRIDE
    if positions is not None and positions < length and not beside:
        place, expected = keys.place("max_position_embeddings"), f"at least the sequence length, {length}"
        raise ConfigurationError(f"{positions} is too few", place=place, expected=expected)
