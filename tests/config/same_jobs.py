"""Named jobs, each in the words of every dialect that can run it under Megatron-LM.

The sizes of a model stand in its own words each time: as flags, as the name of a Primus preset, as the config.json of
its authors. What is said of the run has the same names in all of them and stands once.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from tests.config.builders import experiment_text

Values = Mapping[str, Any]
"""Values by name."""

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

    flags: Values
    """The model, as Megatron-LM's flags with underscores."""
    preset: str
    """The model, as a preset of Primus."""
    config: Values
    """The model, as the config.json of its authors."""
    catalog: str
    """The model, by its name in the catalog."""
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
    return experiment_text({"config": "pre_trainer.yaml", "model": job.preset, "overrides": overrides})


def arguments(job: SameJob) -> list[str]:
    """Megatron-LM's arguments as overrides beside a config.json."""
    stated = {**_USUAL, **job.run}
    return [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in stated.items()]


def _flags(job: SameJob) -> dict[str, Any]:
    """All arguments as flags, of which some have another name than the value that they set."""
    named: dict[str, Any] = {}
    for key, value in {**job.flags, **_USUAL, **job.run}.items():
        named |= {f"no_{key.removeprefix('apply_')}": True} if value is False else {_NAMES.get(key, key): value}
    return named


def _words(key: str, value: object) -> str:
    words = [] if value is True else [f"'{item}'" for item in (value if isinstance(value, list) else [value])]
    return " ".join([f"--{key.replace('_', '-')}", *words])


_LLAMA: dict[str, Any] = {
    "group_query_attention": True,
    "num_query_groups": 8,
    "normalization": "RMSNorm",
    "position_embedding_type": "rope",
    "swiglu": True,
    "disable_bias_linear": True,
    "untie_embeddings_and_output_weights": True,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
}
"""Flags of all these models."""
_EXPERTS: dict[str, Any] = {"moe_grouped_gemm": True, "moe_token_dispatcher_type": "alltoall"}
_LLAMA_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 128256,
}

_LLAMA_8B: dict[str, Any] = {
    **_LLAMA,
    "num_layers": 32,
    "hidden_size": 4096,
    "ffn_hidden_size": 14336,
    "num_attention_heads": 32,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
}
_LLAMA_8B_CONFIG: dict[str, Any] = {
    **_LLAMA_CONFIG,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
}

JOBS: dict[str, SameJob] = {
    "Llama 3 8B": SameJob(
        flags=_LLAMA_8B,
        preset="llama3_8B.yaml",
        catalog="llama3-8b",
        config=_LLAMA_8B_CONFIG,
        run={
            "seq_length": 8192,
            "micro_batch_size": 2,
            "global_batch_size": 128,
            "tensor_model_parallel_size": 2,
            "sequence_parallel": True,
        },
    ),
    "Mixtral 8x7B with expert parallelism": SameJob(
        flags={
            **_LLAMA,
            **_EXPERTS,
            "num_layers": 32,
            "hidden_size": 4096,
            "ffn_hidden_size": 14336,
            "num_attention_heads": 32,
            "vocab_size": 32000,
            "max_position_embeddings": 4096,
            "num_experts": 8,
            "moe_router_topk": 2,
        },
        preset="mixtral_8x7B_v0.1.yaml",
        catalog="mixtral-8x7b-v0.1",
        config={
            "architectures": ["MixtralForCausalLM"],
            "model_type": "mixtral",
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "max_position_embeddings": 32768,
            "num_attention_heads": 32,
            "num_experts_per_tok": 2,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "num_local_experts": 8,
            "sliding_window": None,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "vocab_size": 32000,
        },
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
        flags={
            **_LLAMA,
            **_EXPERTS,
            "num_layers": 48,
            "hidden_size": 2048,
            "ffn_hidden_size": 6144,
            "num_attention_heads": 32,
            "num_query_groups": 4,
            "kv_channels": 128,
            "qk_layernorm": True,
            "vocab_size": 151936,
            "max_position_embeddings": 4096,
            "num_experts": 128,
            "moe_router_topk": 8,
            "moe_ffn_hidden_size": 768,
        },
        preset="qwen3_30B_A3B.yaml",
        catalog="qwen3-30b-a3b",
        config={
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "attention_bias": False,
            "decoder_sparse_step": 1,
            "head_dim": 128,
            "hidden_size": 2048,
            "intermediate_size": 6144,
            "max_position_embeddings": 40960,
            "mlp_only_layers": [],
            "moe_intermediate_size": 768,
            "num_attention_heads": 32,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "num_hidden_layers": 48,
            "num_key_value_heads": 4,
            "sliding_window": None,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "use_sliding_window": False,
            "vocab_size": 151936,
        },
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
        flags={
            **_LLAMA,
            **_EXPERTS,
            "num_layers": 61,
            "hidden_size": 7168,
            "ffn_hidden_size": 18432,
            "num_attention_heads": 128,
            "vocab_size": 129280,
            "max_position_embeddings": 4096,
            "multi_latent_attention": True,
            "q_lora_rank": 1536,
            "kv_lora_rank": 512,
            "qk_head_dim": 128,
            "qk_pos_emb_head_dim": 64,
            "v_head_dim": 128,
            "qk_layernorm": True,
            "num_experts": 256,
            "moe_layer_freq": "([0]*3+[1]*58)",
            "moe_router_topk": 8,
            "moe_ffn_hidden_size": 2048,
            "moe_shared_expert_intermediate_size": 2048,
            "moe_router_enable_expert_bias": True,
            "mtp_num_layers": 1,
        },
        preset="deepseek_v3.yaml",
        catalog="deepseek-v3",
        config={
            "architectures": ["DeepseekV3ForCausalLM"],
            "model_type": "deepseek_v3",
            "attention_bias": False,
            "first_k_dense_replace": 3,
            "hidden_size": 7168,
            "intermediate_size": 18432,
            "kv_lora_rank": 512,
            "max_position_embeddings": 163840,
            "moe_intermediate_size": 2048,
            "moe_layer_freq": 1,
            "n_group": 8,
            "n_routed_experts": 256,
            "n_shared_experts": 1,
            "num_attention_heads": 128,
            "num_experts_per_tok": 8,
            "num_hidden_layers": 61,
            "num_key_value_heads": 128,
            "num_nextn_predict_layers": 1,
            "q_lora_rank": 1536,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "v_head_dim": 128,
            "vocab_size": 129280,
        },
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
        flags={
            **{key: value for key, value in _LLAMA.items() if key != "disable_bias_linear"},
            **_EXPERTS,
            "num_layers": 24,
            "hidden_size": 2880,
            "ffn_hidden_size": 2880,
            "num_attention_heads": 64,
            "kv_channels": 64,
            "vocab_size": 201088,
            "max_position_embeddings": 4096,
            "num_experts": 32,
            "moe_router_topk": 4,
            "softmax_type": "learnable",
            "window_size": "127,0",
            "window_attn_skip_freq": 2,
        },
        preset="gpt_oss_20B.yaml",
        catalog="gpt-oss-20b",
        config={
            "architectures": ["GptOssForCausalLM"],
            "model_type": "gpt_oss",
            "attention_bias": True,
            "head_dim": 64,
            "hidden_size": 2880,
            "intermediate_size": 2880,
            "layer_types": ["sliding_attention", "full_attention"] * 12,
            "num_attention_heads": 64,
            "num_experts_per_tok": 4,
            "num_hidden_layers": 24,
            "num_key_value_heads": 8,
            "num_local_experts": 32,
            "sliding_window": 128,
            "tie_word_embeddings": False,
            "vocab_size": 201088,
        },
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
        flags={
            **_LLAMA,
            "num_layers": 80,
            "hidden_size": 8192,
            "ffn_hidden_size": 28672,
            "num_attention_heads": 64,
            "vocab_size": 128256,
            "max_position_embeddings": 8192,
        },
        preset="llama3_70B.yaml",
        catalog="llama3-70b",
        config={
            **_LLAMA_CONFIG,
            "hidden_size": 8192,
            "intermediate_size": 28672,
            "num_attention_heads": 64,
            "num_hidden_layers": 80,
        },
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
        flags=_LLAMA_8B,
        preset="llama3_8B.yaml",
        catalog="llama3-8b",
        config=_LLAMA_8B_CONFIG,
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
            "software.attention_backend": "its attention is one kernel family, which Transformer Engine chooses by device",
            "software.expert_backend": "its grouped GEMM stands for experts, which this model has none of",
        },
    ),
}
