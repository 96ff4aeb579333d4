"""Flags of Megatron-LM's functional tests, as their `model_config.yaml` states them (NVIDIA/Megatron-LM d98e8a64).

Dashes are underscores here and `--no-`/`--disable-` flags are turned round; what changes neither memory nor time is
left out. Dropout, where a file states none, is Megatron-LM's default of 0.1.
"""

from types import MappingProxyType

COMMON = {
    "bf16": True,
    "use_distributed_optimizer": True,
    "overlap_grad_reduce": True,
    "overlap_param_gather": True,
    "use_flash_attn": True,
}
ROUTED = {
    "add_bias_linear": False,
    "apply_rope_fusion": False,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "position_embedding_type": "rope",
    "sequence_parallel": True,
    "untie_embeddings_and_output_weights": True,
}
"""What all but the 7B test state."""

GPT_7B = MappingProxyType(
    {
        **COMMON,
        "num_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "group_query_attention": True,
        "num_query_groups": 8,
        "untie_embeddings_and_output_weights": True,
        "max_position_embeddings": 8192,
        "tokenizer_type": "NullTokenizer",
        "vocab_size": 131072,
        "micro_batch_size": 2,
        "global_batch_size": 8,
        "seq_length": 8192,
        "tensor_model_parallel_size": 4,
        "gradient_accumulation_fusion": False,
        "create_attention_mask_in_dataloader": False,
    }
)
"""tests/functional_tests/test_cases/gpt/gpt3_7b_tp4_pp1_memory_speed."""

GPT_15B = MappingProxyType(
    {
        **COMMON,
        **ROUTED,
        "num_layers": 32,
        "hidden_size": 6144,
        "num_attention_heads": 48,
        "group_query_attention": True,
        "num_query_groups": 8,
        "squared_relu": True,
        "vocab_size": 256000,
        "micro_batch_size": 4,
        "global_batch_size": 384,
        "seq_length": 4096,
        "tensor_model_parallel_size": 8,
    }
)
"""tests/functional_tests/test_cases/gpt/gpt3_15b_8t_release, at the batch its ramp-up starts with."""

MIXTRAL_8X7B = MappingProxyType(
    {
        **COMMON,
        **ROUTED,
        "num_layers": 32,
        "hidden_size": 4096,
        "ffn_hidden_size": 14336,
        "num_attention_heads": 32,
        "group_query_attention": True,
        "num_query_groups": 8,
        "normalization": "RMSNorm",
        "swiglu": True,
        "vocab_size": 32000,
        "micro_batch_size": 1,
        "global_batch_size": 256,
        "seq_length": 4096,
        "tensor_model_parallel_size": 2,
        "pipeline_model_parallel_size": 4,
        "num_layers_per_virtual_pipeline_stage": 1,
        "expert_model_parallel_size": 8,
        "expert_tensor_parallel_size": 1,
        "num_experts": 8,
        "moe_router_topk": 2,
        "moe_grouped_gemm": True,
        "moe_token_dispatcher_type": "alltoall",
    }
)
"""tests/functional_tests/test_cases/mixtral/mixtral_8x7b_tp1pp4ep8vpp8_release; its tokenizer is Llama 2's."""

LATENT_MOE = MappingProxyType(
    {
        **COMMON,
        **ROUTED,
        "num_layers": 16,
        "hidden_size": 1024,
        "ffn_hidden_size": 4096,
        "num_attention_heads": 32,
        "kv_channels": 128,
        "normalization": "RMSNorm",
        "swiglu": True,
        "vocab_size": 50257,
        "make_vocab_size_divisible_by": 3232,
        "micro_batch_size": 4,
        "global_batch_size": 32,
        "seq_length": 4096,
        "tensor_model_parallel_size": 2,
        "pipeline_model_parallel_size": 2,
        "num_virtual_stages_per_pipeline_rank": 4,
        "expert_model_parallel_size": 4,
        "expert_tensor_parallel_size": 1,
        "attention_backend": "unfused",
        "cross_entropy_loss_fusion": True,
        "cross_entropy_fusion_impl": "native",
        "multi_latent_attention": True,
        "qk_layernorm": True,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_head_dim": 128,
        "qk_pos_emb_head_dim": 64,
        "v_head_dim": 128,
        "mtp_num_layers": 1,
        "num_experts": 32,
        "moe_layer_freq": "([0]*1+[1]*15)",
        "moe_ffn_hidden_size": 1024,
        "moe_shared_expert_intermediate_size": 1024,
        "moe_router_topk": 4,
        "moe_router_enable_expert_bias": True,
        "moe_grouped_gemm": True,
        "moe_permute_fusion": True,
        "moe_token_dispatcher_type": "alltoall",
    }
)
"""tests/functional_tests/test_cases/moe/gpt3_mcore_te_tp2_pp2_ep4_etp1_memory_speed."""

OFFLOADED_MOE = MappingProxyType(
    {
        **{key: value for key, value in LATENT_MOE.items() if key != "num_virtual_stages_per_pipeline_rank"},
        "num_layers": 15,
        "moe_layer_freq": "([0]*3+[1]*12)",
        "micro_batch_size": 1,
        "global_batch_size": 8,
        "pipeline_model_parallel_layout": "Et*3|(tt|)*6mL",
        "recompute_granularity": "selective",
        "recompute_modules": ["layernorm", "mla_up_proj", "mlp", "moe_act"],
        "fine_grained_activation_offloading": True,
    }
)
"""tests/functional_tests/test_cases/moe/gpt3_moe_mcore_te_tp2_pp2_ep4_etp1_fine_grained_offloading."""
