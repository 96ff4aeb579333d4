"""Where a source does not state the world size, the row's persistent bytes tell it."""

from dataclasses import replace
from pathlib import Path

import pytest

from projector.api import project_job
from projector.job import Target, TrainingJob
from projector.projection import MemoryLevel, MemoryProjection
from tests.accuracy.jobs import job
from tests.accuracy.rows import Row, load
from tests.accuracy.scoring import score
from tests.accuracy.world import IDENTIFIES, identified, is_unstated

ROWS = load(Path(__file__).with_name("ground_truth.yaml"))
RELEASE = next(row for row in ROWS if is_unstated(row) and row.score is None)


def memory(built: TrainingJob, target: Target) -> MemoryProjection:
    return project_job(built, target, replay=False)[0]


def measured_on(devices: int, *, placeholders: bool) -> Row:
    """The release row as if it had run there."""
    state = {"devices": devices, "placeholders": placeholders}
    ran = replace(RELEASE, train={**RELEASE.train, "identified": state})
    size = memory(*job(ran)).stages[-1].level_bytes(MemoryLevel.PERSISTENT)
    return replace(RELEASE, measured={**RELEASE.measured, IDENTIFIES: size / 2**30})


@pytest.mark.parametrize("placeholders", [True, False])
@pytest.mark.parametrize("devices", [64, 256])
def test_the_world_and_the_container_are_found(devices: int, placeholders: bool) -> None:  # noqa: FBT001 - a case
    found = identified(measured_on(devices, placeholders=placeholders), memory)
    assert found.train["identified"] == {"devices": devices, "placeholders": placeholders}


def test_rows_that_state_their_devices_stay_as_they_are() -> None:
    stated = next(row for row in ROWS if row.devices is not None)
    assert identified(stated, memory) is stated


def test_what_identified_the_world_is_no_measurement_of_the_engine() -> None:
    unseen = next(row.group for row in ROWS if not row.fitted)
    row = replace(measured_on(256, placeholders=True), group=unseen)
    figures = {figure.quantity: figure for figure in score([row], project_job)}
    assert figures[IDENTIFIES].n == 0
    assert figures["mem_alloc_gib"].n == 1
    assert figures["mem_alloc_gib"].worst_percent < 0.5
