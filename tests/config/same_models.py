"""Models, each in the words of every dialect: flags of Megatron-LM, a Primus preset, the config.json of its authors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Values = Mapping[str, Any]
"""Values by name."""


@dataclass(frozen=True, kw_only=True)
class SameModel:
    """One model."""

    flags: Values
    """As Megatron-LM's flags, with underscores."""
    preset: str
    """As a preset of Primus."""
    catalog: str
    """By its name in the catalog."""
    config: Values
    """As the config.json of its authors."""


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

LLAMA_8B = SameModel(
    flags={
        **_LLAMA,
        "num_layers": 32,
        "hidden_size": 4096,
        "ffn_hidden_size": 14336,
        "num_attention_heads": 32,
        "vocab_size": 128256,
        "max_position_embeddings": 8192,
    },
    preset="llama3_8B.yaml",
    catalog="llama3-8b",
    config={
        **_LLAMA_CONFIG,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
    },
)
MIXTRAL = SameModel(
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
)
QWEN3 = SameModel(
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
)
DEEPSEEK_V3 = SameModel(
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
        "moe_router_num_groups": 8,
        "moe_router_group_topk": 4,
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
        "topk_group": 4,
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
)
GPT_OSS = SameModel(
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
)
LLAMA_70B = SameModel(
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
)
