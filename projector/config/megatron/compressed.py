"""DeepSeek-V4's attention and residual streams from the arguments that Primus adds for them.

Defaults are those of AMD-AGI/Primus primus/backends/megatron/core/transformer/deepseek_v4_transformer_config.py, which
apply to whatever no preset states. A layer's compression ratio says what its queries see beside their window: 0
nothing, 4 the compressed keys that an indexer chooses, any other all compressed keys (deepseek_v4_attention.py).
"""

from dataclasses import replace

from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.job import Attention, IndexerTraining, Software

MODEL_TYPE = "deepseek_v4"
"""Value of `model_type` for such a model."""
_CHOSEN_RATIO = 4
"""Compression ratio of layers with an indexer."""
_EAGER = "eager"
_FUSED_FLAGS = ("use_v4_triton_csa_attention", "use_v4_tilelang_csa_attention")
"""Former switches of kernels that gather chosen keys themselves, until one argument named the kernel."""


def is_compressed(keys: Keys) -> bool:
    """Whether the arguments ask for these layers."""
    kind = keys.text("model_type", "gpt")
    return kind == MODEL_TYPE or (kind == "gpt" and keys.boolean("hybrid_attention_enabled"))


def compressed_attention(keys: Keys, notes: Notes, plain: Attention, *, layers: int) -> list[Attention]:
    """The attention of every layer; `plain` has the heads. Raises `ConfigurationError`."""
    rank = keys.required("q_lora_rank")
    window = replace(
        plain,
        key_value_heads=1,
        query_key_norm=False,
        sinks=keys.boolean("attn_sink"),
        window=keys.integer("attn_sliding_window", 0) or None,
        query_lora_rank=rank,
        shared_key_value=True,
        output_lora_rank=keys.integer("o_lora_rank", 0) or None,
        output_groups=keys.integer("o_groups", 8, minimum=1),
    )
    width = keys.integer("index_head_dim", 128, minimum=1)
    indexed = replace(
        window,
        index_heads=keys.integer("index_n_heads", 64, minimum=1),
        index_head_dim=width,
        index_top_k=keys.integer("index_topk", 0),
        index_query_rank=width,
    )
    kinds: dict[int, Attention] = {0: window}
    ratios = _ratios(keys, notes, layers=layers)
    for ratio in set(ratios) - {0}:
        kinds[ratio] = replace(indexed if ratio == _CHOSEN_RATIO else window, compression_ratio=ratio)
    _note_what_is_missing(keys, notes)
    return [kinds[ratio] for ratio in ratios]


def _ratios(keys: Keys, notes: Notes, *, layers: int) -> list[int]:
    """The ratio of every layer; entries behind them are of prediction layers, and the last stands for missing ones.

    AMD-AGI/Primus deepseek_v4_block.py `_normalize_compress_ratios`.
    """
    stated = keys.integers("compress_ratios") or [0]
    if any(ratio < 0 for ratio in stated):
        keys.wrong("compress_ratios", "integers of at least 0")
    if len(stated) < layers and keys.raw("compress_ratios") is not None:
        notes.assume(
            f"compression ratio {stated[-1]} for the last {layers - len(stated)} layers",
            f"compress_ratios has {len(stated)} entries for {layers} layers, and Primus repeats the last",
        )
    return (stated + [stated[-1]] * (layers - len(stated)))[:layers]


def _note_what_is_missing(keys: Keys, notes: Notes) -> None:
    hashed = keys.integer("num_hash_layers", 0)
    if hashed:
        notes.not_modelled(
            "routing by hash",
            where=keys.place("num_hash_layers"),
            effect=f"{hashed} layers are counted as routers that learn, without their tables of tokens",
            decides=False,
        )
    divided = keys.boolean("v4_shard_attention_heads")
    if keys.integer("tensor_model_parallel_size", 1, minimum=1) > 1 and not divided:
        notes.not_modelled(
            "attention heads that every tensor-parallel rank holds whole (v4_shard_attention_heads: false)",
            where=keys.place("tensor_model_parallel_size"),
            effect="they are counted as divided over the ranks",
            decides=True,
        )
    if _sinkhorn_iterations(keys):
        notes.not_modelled(
            "the normalisation of hyper-connections step by step (use_v4_compiled_sinkhorn: false)",
            where=keys.place("use_v4_compiled_sinkhorn"),
            effect="its kernels are counted at their bytes and launches; torch's sums of such short rows take far"
            " longer on AMD GPUs, most of a step in the trace that made Primus compile them",
            decides=False,
        )


def residual_streams(keys: Keys) -> int:
    """Streams of the residual."""
    return keys.integer("hc_mult", 1, minimum=1) if is_compressed(keys) else 1


def compressed_choices(keys: Keys, software: Software) -> Software:
    """What the arguments say of how such layers run."""
    if not is_compressed(keys):
        return software
    trained = keys.number("v4_indexer_distill_loss_coeff", 0.0) > 0
    return replace(
        software,
        indexer=IndexerTraining.TRAINED if trained else IndexerTraining.FROZEN,
        gathered_keys=_gathers(keys),
        sinkhorn_iterations=_sinkhorn_iterations(keys),
    )


def _sinkhorn_iterations(keys: Keys) -> int:
    """Iterations that run as kernels of their own."""
    normalised = keys.boolean("hc_use_sinkhorn", default=True) and residual_streams(keys) > 1
    count = keys.integer("hc_sinkhorn_iters", 20)
    return 0 if keys.boolean("use_v4_compiled_sinkhorn") or not normalised else count


def _gathers(keys: Keys) -> bool:
    """Whether chosen keys are copied to each query's side before attention reads them."""
    backend = keys.text("use_v4_csa_attention_backend")
    flags = [keys.boolean(flag) for flag in _FUSED_FLAGS if keys.raw(flag) is not None]
    return backend == _EAGER if backend is not None else bool(flags) and not any(flags)
