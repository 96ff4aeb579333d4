"""The job as a question wants it, and what the answer says of what the question states."""

from collections.abc import Iterator
from dataclasses import fields, replace

from projector.api import Question
from projector.errors import ConfigurationError
from projector.job import SPLIT_BESIDE_RECOMPUTATION, WITHOUT_SPLIT, Attention, TrainingJob, Tuning
from projector.provenance import Assumption
from projector.schedule import named_schedule

_SOFTWARE = (
    "routing_imbalance",
    "expandable_segments",
    "host_factor",
    "indexer",
    "gathered_keys",
    "sinkhorn_iterations",
)
"""Fields of a question that take the place of the job's software of the same name."""
_OF_INDEXERS, _OF_STREAMS = "no layer has an indexer", "the residual is one stream"


def asked_job(job: TrainingJob, question: Question) -> TrainingJob:
    """The job with the question's schedule, its software, samples and figures over those of the file.

    Raises `ConfigurationError` for a schedule under which the job cannot start.
    """
    chosen = {name: value for name in _SOFTWARE if (value := getattr(question, name)) is not None}
    packed, schedule = question.packed_length, named_schedule(question.schedule)
    if schedule is not None and not job.starts_under(schedule):
        place = f"pipeline schedule {schedule.value}"
        raise ConfigurationError(SPLIT_BESIDE_RECOMPUTATION, place=place, expected=WITHOUT_SPLIT)
    return replace(
        job,
        batch=job.batch if packed is None else replace(job.batch, packed_length=packed),
        schedule=schedule or job.schedule,
        software=replace(job.software, **chosen),
        tuning=_tuning(job.tuning, question.tuning),
    )


def _tuning(of_file: Tuning | None, asked: Tuning | None) -> Tuning | None:
    if of_file is None or asked is None:
        return of_file or asked
    stated = {field.name: value for field in fields(asked) if (value := getattr(asked, field.name)) not in {None, ()}}
    return replace(of_file, **stated)


def stated_choices(job: TrainingJob, question: Question) -> tuple[tuple[Assumption, ...], tuple[str, ...]]:
    """What the question states of attention and hyper-connections, and what of it finds nothing to change."""
    found = (*_choices(job, question), *_imbalance(job, question))
    counted = tuple(
        Assumption(what=what, why="in place of what the file says") for what, lacking in found if not lacking
    )
    return counted, tuple(f"{what} ({lacking})" for what, lacking in found if lacking)


def _imbalance(job: TrainingJob, question: Question) -> Iterator[tuple[str, str]]:
    if question.routing_imbalance is None:
        return
    lacking = "" if job.model.expert_blocks else "the model has no experts"
    if job.software.force_load_balancing:
        lacking = "moe_router_force_load_balancing gives every expert the same"
    if lacking:
        yield "routing_imbalance", lacking


def _choices(job: TrainingJob, question: Question) -> Iterator[tuple[str, str]]:
    """Each choice in words, and what the job lacks that it concerns."""
    mixers = (layer.mixer for layer in job.model.distinct_layers)
    no_indexer = "" if any(isinstance(mixer, Attention) and mixer.index_heads for mixer in mixers) else _OF_INDEXERS
    if question.indexer is not None:
        yield f"stated: indexers are {question.indexer.value}", no_indexer
    if question.gathered_keys is not None:
        where = "are copied to each query's side" if question.gathered_keys else "are read by attention's kernel"
        yield f"stated: chosen keys {where}", no_indexer
    if question.sinkhorn_iterations is not None:
        lacking = _OF_STREAMS if job.model.residual_streams == 1 else ""
        yield f"stated: {question.sinkhorn_iterations} iterations of hyper-connections, kernel by kernel", lacking
