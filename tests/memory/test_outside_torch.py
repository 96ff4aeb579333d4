"""What lies outside torch's allocator follows the groups in which a job communicates, or what was measured."""

from dataclasses import replace

import pytest

from projector import catalog
from projector.catalog import Calibration, OutsideMeasurement
from projector.job import (
    Dialect,
    ExpertDispatch,
    LowPrecision,
    MixtureOfExperts,
    Parallelism,
    Precision,
    Sharding,
    Software,
    TrainingJob,
)
from projector.memory.communicators import communicator_bytes, groups_in_use
from projector.memory.dispatch_buffers import dispatch_buffer_bytes
from projector.memory.outside import measured_outside, outside_allocator
from projector.parallelism import resolve
from tests.layers.builders import MOE, job, mixtral, model, target

GIB = 2**30
BIASED = model(
    (replace(MOE, feed_forward=MixtureOfExperts(experts=8, top_k=2, expert_ffn=512, router_balance_bias=True)),)
)
TITAN = Software(dialect=Dialect.TORCHTITAN)
OVERLAPPED = Software(overlap_tensor_parallel=True)
FP8 = Precision(low_precision=LowPrecision.FP8)
GROUPS: dict[str, tuple[TrainingJob, int, int]] = {
    "one device": (job(), 1, 0),
    "dense data parallelism": (job(), 8, 3),
    "without a distributed optimizer": (job(layout=Parallelism(sharding=Sharding.NONE)), 8, 2),
    "experts": (job(mixtral(), layout=Parallelism(expert=8)), 8, 6),
    "experts with a balance bias": (job(BIASED, layout=Parallelism(expert=8)), 8, 7),
    "several copies of an expert": (job(mixtral(), layout=Parallelism(expert=4)), 8, 7),
    "tensor parallelism alone": (job(layout=Parallelism(tensor=8)), 8, 2),
    "a pipeline": (job(layout=Parallelism(pipeline=4)), 8, 4),
    "a mesh of one dimension is the world": (
        job(layout=Parallelism(sharding=Sharding.PARAMETERS), software=TITAN),
        8,
        1,
    ),
    "a mesh of two dimensions": (
        job(layout=Parallelism(tensor=2, sharding=Sharding.PARAMETERS), software=TITAN),
        8,
        3,
    ),
    "hybrid sharding": (
        job(layout=Parallelism(sharding=Sharding.PARAMETERS, shard_degree=4), software=TITAN),
        8,
        2,
    ),
}


@pytest.mark.parametrize(("asked", "devices", "want"), GROUPS.values(), ids=GROUPS)
def test_groups_in_use_are_those_that_raw_logs_account_for(asked: TrainingJob, devices: int, want: int) -> None:
    """AMD-AGI/Primus, raw logs of 8-GPU nodes: 3 for dense models, 6 with experts, 7 with their balance bias."""
    assert len(groups_in_use(asked, resolve(asked, target(devices_per_node=devices)))) == want


def test_small_groups_of_rccl_have_fewer_channels() -> None:
    """RCCL usage tips: 32 channels between two MI300X and 24 among four, each of 16 MiB."""
    device = catalog.device("MI300X")
    sizes = {}
    for tensor in (2, 4, 8):
        asked = job(layout=Parallelism(tensor=tensor))
        groups = [group for group in groups_in_use(asked, resolve(asked, target())) if group.name == "tensor"]
        sizes[tensor] = communicator_bytes(tuple(groups), device)
    assert sizes == {2: 32 * 16 * 2**20, 4: 24 * 16 * 2**20, 8: device.communicator_bytes}


def test_all_to_all_over_nccl_takes_buffers_per_pair() -> None:
    """NVIDIA/nccl issue 1685: an all-to-all over 8 H100 takes device memory from 1.06 to 4.34 GB."""
    device, asked = catalog.device("H100"), job(mixtral(), layout=Parallelism(expert=8))
    groups = [group for group in groups_in_use(asked, resolve(asked, target())) if group.exchanges]
    assert communicator_bytes(tuple(groups), device) / 1e9 == pytest.approx(4.34 - 1.06, rel=0.01)


def test_a_group_between_nodes_is_no_dearer_than_one_inside() -> None:
    device, asked = catalog.device("MI300X"), job(layout=Parallelism(tensor=8), global_=64)
    groups = {group.name: group for group in groups_in_use(asked, resolve(asked, target(nodes=4)))}
    assert groups["data"].ranks_per_node == 1
    assert communicator_bytes((groups["data"],), device) < communicator_bytes((groups["tensor"],), device)


BUFFERS = {
    # DeepEP's own formula by hand: channels x peers x waiting tokens x (bytes of a token).
    "one node": (8, 20, 10 * 8 * 256 * (2 * 6144 + 2056)),
    "more compute units": (8, 80, 40 * 8 * 256 * (2 * 6144 + 2056)),
    "half a node": (4, 20, 10 * 4 * 256 * (2 * 6144 + 2056)),
}


@pytest.mark.parametrize(("expert", "units", "want"), BUFFERS.values(), ids=BUFFERS)
def test_deepep_buffers_follow_the_library(expert: int, units: int, want: int) -> None:
    software = Software(expert_dispatch=ExpertDispatch.DEEPEP, expert_dispatch_units=units)
    asked = job(mixtral(), layout=Parallelism(expert=expert), software=software)
    assert dispatch_buffer_bytes(asked, resolve(asked, target())) == want


def test_deepep_needs_a_buffer_for_the_network_beyond_a_node() -> None:
    experts = MixtureOfExperts(experts=64, top_k=8, expert_ffn=2048)
    wide = model((replace(MOE, feed_forward=experts),), hidden=7168)
    software = Software(expert_dispatch=ExpertDispatch.DEEPEP)
    sizes = []
    for expert, nodes in ((8, 1), (16, 2), (64, 8)):
        asked = job(wide, layout=Parallelism(expert=expert), software=software)
        sizes.append(dispatch_buffer_bytes(asked, resolve(asked, target(nodes=nodes))))
    assert sizes == sorted(sizes)
    assert 2**29 <= sizes[1] - sizes[0] < 2**30


def test_other_dispatchers_have_no_buffers_of_their_own() -> None:
    asked = job(mixtral(), layout=Parallelism(expert=8))
    assert dispatch_buffer_bytes(asked, resolve(asked, target())) == 0


def calibrated(size_gib: float, groups: int | None, buffers: int = 0) -> Calibration:
    measured = OutsideMeasurement(
        size_bytes=round(size_gib * GIB), groups=groups, dispatch_buffer_bytes=buffers, source="rocm-smi"
    )
    return Calibration(device="MI300X", outside_allocator=measured)


def test_a_measurement_of_the_same_groups_stands_and_narrows_the_interval_to_1_gib() -> None:
    device, asked = catalog.device("MI300X"), job()
    layout = resolve(asked, target())
    found = outside_allocator(asked, layout, device, calibrated(9.5, 3))
    assert found.size_bytes == round(9.5 * GIB)
    assert found.uncertainty_bytes == GIB
    assert outside_allocator(asked, layout, device).uncertainty_bytes == 3 * GIB


@pytest.mark.parametrize(("groups", "more"), [(3, 3), (6, 0), (8, -2), (None, 0)])
def test_groups_that_the_measured_run_had_not_are_added(groups: int | None, more: int) -> None:
    device, asked = catalog.device("MI300X"), job(mixtral(), layout=Parallelism(expert=8))
    found = outside_allocator(asked, resolve(asked, target()), device, calibrated(12, groups))
    assert device.communicator_bytes
    assert found.size_bytes == 12 * GIB + more * device.communicator_bytes


@pytest.mark.parametrize(
    ("asked", "buffers"),
    [
        pytest.param(job(layout=Parallelism(tensor=4)), 0, id="without overlap"),
        pytest.param(job(layout=Parallelism(tensor=4), software=OVERLAPPED), 10 * 2, id="bf16"),
        pytest.param(job(layout=Parallelism(tensor=4), software=OVERLAPPED, precision=FP8), 4 * 2 + 6, id="fp8"),
        pytest.param(job(layout=Parallelism(tensor=4, context=2), software=OVERLAPPED), 10, id="context parallel"),
        pytest.param(job(software=OVERLAPPED), 0, id="one tensor-parallel rank"),
    ],
)
def test_user_buffers_hold_the_residual_stream_ten_times(asked: TrainingJob, buffers: int) -> None:
    """Transformer Engine `initialize_ub`: six buffers to gather, fp8 with it, and four to reduce."""
    found = outside_allocator(asked, resolve(asked, target()), catalog.device("MI300X"))
    elements = asked.batch.micro * asked.batch.sequence_length * asked.model.hidden
    assert found.parts.get("tensor-parallel user buffers", 0) == buffers * elements


def test_dispatch_buffers_of_the_measured_run_give_way_to_those_of_the_job() -> None:
    device = catalog.device("MI300X")
    asked = job(mixtral(), layout=Parallelism(expert=8), software=Software(expert_dispatch=ExpertDispatch.DEEPEP))
    layout = resolve(asked, target())
    own = dispatch_buffer_bytes(asked, layout)
    found = outside_allocator(asked, layout, device, calibrated(12, 6, buffers=GIB))
    assert found.size_bytes == 11 * GIB + own


def test_what_was_measured_is_listed_with_its_source() -> None:
    asked = job()
    layout = resolve(asked, target())
    assert measured_outside(asked, layout, None) == ()
    (listed,) = measured_outside(asked, layout, calibrated(9.5, 6))
    assert listed.what == "9.50 GiB outside PyTorch's allocator"
    assert listed.why == "measured with 6 process groups in use, this job uses 3: rocm-smi"


LOGS = {
    # GiB that the device showed beyond what torch had reserved, first iteration, 8 GPUs (AMD-AGI/Primus, ut_out/ and
    # deepseek-v4/develop/progress/p57/runs/p57_proxy_trace.log, rank 0 of the latter).
    "MI300X dense": ("MI300X", job(), 27.58 - 20322 / 1024),
    "MI300X experts, all-to-all": ("MI300X", job(mixtral(), layout=Parallelism(expert=8)), 63.98 - 52668 / 1024),
    "MI355X experts, DeepEP": (
        "MI355X",
        job(
            replace(mixtral(), hidden=4096),
            layout=Parallelism(expert=8),
            software=Software(expert_dispatch=ExpertDispatch.DEEPEP, expert_dispatch_units=80),
        ),
        133.91 - 122700 / 1024,
    ),
}


@pytest.mark.parametrize(("name", "asked", "measured"), LOGS.values(), ids=LOGS)
def test_logs_of_whole_nodes_lie_within_1_gib(name: str, asked: TrainingJob, measured: float) -> None:
    found = outside_allocator(asked, resolve(asked, target(device=name)), catalog.device(name))
    assert found.size_bytes / GIB == pytest.approx(measured, abs=1.0)
    assert found.uncertainty_bytes <= (3 if name == "MI300X" else 6) * GIB
