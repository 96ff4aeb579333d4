"""Which layers sit on which pipeline stage and model chunk."""

from typing import NamedTuple

from projector.errors import LayoutImpossible
from projector.job import Parallelism, Schedule, TrainingJob
from projector.parallelism import pipeline_layout
from projector.parallelism.layout import Chunk, Stage

V_SHAPED = frozenset({Schedule.ZBV_FORMATTED, Schedule.ZBV_GREEDY_HALF, Schedule.ZBV_GREEDY_MIN})
"""Schedules whose second chunks run back down the ranks, so that rank 0 has the first and the last layers
(Qi et al. 2024, arXiv 2405.15362)."""

V_CHUNKS = 2
"""Model chunks per rank of a V-shaped schedule."""

PENDING_PER_STAGE = 2
"""Micro batches per stage that an automatic zero-bubble schedule may keep where nothing is stated: ZB-2p of arXiv
2401.10241, table 4, which needs no bubble."""


class _Content(NamedTuple):
    """What one virtual stage holds, before it is given to a rank."""

    layers: int
    embedding: bool
    output: bool
    mtp_layers: int


def place(job: TrainingJob) -> tuple[Stage, ...]:
    """Stages with their chunks. Raises `LayoutImpossible` where the layers do not fit the stages."""
    parallelism = job.parallelism
    contents = _from_string(job) if parallelism.pipeline_layout is not None else _from_counts(job)
    chunks = len(contents) // parallelism.pipeline
    if job.schedule in V_SHAPED and chunks != V_CHUNKS:
        raise LayoutImpossible(
            f"schedule {job.schedule} with {chunks} model chunk(s) per stage",
            place="virtual_pipeline_model_parallel_size",
            expected=f"{V_CHUNKS} chunks per stage",
        )
    ranks: list[list[Chunk]] = [[] for _ in range(parallelism.pipeline)]
    first = 0
    for virtual_stage, content in enumerate(contents):
        turn, rank = divmod(virtual_stage, parallelism.pipeline)
        if job.schedule in V_SHAPED and turn % V_CHUNKS:
            rank = parallelism.pipeline - 1 - rank
        ranks[rank].append(
            Chunk(
                index=turn,
                virtual_stage=virtual_stage,
                layer_ids=tuple(range(first, first + content.layers)),
                embedding=content.embedding,
                output=content.output,
                mtp_layers=content.mtp_layers,
            )
        )
        first += content.layers
    return tuple(Stage(rank=rank, chunks=tuple(held)) for rank, held in enumerate(ranks))


def _from_string(job: TrainingJob) -> tuple[_Content, ...]:
    parallelism = job.parallelism
    text = parallelism.pipeline_layout or ""
    stages = pipeline_layout.parse(text)
    pipeline_layout.check(
        stages,
        text=text,
        layers=len(job.model.layers),
        mtp_layers=job.model.multi_token_prediction_layers,
        pipeline=parallelism.pipeline,
    )
    chunks = len(stages) // parallelism.pipeline
    if parallelism.virtual_pipeline not in (1, chunks):
        raise LayoutImpossible(
            f"layout `{text}` gives {chunks} chunks per stage, {parallelism.virtual_pipeline} are stated",
            place="virtual_pipeline_model_parallel_size",
            expected=f"{chunks}, or leave it out",
        )
    return tuple(
        _Content(layers=stage.count("t"), embedding="E" in stage, output="L" in stage, mtp_layers=stage.count("m"))
        for stage in stages
    )


def _from_counts(job: TrainingJob) -> tuple[_Content, ...]:
    parallelism = job.parallelism
    counts = _counts(len(job.model.layers), parallelism)
    last = len(counts) - 1
    return tuple(
        _Content(
            layers=count,
            embedding=number == 0,
            output=number == last,
            mtp_layers=job.model.multi_token_prediction_layers if number == last else 0,
        )
        for number, count in enumerate(counts)
    )


def _counts(layers: int, parallelism: Parallelism) -> tuple[int, ...]:
    """Decoder layers per virtual stage, in the order a micro batch passes them."""
    if parallelism.first_stage_layers is not None or parallelism.last_stage_layers is not None:
        return _with_ends(layers, parallelism)
    if parallelism.embedding_counts_as_layer or parallelism.loss_counts_as_layer:
        return _with_slots(layers, parallelism)
    stages = parallelism.pipeline * parallelism.virtual_pipeline
    each, rest = divmod(layers, stages)
    if each == 0 and stages > 1:
        raise _layers_clash(layers, f"pipeline {parallelism.pipeline} x chunks {parallelism.virtual_pipeline}")
    if rest and not parallelism.spread_remainder:
        raise _layers_clash(layers, f"{stages} stages")
    return tuple(each + (number < rest) for number in range(stages))


def _with_ends(layers: int, parallelism: Parallelism) -> tuple[int, ...]:
    """Stated counts on the first and last rank, the rest even; every rank's chunks are equal (Megatron-LM)."""
    pipeline = parallelism.pipeline
    if parallelism.embedding_counts_as_layer or parallelism.loss_counts_as_layer:
        raise LayoutImpossible(
            "first or last stage counts together with account_for_embedding/loss_in_pipeline_split",
            place="decoder_first_pipeline_num_layers",
            expected="one of the two",
        )
    ends = {0: parallelism.first_stage_layers, pipeline - 1: parallelism.last_stage_layers}
    stated = {rank: count for rank, count in ends.items() if count is not None}
    rest, middle = layers - sum(stated.values()), pipeline - len(stated)
    if pipeline == 1 or rest < middle or (rest % middle if middle else rest):
        raise _layers_clash(rest, f"the {middle} other stages (first/last stated: {list(stated.values())})")
    ranks = [stated.get(rank, rest // middle if middle else 0) for rank in range(pipeline)]
    for count in ranks:
        if count % parallelism.virtual_pipeline:
            raise _layers_clash(count, f"{parallelism.virtual_pipeline} chunks of a stage")
    return tuple(count // parallelism.virtual_pipeline for _ in range(parallelism.virtual_pipeline) for count in ranks)


def _with_slots(layers: int, parallelism: Parallelism) -> tuple[int, ...]:
    """Embedding and loss take a layer's place in an even split (Megatron-LM account_for_*_in_pipeline_split)."""
    stages = parallelism.pipeline * parallelism.virtual_pipeline
    slots = layers + parallelism.embedding_counts_as_layer + parallelism.loss_counts_as_layer
    each, rest = divmod(slots, stages)
    if rest or each == 0:
        raise _layers_clash(slots, f"{stages} stages (embedding and loss counted as layers)")
    counts = [each] * stages
    counts[0] -= parallelism.embedding_counts_as_layer
    counts[-1] -= parallelism.loss_counts_as_layer
    if min(counts) < 0:
        raise _layers_clash(slots, f"{stages} stages (embedding and loss counted as layers)")
    return tuple(counts)


def _layers_clash(layers: int, over: str) -> LayoutImpossible:
    return LayoutImpossible(f"{layers} layers do not divide over {over}", place="pipeline_model_parallel_size")
