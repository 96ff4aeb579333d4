"""Arguments that a person states and that do nothing, for want of what they work with."""

from collections.abc import Callable
from typing import NamedTuple

from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.job import TrainingJob


class Idle(NamedTuple):
    """Arguments that work with something else alone."""

    keys: tuple[str, ...]
    """Their names."""
    why: str
    """What is missing, as a note says it."""
    lacks: Callable[[Keys, TrainingJob], bool]
    """Whether it is missing."""


_NEUTRAL = (None, False, 0)
"""Values that ask for nothing."""
_DISPATCH = ("use_turbo_deepep", "turbo_sync_free_moe_stage")
_RECOMPUTED = ("recompute_method", "recompute_num_layers", "recompute_layer_ids", "recompute_modules")
_TABLE = (
    Idle(
        keys=(*_DISPATCH, "moe_enable_deepep", "moe_permute_fusion", "moe_grouped_gemm", "use_turbo_grouped_mlp"),
        why="the model has no experts",
        lacks=lambda _, job: not job.model.expert_blocks,
    ),
    Idle(
        keys=(*_DISPATCH, "use_turbo_attention", "use_turbo_grouped_mlp"),
        why="enable_primus_turbo is off",
        lacks=lambda keys, job: bool(job.model.expert_blocks) and not keys.boolean("enable_primus_turbo"),
    ),
    Idle(
        keys=("optimizer_offload_fraction",),
        why="optimizer_cpu_offload is off",
        lacks=lambda keys, _: not keys.boolean("optimizer_cpu_offload"),
    ),
    Idle(
        keys=_RECOMPUTED,
        why="no recompute_granularity switches recomputation on",
        lacks=lambda keys, _: (
            not (
                keys.text("recompute_granularity")
                or keys.boolean("recompute_activations")
                or keys.boolean("moe_layer_recompute")
            )
        ),
    ),
)
"""What needs what (Megatron-LM megatron/training/arguments.py, megatron/core/transformer/transformer_config.py and
optimizer_config.py; AMD-AGI/Primus primus/configs/modules/megatron/primus_turbo.yaml)."""


def note_idle(keys: Keys, notes: Notes, job: TrainingJob) -> None:
    """Say of each such argument that it has no effect, and why."""
    for row in _TABLE:
        stated = [key for key in row.keys if keys.is_usable(key) and keys.stated_by_person(key)]
        for key in stated:
            if keys.values[key].value not in _NEUTRAL and row.lacks(keys, job):
                notes.assume(f"{key} has no effect", row.why)
