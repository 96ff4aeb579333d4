"""The sequences of a row's iteration, and how a pipeline takes them."""

from projector.job import Parallelism
from projector.parallelism.batch import groups_suit
from tests.accuracy.rows import Row

ASSUMED_MICRO_BATCHES = 8
"""Micro batches per rank and pipeline stage where the global batch is not printed: enough that throughput per device,
which alone is scored for such rows, hardly depends on it."""

PENDING_PER_STAGE = {"zb-1p": 1, "zb-2p": 2}
"""Micro batches per stage that the zero-bubble paper's automatic schedule may keep (arXiv 2401.10241, section 4.1)."""


def lowered(value: object) -> str:
    return str(value).lower()


def prints_global_batch(row: Row) -> bool:
    """Whether the source says how many sequences an iteration holds; without it only throughput can be compared."""
    return not {"gbs", "num_microbatches", "grad_accum", "batch_per_dp"}.isdisjoint(row.train)


def global_batch(row: Row, micro: int, data: int) -> int:
    train = row.train
    if "gbs" in train:
        return int(train["gbs"])
    per_rank = train.get("num_microbatches") or train.get("grad_accum")
    if per_rank is not None:
        return int(per_rank) * micro * data
    if "batch_per_dp" in train:
        return int(train["batch_per_dp"]) * data
    return micro * data * ASSUMED_MICRO_BATCHES * int(row.parallel["pp"])


def micro_batch_group(parallelism: Parallelism, micro_batches: int) -> int | None:
    """The least group that Megatron-LM accepts, where one per stage does not suit: then the run states another."""
    pipeline = parallelism.pipeline
    if parallelism.virtual_pipeline == 1 or groups_suit(pipeline, micro_batches, pipeline):
        return None
    sizes = range(pipeline, micro_batches + 1)
    return next((size for size in sizes if groups_suit(pipeline, micro_batches, size)), None)


def pending(row: Row, parallelism: Parallelism) -> int | None:
    per_stage = PENDING_PER_STAGE.get(lowered(row.parallel.get("schedule", "")))
    return None if per_stage is None else per_stage * parallelism.pipeline
