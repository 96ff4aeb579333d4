"""What TorchTitan's rows do not print of the software, from the versions of their time."""

from typing import Any

from tests.accuracy.rows import Row

SINGLE_NODE = 8
"""Devices up to which run_train.sh starts a run, which asks for growing segments; multinode_trainer.slurm, which starts
larger ones, does not (pytorch/torchtitan run_llama_train.sh 9628a182, multinode_trainer.slurm 030cd95d)."""


def is_torchtitan(row: Row) -> bool:
    """Whether TorchTitan ran the row."""
    return "torchtitan" in row.framework.lower()


def torchtitan(row: Row) -> dict[str, Any]:
    """Fields of `Software` of a TorchTitan row; none of another.

    Up to 820504e TorchTitan has norms of its own, and repeats keys and values; the loss was compiled from 2025 on.
    """
    if not is_torchtitan(row):
        return {}
    compiled = "compile" in str(row.train.get("extra", "")).lower()
    return {
        "compiled_layers": compiled,
        "compiled_loss": compiled and row.source != "torchtitan-2024-12",
        "fused_norms": False,
        "repeated_key_values": True,
        "gradients_given_up": True,
        "expandable_segments": (row.devices or 0) <= SINGLE_NODE,
    }
