"""Named jobs, each in the words of every dialect that can run it under Megatron-LM.

The sizes of a model stand in each dialect's own words. What is said of the run has the same names in all of them and
stands once.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import yaml

from tests.config.builders import experiment_text
from tests.config.same_models import DEEPSEEK_V3, GPT_OSS, LLAMA_8B, LLAMA_70B, MIXTRAL, QWEN3, SameModel, Values

_USUAL: dict[str, Any] = {"bf16": True, "use_distributed_optimizer": True, "overlap_grad_reduce": True}
"""What every run here states."""
_NAMES = {"fp8": "fp8_format"}
"""Flags by the value that they set, where the names differ."""
_NO_SEQUENCE_PARALLEL = "the presets of Primus ask for it; it has no effect at tensor parallel 1"
_TOKENIZER = (
    "a preset of Primus trains the vocabulary of its tokenizer, config.json and flags state the rows of the table"
)


@dataclass(frozen=True, kw_only=True)
class SameJob:
    """One job."""

    model: SameModel
    """What is trained."""
    run: Values
    """Batch, layout and precision, under the names under which Megatron-LM keeps them."""
    primus: Values = field(default_factory=dict)
    """What Primus is told beyond that."""
    differs: Mapping[str, str] = field(default_factory=dict)
    """Fields in which Primus's job differs from the launch script's, each with the reason."""


def script(job: SameJob) -> str:
    """A launch script with an array of arguments."""
    words = "\n  ".join(_words(key, value) for key, value in _flags(job).items())
    return f"#!/bin/bash\nARGS=(\n  {words}\n)\ntorchrun --nproc_per_node 8 pretrain_gpt.py ${{ARGS[@]}}\n"


def functional_test(job: SameJob) -> str:
    """The file of one of Megatron-LM's functional tests."""
    return yaml.safe_dump({"MODEL_ARGS": {f"--{key.replace('_', '-')}": value for key, value in _flags(job).items()}})


def experiment(job: SameJob) -> str:
    """A Primus experiment on the model's preset."""
    overrides = {**_USUAL, **job.run, **job.primus}
    return experiment_text({"config": "pre_trainer.yaml", "model": job.model.preset, "overrides": overrides})


def arguments(job: SameJob) -> list[str]:
    """Megatron-LM's arguments as overrides beside a config.json."""
    stated = {**_USUAL, **job.run}
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in stated.items()]


def toml(sections: Mapping[str, Any], head: str = "") -> str:
    """The text of nested sections."""
    inner = {key: value for key, value in sections.items() if isinstance(value, Mapping)}
    lines = [f"{key} = {json.dumps(value)}" for key, value in sections.items() if key not in inner]
    own = "\n".join([f"[{head}]", *lines, ""]) if lines else ""
    return own + "".join(toml(value, f"{head}.{key}".lstrip(".")) for key, value in inner.items())


def differences(first: object, second: object, name: str = "") -> set[str]:
    """Dotted names of the fields in which two values differ."""
    if is_dataclass(first) and type(first) is type(second):
        return {
            difference
            for item in fields(first)
            for difference in differences(
                getattr(first, item.name), getattr(second, item.name), f"{name}.{item.name}".lstrip(".")
            )
        }
    if isinstance(first, tuple) and isinstance(second, tuple) and len(first) == len(second):
        distinct = set(zip(first, second, strict=True))
        return {difference for pair in distinct for difference in differences(*pair, name)}
    return set() if first == second else {name}


def _flags(job: SameJob) -> dict[str, Any]:
    """All arguments as flags, of which some have another name than the value that they set."""
    named: dict[str, Any] = {}
    for key, value in {**job.model.flags, **_USUAL, **job.run}.items():
        named |= {f"no_{key.removeprefix('apply_')}": True} if value is False else {_NAMES.get(key, key): value}
    return named


def _words(key: str, value: object) -> str:
    words = [] if value is True else [f"'{item}'" for item in (value if isinstance(value, list) else [value])]
    return " ".join([f"--{key.replace('_', '-')}", *words])


JOBS: dict[str, SameJob] = {
    "Llama 3 8B": SameJob(
        model=LLAMA_8B,
        run={
            "seq_length": 8192,
            "micro_batch_size": 2,
            "global_batch_size": 128,
            "tensor_model_parallel_size": 2,
            "sequence_parallel": True,
        },
    ),
    "Mixtral 8x7B with expert parallelism": SameJob(
        model=MIXTRAL,
        run={
            "seq_length": 4096,
            "micro_batch_size": 1,
            "global_batch_size": 256,
            "expert_model_parallel_size": 8,
            "moe_router_force_load_balancing": True,
        },
        differs={"parallelism.sequence_parallel": _NO_SEQUENCE_PARALLEL},
    ),
    "Qwen3 30B-A3B": SameJob(
        model=QWEN3,
        run={
            "seq_length": 4096,
            "micro_batch_size": 2,
            "global_batch_size": 256,
            "expert_model_parallel_size": 8,
            "expert_tensor_parallel_size": 1,
            "context_parallel_size": 2,
            "moe_permute_fusion": True,
        },
        differs={"parallelism.sequence_parallel": _NO_SEQUENCE_PARALLEL, "model.vocabulary": _TOKENIZER},
    ),
    "DeepSeek-V3 with a layout of stages, prediction layers and MXFP8": SameJob(
        model=DEEPSEEK_V3,
        run={
            "seq_length": 4096,
            "micro_batch_size": 1,
            "global_batch_size": 8192,
            "pipeline_model_parallel_size": 16,
            "pipeline_model_parallel_layout": "Et*3|(tt|)*29m|L",
            "expert_model_parallel_size": 64,
            "recompute_granularity": "selective",
            "recompute_modules": ["mla_up_proj", "mlp"],
            "moe_permute_fusion": True,
            "apply_rope_fusion": False,
            "fp8": "e4m3",
            "fp8_recipe": "mxfp8",
            "fp8_param_gather": True,
            "use_precision_aware_optimizer": True,
            "main_grads_dtype": "bf16",
            "exp_avg_dtype": "bf16",
            "exp_avg_sq_dtype": "bf16",
        },
        differs={"parallelism.sequence_parallel": _NO_SEQUENCE_PARALLEL, "model.vocabulary": _TOKENIZER},
    ),
    "GPT-OSS 20B": SameJob(
        model=GPT_OSS,
        run={
            "seq_length": 4096,
            "micro_batch_size": 4,
            "global_batch_size": 640,
            "expert_model_parallel_size": 8,
            "apply_rope_fusion": False,
            "moe_permute_fusion": True,
        },
        primus={
            "add_bias_linear": True,
            "moe_shared_expert_intermediate_size": None,
            "qk_layernorm": False,
            "sink_sliding_window": 128,
            "use_sink_attention": True,
            "vocab_size": 201088,
        },
        differs={"parallelism.sequence_parallel": _NO_SEQUENCE_PARALLEL},
    ),
    "Llama 3 70B with virtual pipeline and full recomputation": SameJob(
        model=LLAMA_70B,
        run={
            "seq_length": 8192,
            "micro_batch_size": 1,
            "global_batch_size": 128,
            "tensor_model_parallel_size": 8,
            "sequence_parallel": True,
            "pipeline_model_parallel_size": 4,
            "num_layers_per_virtual_pipeline_stage": 5,
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        },
    ),
    "Llama 3 8B in FP8 with Primus-Turbo": SameJob(
        model=LLAMA_8B,
        run={
            "seq_length": 8192,
            "micro_batch_size": 4,
            "global_batch_size": 256,
            "fp8": "hybrid",
            "cross_entropy_loss_fusion": True,
            "cross_entropy_fusion_impl": "te",
            "gradient_accumulation_fusion": False,
        },
        primus={"enable_primus_turbo": True, "use_turbo_attention": True, "use_turbo_grouped_gemm": True},
        differs={
            "parallelism.sequence_parallel": _NO_SEQUENCE_PARALLEL,
            "software.dialect": "Primus-Turbo takes the place of some of Transformer Engine's layers",
            "software.attention_backend": "its attention is one kernel; Transformer Engine's depends on the device",
            "software.expert_backend": "its grouped GEMM stands for experts, which this model has none of",
            "software.expert_dispatch_units": "its dispatch takes more compute units, and nothing is dispatched",
        },
    ),
}
