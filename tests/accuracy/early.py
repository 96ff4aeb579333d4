"""Runs of Megatron-LM's own layers, with explicit attention scores, before Transformer Engine."""

from typing import Any

from tests.accuracy.rows import Row

ZERO_BUBBLE = "zero-bubble-2023"
SOURCES = ("korthikanti-2022", "narayanan-2021-table1", ZERO_BUBBLE)


def is_early(row: Row) -> bool:
    """Whether a row is such a run."""
    return row.source in SOURCES


def early(row: Row) -> dict[str, Any]:
    """Fields of `Software`: the zero-bubble paper's runs validate after the step (arXiv 2401.10241, section 4).

    They send without overlap: `--no-overlap-p2p-communication` of sail-sg/zero-bubble-pipeline-parallelism
    examples/pretrain_zero_bubble.sh.
    """
    return {"optimizer_post_validation": True, "overlap_pipeline_sends": False} if row.source == ZERO_BUBBLE else {}
