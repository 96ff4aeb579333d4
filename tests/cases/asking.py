"""How the cases ask: through the public doors, with configuration files or with rows of measured runs."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from projector import Projection, Question, project
from projector.api import project_job
from projector.job import Target, TrainingJob
from projector.projection import MemoryLevel, MemoryProjection, PerformanceProjection, StageMemory
from tests.accuracy.jobs import job
from tests.accuracy.rows import Row, load
from tests.config.builders import experiment_text
from tests.config.primus_tree import ROOT

GIB = 2**30
RECIPES = ROOT / "examples" / "megatron" / "configs"
ROWS = Path(__file__).parents[1] / "accuracy" / "ground_truth.yaml"
FILES = Path(__file__).parent / "files"
"""Excerpts of public configurations, in the form in which people have them: each names its source in its first line."""


def recipe(path: str, *, device: str, overrides: Mapping[str, object] | None = None, **question: Any) -> Projection:  # noqa: ANN401 - fields of the question
    """The answer for a public recipe of Primus, by its path below `examples/megatron/configs`."""
    file = RECIPES / path
    return project(
        Question(
            text=file.read_text(encoding="utf-8"),
            name=file.name,
            directory=file.parent,
            primus_root=ROOT,
            device=device,
            overrides={key: "null" if value is None else str(value) for key, value in (overrides or {}).items()},
            **question,
        )
    )


def experiment(values: Mapping[str, object], *, model: str | None = None, device: str, **question: Any) -> Projection:  # noqa: ANN401 - fields of the question
    """The answer for Megatron-LM's arguments in a Primus file, with a model preset of the catalog or without."""
    presets = {} if model is None else {"config": "pre_trainer.yaml", "model": model}
    text = experiment_text({**presets, "overrides": dict(values)})
    return project(Question(text=text, name="experiment.yaml", device=device, **question))


def text(
    content: str,
    *,
    name: str,
    device: str,
    overrides: Mapping[str, object] | None = None,
    **question: Any,  # noqa: ANN401 - fields of the question
) -> Projection:
    """The answer for a configuration of any format."""
    given = {key: str(value) for key, value in (overrides or {}).items()}
    return project(Question(text=content, name=name, device=device, overrides=given, **question))


def file(
    path: str,
    *beside: str,
    device: str,
    overrides: Mapping[str, object] | None = None,
    **question: Any,  # noqa: ANN401 - fields of the question
) -> Projection:
    """The answer for one of `files`, with others of them beside it."""
    companions = {name: content(name) for name in beside}
    return text(content(path), name=path, device=device, overrides=overrides, companions=companions, **question)


def content(path: str) -> str:
    """What one of `files` holds."""
    return (FILES / path).read_text(encoding="utf-8")


@cache
def _rows() -> dict[str, Row]:
    return {row.id: row for row in load(ROWS)}


def measured(row: str) -> tuple[TrainingJob, Target]:
    """The job of a row of published measurements."""
    return job(_rows()[row])


def halves(asked: TrainingJob, target: Target) -> tuple[MemoryProjection, PerformanceProjection]:
    """Both halves of the answer for a job that no file describes."""
    return project_job(asked, target)


def memory_of(answer: Projection) -> MemoryProjection:
    """The memory half of an answer that has one."""
    assert answer.memory is not None
    return answer.memory


def speed_of(answer: Projection) -> PerformanceProjection:
    """The time half of an answer that has one."""
    assert answer.performance is not None
    return answer.performance


def gib(stage: StageMemory, level: MemoryLevel) -> float:
    """Memory of a stage at a level."""
    return stage.level_bytes(level) / GIB


def part(stage: StageMemory, name: str) -> int:
    """Bytes of a component of a stage; 0 where the stage has none."""
    return sum(each.size_bytes for each in stage.components if each.name == name)


def activations(stage: StageMemory) -> int:
    """Bytes of everything that a stage keeps for backward at its peak."""
    return sum(each.size_bytes for each in stage.components if each.name.startswith("saved activations"))
