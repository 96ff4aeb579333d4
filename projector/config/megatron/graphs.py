"""Which modules of a layer run from CUDA graphs, and who captures them.

Megatron-LM transformer_config.py: `cuda_graph_impl`, `cuda_graph_modules` with the older name `cuda_graph_scope`, and
the oldest switches, `enable_cuda_graph` for its own graphs and `external_cuda_graph` for Transformer Engine's. A graph
of the whole iteration is an implementation of its own from core 0.18 on; before, it was a scope of the local one.
"""

from projector.config.keys import Keys
from projector.errors import ConfigurationError, shown
from projector.job import GraphCapture

WHOLE_LAYER = ("attn", "mlp", "moe")
"""What is captured where no module is named."""
_WHOLE_ITERATION = "full_iteration"
_IMPLEMENTATIONS = {
    "transformer_engine": GraphCapture.TRANSFORMER_ENGINE,
    "local": GraphCapture.LOCAL,
    _WHOLE_ITERATION: GraphCapture.FULL_ITERATION,
}
_NO_GRAPHS = "none"
_NO_MODULE = ("full", _WHOLE_ITERATION)
"""Names that stand for everything."""


def graphed_modules(keys: Keys) -> tuple[str, ...]:
    """The modules, by Megatron-LM's names; none where graphs are off."""
    if _implementation(keys) is None:
        return ()
    return tuple(name for name in _scope(keys) if name not in _NO_MODULE) or WHOLE_LAYER


def graph_capture(keys: Keys) -> GraphCapture:
    """Who captures them; Transformer Engine where nobody does."""
    capture = _implementation(keys)
    if capture is GraphCapture.LOCAL and _WHOLE_ITERATION in _scope(keys):
        return GraphCapture.FULL_ITERATION
    return capture or GraphCapture.TRANSFORMER_ENGINE


def _implementation(keys: Keys) -> GraphCapture | None:
    stated, external, own = (keys.raw(key) for key in ("cuda_graph_impl", "external_cuda_graph", "enable_cuda_graph"))
    if isinstance(stated, str) and stated != _NO_GRAPHS:
        if stated not in _IMPLEMENTATIONS:
            expected = f"{_NO_GRAPHS}, {', '.join(_IMPLEMENTATIONS)}"
            raise ConfigurationError(shown(stated), place="cuda_graph_impl", expected=expected)
        return _IMPLEMENTATIONS[stated]
    if external is True:
        return GraphCapture.TRANSFORMER_ENGINE
    return GraphCapture.LOCAL if own is True else None


def _scope(keys: Keys) -> tuple[str, ...]:
    return _names(keys.raw("cuda_graph_modules")) or _names(keys.raw("cuda_graph_scope"))


def _names(value: object) -> tuple[str, ...]:
    """Names from a list, or from a text as the older key takes it; anything else names nothing."""
    if isinstance(value, str):
        return tuple(value.strip("[]").replace(",", " ").split())
    return tuple(str(name) for name in value) if isinstance(value, list) else ()
