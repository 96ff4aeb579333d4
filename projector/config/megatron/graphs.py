"""Which modules of a layer run from CUDA graphs that Transformer Engine captures."""

from projector.config.keys import Keys

WHOLE_LAYER = ("attn", "mlp", "moe")
"""What is captured where no module is named (Megatron-LM transformer_config.py, `cuda_graph_modules`)."""


def graphed_modules(keys: Keys) -> tuple[str, ...]:
    """The modules, by Megatron-LM's names; none where graphs are off or captured otherwise.

    `cuda_graph_scope` is the key's older name; older still, `external_cuda_graph` stood for the implementation.
    """
    by_name = keys.raw("cuda_graph_impl") == "transformer_engine"
    if not by_name and keys.raw("external_cuda_graph") is not True:
        return ()
    named = _names(keys.raw("cuda_graph_modules")) or _names(keys.raw("cuda_graph_scope"))
    return named or WHOLE_LAYER


def _names(value: object) -> tuple[str, ...]:
    """Names from a list, or from a text as the older key takes it; anything else names nothing."""
    if isinstance(value, str):
        return tuple(value.strip("[]").replace(",", " ").split())
    return tuple(str(name) for name in value) if isinstance(value, list) else ()
