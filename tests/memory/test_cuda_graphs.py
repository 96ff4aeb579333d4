"""CUDA graphs of modules of a layer: what they keep, and which of it torch counts as allocated."""

from dataclasses import replace

import pytest

from projector import catalog
from projector.job import Parallelism, RecomputeGranularity, TrainingJob
from projector.memory import project_memory
from projector.memory.graphs import BUFFERS, CAPTURE, POOL
from projector.parallelism import resolve
from projector.projection import MemoryLevel, StageMemory
from tests.layers.builders import DENSE, job, model, target

PLAIN = job(model((DENSE,) * 16), layout=Parallelism(pipeline=2))


def graphed(asked: TrainingJob, *modules: str, flash: bool = True) -> TrainingJob:
    return replace(asked, software=replace(asked.software, graphed_modules=modules, flash_attention=flash))


def last(asked: TrainingJob) -> StageMemory:
    return project_memory(asked, resolve(asked, target()), catalog.device("H100")).stages[-1]


def sizes(stage: StageMemory) -> dict[str, int]:
    return {part.name: part.size_bytes for part in stage.components}


@pytest.mark.parametrize(("modules", "masks"), [(("attn",), 1), (("mlp",), 0), (("attn", "mlp"), 1)])
def test_inputs_lie_still_for_each_layer_in_flight(modules: tuple[str, ...], masks: int) -> None:
    """Hidden states in 16 bits and, with attention, a byte for each pair of tokens.

    Source: Megatron-LM module.py and transformer_layer.py, `get_layer_static_inputs`.
    """
    batch, hidden = PLAIN.batch, PLAIN.model.hidden
    tokens = batch.micro * batch.sequence_length
    each = 2 * tokens * hidden + masks * tokens * batch.sequence_length
    stage = last(graphed(PLAIN, *modules))
    assert sizes(stage)[BUFFERS] == last(PLAIN).layers_in_flight * each


def test_stored_scores_need_workspaces_of_torchs_matmul_on_the_streams_of_warm_up_and_capture() -> None:
    with_flash, without = (sizes(last(graphed(PLAIN, "attn", flash=flash)))[BUFFERS] for flash in (True, False))
    assert without - with_flash == 4 * (catalog.device("H100").blas_workspace_bytes or 0)


def test_what_is_captured_is_allocated_no_longer_and_stays_reserved() -> None:
    plain, stage = sizes(last(PLAIN)), last(graphed(PLAIN, "mlp"))
    parts = sizes(stage)
    assert "saved activations: mlp" in plain
    assert "saved activations: mlp" not in parts
    assert parts[POOL] == plain["saved activations: mlp"]
    levels = [stage.level_bytes(level) for level in MemoryLevel]
    assert levels == sorted(levels)


def test_capturing_is_the_peak_where_almost_all_is_captured() -> None:
    """Passes are captured one after the other before the first step, without the optimizer's moments."""
    long = replace(PLAIN, batch=replace(PLAIN.batch, sequence_length=4 * PLAIN.batch.sequence_length))
    stage = last(graphed(long, "attn", flash=False))
    parts = sizes(stage)
    assert CAPTURE in parts
    assert stage.peak_cause == CAPTURE
    assert stage.first_iteration_allocated_bytes == stage.level_bytes(MemoryLevel.ALLOCATED)
    assert not any(name.startswith("saved activations") for name in parts)


def test_graphs_leave_a_job_without_them_as_it_is() -> None:
    assert PLAIN.recompute.granularity is RecomputeGranularity.NONE
    assert not {BUFFERS, CAPTURE, POOL} & sizes(last(PLAIN)).keys()
