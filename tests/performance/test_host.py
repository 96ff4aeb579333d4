"""The host's clock and the device's: composed maps tell what an event by event simulation tells."""

from dataclasses import replace
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.catalog import HardwareOverrides, device
from projector.costs import CostModel
from projector.costs.host import readbacks
from projector.job import ExpertBackend, ExpertDispatch, GraphCapture, Sharding, Software, Target
from projector.layers import shapes_of
from projector.layers.decoder import shaped_layer
from projector.layers.moe import moe_operations
from projector.parallelism import resolve
from projector.performance.host import Clocks, Launches, composed, launched, readback
from projector.performance.passes import HOST
from tests.performance.jobs import a_job, part, project
from tests.performance.test_directions import MANY_EXPERTS

TARGET = Target(device="GB200", nodes=2, devices_per_node=4)
SECONDS = st.floats(0, 1, allow_nan=False)


class Step(NamedTuple):
    """A launch of work on the device, or a readback where that takes no time."""

    host: float
    device: float | None

    @property
    def clocks(self) -> Clocks:
        return readback(self.host) if self.device is None else launched(self.host, self.device)


STEPS = st.lists(st.builds(Step, host=SECONDS, device=st.none() | SECONDS), min_size=1, max_size=12)


def _simulated(steps: list[Step], passes: int) -> float:
    """When the device is free behind so many passes that follow one another."""
    host = device = 0.0
    for step in steps * passes:
        if step.device is None:
            host = max(host, device) + step.host
        else:
            host += step.host
            device = max(device, host) + step.device
    return device


@given(STEPS)
def test_a_pass_that_starts_with_both_free_takes_what_a_simulation_takes(steps: list[Step]) -> None:
    clocks = composed(step.clocks for step in steps)
    busy = sum(step.device or 0.0 for step in steps)
    assert busy + clocks.waiting_seconds(keeps_lead=False) == pytest.approx(_simulated(steps, 1))


@given(STEPS)
def test_passes_that_keep_the_lead_settle_at_the_pace_of_a_simulation(steps: list[Step]) -> None:
    clocks = composed(step.clocks for step in steps)
    busy = sum(step.device or 0.0 for step in steps)
    few, many = 64, 128
    pace = (_simulated(steps, many) - _simulated(steps, few)) / (many - few)
    if any(step.device is not None for step in steps):
        assert busy + clocks.waiting_seconds(keeps_lead=True) == pytest.approx(pace, rel=0.02, abs=1e-9)


@given(STEPS, st.integers(0, 12))
def test_steps_compose_in_any_grouping(steps: list[Step], at: int) -> None:
    halves = (composed(step.clocks for step in part) for part in (steps[:at], steps[at:]))
    assert composed(halves) == pytest.approx(composed(step.clocks for step in steps))


def test_a_readback_takes_the_lead_of_the_host_away() -> None:
    """Ten long kernels give the host a lead, which covers as many short ones unless it waits in between."""
    lead, rest = [Step(0.1, 1.0)] * 10, [Step(0.1, 0.01)] * 10
    free, held = (
        composed(step.clocks for step in (*lead, *between, *rest)).waiting_seconds(keeps_lead=False)
        for between in ([], [Step(0.0, None)])
    )
    assert held - free == pytest.approx(0.1 + 9 * 0.09)


MIXTURE = a_job(MANY_EXPERTS, sequence=4096, batch=64, expert=8, expert_tensor=1, software=Software())


SYNC_FREE: dict[str, object] = {
    "expert_dispatch": ExpertDispatch.DEEPEP,
    "permute_fusion": True,
    "router_fusion": True,
    "expert_backend": ExpertBackend.GROUPED_FUSED,
}
"""What Primus-Turbo's stages 2 and 3 bring with them."""


@pytest.mark.parametrize(
    "change",
    [
        {"host_factor": 0.8},
        {"processes_bound": True},
        {"transformer_engine": "2.16"},
        {"router_fusion": True},
        {"graphed_modules": ("attn",)},
        {"graphed_modules": ("attn", "moe_router", "moe_preprocess")},
        {"expert_capacity_factor": 1.0},
        SYNC_FREE | {"sync_free_stage": 2},
    ],
    ids=str,
)
def test_what_spares_the_host_shortens_a_step_that_it_bounds(change: dict[str, object]) -> None:
    """NUMA binding took one eight-layer model on MI355X from 13.9 to 9.4 s a step (AMD-AGI/Primus 9467e2f8)."""
    changed = replace(MIXTURE, software=replace(MIXTURE.software, **change))  # type: ignore[arg-type]
    assert project(changed, "MI355X").iteration_seconds < project(MIXTURE, "MI355X").iteration_seconds


def test_each_sync_free_stage_waits_less_often() -> None:
    """Two and three of Primus-Turbo's stages leave one wait and none; one fuses what launches most kernels."""
    fused = {"permute_fusion": True, "router_fusion": True}
    changes = [{}, fused, SYNC_FREE | {"sync_free_stage": 2}, SYNC_FREE | {"sync_free_stage": 3}]
    waits, times = [], []
    for change in changes:
        job = replace(MIXTURE, software=replace(MIXTURE.software, **change))  # type: ignore[arg-type]
        shapes = shapes_of(job, resolve(job, Target(device="MI355X", nodes=1, devices_per_node=8)))
        works = [work for each in moe_operations(job.model.expert_blocks[0], shapes) for work in each.forward]
        waits.append(sum(readbacks(work) for work in works))
        times.append(project(job, "MI355X").iteration_seconds)
    assert waits == [3, 1, 1, 0]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == len(times)


def test_a_host_that_takes_no_time_leaves_the_device_no_gap() -> None:
    free = replace(MIXTURE, software=replace(MIXTURE.software, host_factor=0.0))
    assert part(project(MIXTURE, "MI355X"), HOST) > 0
    assert part(project(free, "MI355X"), HOST) == 0


@pytest.mark.parametrize("scope", [("attn",), ("moe_router",), ("attn", "moe_router", "moe_preprocess")], ids=str)
def test_a_wider_graph_leaves_less_to_launch(scope: tuple[str, ...]) -> None:
    part_of, all_of = (
        part(project(replace(MIXTURE, software=replace(MIXTURE.software, graphed_modules=each)), "GB200"), HOST)
        for each in (scope, ("attn", "mlp", "moe"))
    )
    assert all_of < part_of < part(project(MIXTURE, "GB200"), HOST)


def test_one_graph_of_an_iteration_leaves_the_device_no_gap_in_layers() -> None:
    whole = replace(MIXTURE.software, graphed_modules=("attn", "mlp", "moe"), graph_capture=GraphCapture.FULL_ITERATION)
    assert part(project(replace(MIXTURE, software=whole), "GB200"), HOST) == 0


def test_graphs_of_whole_layers_cost_a_launch_for_each_and_direction() -> None:
    """Where launches of graphs are all that is left, a layer takes two of them, of 44 us on GB200."""
    tiny = replace(a_job(batch=64, sequence=128, software=Software(graphed_modules=("attn", "mlp"))))
    empty = replace(tiny, software=replace(tiny.software, graph_capture=GraphCapture.FULL_ITERATION))
    graphs, none = (
        Launches(CostModel(device("GB200"), resolve(job, TARGET).layer_groups), job.software) for job in (tiny, empty)
    )
    layer = shaped_layer(tiny.model.layers[0], shapes_of(tiny, resolve(tiny, TARGET)))
    for passed in ("forward", "backward"):
        arguments = (layer,) if passed == "forward" else (layer, ())
        with_graphs, without = (getattr(each, passed)(*arguments).host_to_host for each in (graphs, none))
        assert with_graphs - without == pytest.approx(44e-6, rel=1e-3)
        assert without == 0


def test_a_loop_over_experts_reads_their_rows_back_where_the_dispatcher_leaves_them_on_the_device() -> None:
    """NVIDIA-NeMo/Megatron-Bridge perf_recipes/deepseek: the grouped path syncs `tokens_per_expert` in every layer."""
    waits = {}
    for backend in (ExpertBackend.GROUPED_LOOP, ExpertBackend.GROUPED_FUSED):
        for dispatch in (ExpertDispatch.HYBRIDEP, ExpertDispatch.DEEPEP):
            software = Software(expert_backend=backend, expert_dispatch=dispatch, permute_fusion=True)
            job = replace(MIXTURE, software=software)
            layer = shaped_layer(job.model.layers[0], shapes_of(job, resolve(job, TARGET)))
            waits[backend, dispatch] = sum(readbacks(work) for operation in layer for work in operation.forward)
    assert waits == {
        (ExpertBackend.GROUPED_LOOP, ExpertDispatch.HYBRIDEP): 1,
        (ExpertBackend.GROUPED_LOOP, ExpertDispatch.DEEPEP): 1,
        (ExpertBackend.GROUPED_FUSED, ExpertDispatch.HYBRIDEP): 0,
        (ExpertBackend.GROUPED_FUSED, ExpertDispatch.DEEPEP): 1,
    }


def test_a_host_that_is_behind_hides_the_gathering_of_sharded_weights() -> None:
    """The device gathers while the host starts work: slower links change nothing as long as the host is slower yet."""
    slow = Software(host_factor=30)
    job = a_job(batch=64, sequence=2048, sharding=Sharding.PARAMETERS, software=slow)
    usual, narrow = (
        project(job, overrides=overrides) for overrides in (None, HardwareOverrides(node_bytes_per_second=224e9))
    )
    assert part(usual, HOST) > 0.5 * usual.iteration_seconds
    assert narrow.iteration_seconds == pytest.approx(usual.iteration_seconds, rel=0.02)


def test_a_forward_and_a_backward_side_by_side_take_no_less_than_the_host_needs_for_both() -> None:
    job = replace(MIXTURE, software=replace(MIXTURE.software, host_factor=30, overlap_expert_parallel=True))
    apart = replace(MIXTURE, software=replace(MIXTURE.software, host_factor=30))
    together, alone = (project(each) for each in (job, apart))
    assert part(alone, HOST) > 0
    assert together.iteration_seconds == pytest.approx(alone.iteration_seconds, rel=0.02)
