"""Files of given chunk times: the project's own form, Primus's, and what is wrong with others."""

from pathlib import Path

import pytest

from projector.config.pipeline_file import is_pipeline_file, read_pipeline_file
from projector.errors import ConfigurationError
from projector.job import Schedule
from projector.projection import ChunkDurations

GIB = 1 << 30
OWN = "pipeline: {stages: 2, micro_batches: 4, times_ms: {forward: 10, backward_input: 11, backward_weight: 9}}"
PRIMUS = """\
fwd_time: 1000
bwd_time: 800
wgrad_time: 600
print_simulation_result: true
output_dir: ./pp_simulation_result
schedulers:
  - name: mine
    class: primus.core.pipeline_parallel.scheduler.algorithms.basic_1f1b.Schedule1F1B
    pp_size: 8
    vpp_size: 1
    micro_batches: 32
  - name: v-half
    class: primus.core.pipeline_parallel.scheduler.algorithms.zbv_greedy.ScheduleZBVGreedy
    pp_size: 8
    vpp_size: 2
    micro_batches: 32
    memory_config: half
"""


def chunk(forward: float, back: float, weight: float) -> ChunkDurations:
    return ChunkDurations(forward=forward, backward_input=back, backward_weight=weight)


def test_one_map_of_times_holds_for_all_chunks() -> None:
    (case,) = read_pipeline_file(OWN, name="x.yaml").cases
    assert case.schedule == "auto"
    assert case.phase.chunks == ((chunk(0.010, 0.011, 0.009),),) * 2
    assert (case.phase.micro_batches, case.phase.blocking, case.phase.group) == (4, False, None)


def test_times_by_stage_and_by_chunk_and_all_keys() -> None:
    text = """\
pipeline:
  chunks: 2
  micro_batches: 10
  schedule: [1f1b-interleaved, zbv-formatted]
  times_ms:
    - {forward: 1, backward_input: 2, backward_weight: 3, activation_gib: 1}
    - - {forward: 4, backward_input: 5, backward_weight: 6, activation_gib: 2}
      - {forward: 7, backward_input: 8, backward_weight: 9, activation_gib: 3}
  transfer_ms: 0.5
  blocking_sends: true
  micro_batch_group: 5
  pending_micro_batches: 3
"""
    first, second = read_pipeline_file(text, name="x.yaml").cases
    assert (first.schedule, second.schedule) == ("1f1b-interleaved", "zbv-formatted")
    assert first.phase == second.phase
    phase = first.phase
    assert phase.chunks == ((chunk(0.001, 0.002, 0.003),) * 2, (chunk(0.004, 0.005, 0.006), chunk(0.007, 0.008, 0.009)))
    assert phase.activation_bytes == ((1.0 * GIB, 1.0 * GIB), (2.0 * GIB, 3.0 * GIB))
    assert (phase.transfer_seconds, phase.blocking, phase.group, phase.pending) == ((0.0005, 0.0005), True, 5, 3)


def test_a_whole_backward_pass_is_halved_and_said_to_be() -> None:
    read = read_pipeline_file(OWN.replace("backward_input: 11, backward_weight: 9", "backward: 20"), name="x.yaml")
    assert read.cases[0].phase.chunks[0][0] == chunk(0.010, 0.010, 0.010)
    assert [each.what for each in read.assumed] == ["half of the backward pass is that of the weights"]


def test_overrides_replace_keys() -> None:
    (case,) = read_pipeline_file(OWN, name="x.yaml", overrides={"stages": "3", "schedule": "gpipe"}).cases
    assert (case.phase.stages, case.schedule) == (3, "gpipe")
    first, second = read_pipeline_file(PRIMUS, name="x.yaml", overrides={"micro_batches": "7", "fwd_time": "4"}).cases
    assert (first.phase.micro_batches, second.phase.micro_batches) == (7, 7)
    assert first.phase.chunks[0][0].forward == 0.004


def test_the_file_of_primus_is_read() -> None:
    """Its times are those of a whole stage, whatever the number of chunks."""
    read = read_pipeline_file(PRIMUS, name="pp_simulation.yaml")
    first, second = read.cases
    assert (first.name, first.schedule) == ("mine", Schedule.ONE_F_ONE_B)
    assert (second.name, second.schedule) == ("v-half", Schedule.ZBV_GREEDY_HALF)
    assert first.phase.chunks == ((chunk(1.0, 0.8, 0.6),),) * 8
    assert second.phase.chunks == ((chunk(0.5, 0.4, 0.3),) * 2,) * 8
    assert read.ignored == ("print_simulation_result", "output_dir")


def test_chunk_times_of_primus_take_the_weight_gradient_for_as_long_as_the_rest() -> None:
    text = """\
chunk_time_ms: [[{fwd: 10, bwd: 20, activation: 1.5}], [{fwd: 30, bwd: 40, wgrad: 50, activation: 2}]]
schedulers: [{name: zerobubble, pp_size: 2, vpp_size: 1, micro_batches: 4}]
"""
    (case,) = read_pipeline_file(text, name="x.yaml").cases
    assert case.schedule == "zerobubble"
    assert case.phase.chunks == ((chunk(0.01, 0.02, 0.02),), (chunk(0.03, 0.04, 0.05),))
    assert case.phase.activation_bytes == ((1.5 * GIB,), (2.0 * GIB,))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("stages: 2", "stage: 2"), "x.yaml: pipeline.stage: is not a known key; did you mean stages?"),
        (("stages: 2, ", ""), "x.yaml: pipeline.stages: is missing; a whole number, 1 or more"),
        (("stages: 2", "stages: 0"), "x.yaml: pipeline.stages: 0; expected a whole number from 1 to 2048"),
        (("stages: 2", "stages: 2000, chunks: 2"), "x.yaml: pipeline: 2000 stages x 2 chunks; at most 2048 together"),
        (("stages: 2", "stages: true"), "x.yaml: pipeline.stages: True; expected a whole number from 1 to 2048"),
        (("micro_batches: 4", "micro_batches: 1.5"), "x.yaml: pipeline.micro_batches: 1.5; expected a whole number"),
        (("forward: 10", "forward: 0"), "x.yaml: pipeline.times_ms.forward: 0; expected a number from 1e-06 to 1e+09"),
        (("forward: 10", "forward: .inf"), "x.yaml: pipeline.times_ms.forward: inf; expected a number from 1e-06"),
        (("forward: 10, ", ""), "x.yaml: pipeline.times_ms.forward: is missing; a number of milliseconds"),
        (("forward: 10", "forward: 10, backward: 2"), "x.yaml: pipeline.times_ms: states the backward pass twice;"),
        (
            ("micro_batches: 4", "micro_batches: 4, schedule: 1f2b"),
            "x.yaml: pipeline.schedule: '1f2b' is not a schedule;",
        ),
        (
            ("micro_batches: 4", "micro_batches: 4, blocking_sends: 2"),
            "x.yaml: pipeline.blocking_sends: 2; true or false",
        ),
        (
            ("micro_batches: 4", "micro_batches: 4, transfer_ms: -1"),
            "x.yaml: pipeline.transfer_ms: -1; expected a number",
        ),
        (("}}", "}}\nmodel: x"), "x.yaml: model: is not a known key; pipeline alone"),
        ((OWN, "pipeline: 3"), "x.yaml: pipeline: 3 is not a map; keys stages, chunks, micro_batches, schedule,"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_is_named_with_its_place(change: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_pipeline_file(OWN.replace(*change), name="x.yaml")
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ("[{forward: 1, backward: 2}]", "x.yaml: pipeline.times_ms: has 1 entries; one for each of 2 stages"),
        ("[[], []]", "x.yaml: pipeline.times_ms[0]: has 0 entries; one for each of 1 model chunks"),
        ("[3, 4]", "x.yaml: pipeline.times_ms[0]: 3 is not a map; keys forward, backward, backward_input,"),
        (
            "[{forward: 1, backward: 2, activation_gib: 1}, {forward: 1, backward: 2}]",
            "x.yaml: pipeline.times_ms: some chunks state what they keep and others do not; all or none",
        ),
    ],
)
def test_times_that_do_not_fit_the_stages_are_named(times: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_pipeline_file(f"pipeline: {{stages: 2, micro_batches: 4, times_ms: {times}}}", name="x.yaml")
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("memory_config: half", "memory_config: most"), "x.yaml: schedulers[1].memory_config: 'most'; half or min"),
        (("Schedule1F1B", "Schedule2F"), "x.yaml: schedulers[0].class: "),
        (("    pp_size: 8\n", ""), "x.yaml: schedulers[0].pp_size: is missing;"),
        (("fwd_time: 1000\n", ""), "x.yaml: fwd_time: is missing; a number of milliseconds"),
        (("fwd_time", "fwd"), "x.yaml: fwd: is not a known key;"),
        (("vpp_size: 1", "vpp: 1"), "x.yaml: schedulers[0].vpp: is not a known key; one of class, memory_config,"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_with_the_file_of_primus_is_named(change: tuple[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_pipeline_file(PRIMUS.replace(*change), name="x.yaml")
    assert str(raised.value).startswith(message)


def test_no_training_configuration_is_taken_for_chunk_times() -> None:
    samples = Path(__file__).parents[2] / "samples"
    files = [path for folder in ("configurations", "experiments") for path in (samples / folder).iterdir()]
    assert not any(is_pipeline_file(path.read_text(encoding="utf-8")) for path in files)
    assert is_pipeline_file((samples / "schedules" / "four-stages.yaml").read_text(encoding="utf-8"))
    assert is_pipeline_file(OWN)
    assert is_pipeline_file(PRIMUS)
