"""Libraries of kernels that bring tokens to their experts in place of an all-to-all, whatever the framework.

Source of the names: `moe_flex_dispatcher_backend` of NVIDIA/Megatron-LM megatron/core/transformer/transformer_config.py
(core 0.15 on) and `expert_parallel_comm_backend` of pytorch/torchtitan torchtitan/config/configs.py (2026).
"""

from projector.config.notes import Notes
from projector.job import ExpertDispatch

FUSED_BACKENDS = ("deepep", "hybridep")
"""DeepEP, and its branch for the large NVLink domains of GB200."""


def fused_dispatch(backend: str, notes: Notes, *, where: str) -> ExpertDispatch:
    """How the engine models one of the `FUSED_BACKENDS`, stated at `where`."""
    if backend == "deepep":
        return ExpertDispatch.DEEPEP
    notes.not_modelled(
        f"buffers and bandwidth of {backend}",
        where=where,
        effect="those of DeepEP stand in for them; its launches are its own",
        decides=False,
    )
    return ExpertDispatch.HYBRIDEP
