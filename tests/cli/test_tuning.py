"""Tuning variables of Primus change a time as Primus documents, are named in the answer, and refuse wrong numbers."""

import json
from dataclasses import fields, replace
from functools import cache

import pytest

from projector.api import Question, project
from projector.cli.row import Fate
from projector.cli.tuning import KNOBS, SAMPLING, settle
from projector.errors import InputError
from projector.job import Tuning
from projector.performance.stated import FIGURES
from projector.projection import Projection
from tests.cli.lines import SAMPLE, carried_out, complaint
from tests.config.builders import experiment_text

V4 = experiment_text(
    {
        "config": "pre_trainer.yaml",
        "model": "deepseek_v4_flash.yaml",
        "overrides": {
            "num_layers": 8,
            "num_experts": 64,
            "micro_batch_size": 1,
            "global_batch_size": 64,
            "expert_model_parallel_size": 8,
            "optimizer": "muon",
            "fp8": "hybrid",
            "moe_grouped_gemm": True,
        },
    }
)
"""Eight layers of DeepSeek-V4-Flash: two see their window alone, then chosen and compressed keys take turns."""
ROWS = {row.name: row for row in (*KNOBS, *SAMPLING)}
SLOWER, FASTER, SAME = 1, -1, 0

Variables = tuple[tuple[str, str], ...]


def fields_of(variables: Variables) -> dict[str, object]:
    knobs: dict[str, object] = {}
    for name, text in variables:
        effect = ROWS[name].effect
        assert effect is not None
        knobs.update(effect(text).knobs)
    return dict(settle(knobs).fields)


@cache
def answered(*variables: tuple[str, str]) -> Projection:
    # A host that never holds the device up, so that what the device does shows.
    question = Question(text=V4, device="MI355X", nodes=1, devices_per_node=8, host_factor=0.0)
    return project(replace(question, **fields_of(variables)))  # type: ignore[arg-type]


def seconds(*variables: tuple[str, str]) -> float:
    performance = answered(*variables).performance
    assert performance is not None
    return performance.iteration_seconds


def part(name: str, *variables: tuple[str, str]) -> float:
    performance = answered(*variables).performance
    assert performance is not None
    return sum(step.seconds for step in performance.waterfall if step.name == name)


EXPERTS, ATTENTION = ("PRIMUS_MOE_EXPERT_OVH_CALIBRATED", "1"), ("PRIMUS_ATTN_CALIBRATED", "1")
PAIRS: dict[str, tuple[Variables, Variables, int]] = {
    "optimizer bandwidth": ((("PRIMUS_OPT_HBM_EFF", "0.42"),), (("PRIMUS_OPT_HBM_EFF", "0.21"),), SLOWER),
    "iterations": ((("PRIMUS_OPT_MUON_NS_STEPS", "5"),), (("PRIMUS_OPT_MUON_NS_STEPS", "10"),), SLOWER),
    "time of iterations": ((("PRIMUS_OPT_MUON_NS_MS", "10"),), (("PRIMUS_OPT_MUON_NS_MS", "30"),), SLOWER),
    "every pass of a permutation": ((), (("PRIMUS_MOE_PERMUTE_FIRST_PRINCIPLES", "1"),), SAME),
    "scatter": ((), (("PRIMUS_MOE_PERMUTE_SCATTER", "0.5"),), SLOWER),
    "usual scatter": ((), (("PRIMUS_MOE_PERMUTE_SCATTER", "1.0"),), SAME),
    "launch of a permutation": ((), (("PRIMUS_MOE_PERMUTE_LAUNCH_US", "20"),), SLOWER),
    "the cost model's launch": ((), (("PRIMUS_MOE_PERMUTE_LAUNCH_US", "2"),), SAME),
    "casts": ((), (("PRIMUS_MOE_EXPERT_QUANT_EFF", "0.5"),), SLOWER),
    "faster casts": ((), (("PRIMUS_MOE_EXPERT_QUANT_EFF", "2"),), FASTER),
    "launch of experts": ((), (("PRIMUS_MOE_EXPERT_LAUNCH_US", "20"),), SLOWER),
    "counted casts": ((), (("PRIMUS_MOE_EXPERT_OVH_CALIBRATED", "0"),), SAME),
    "fixed time of experts": ((), (EXPERTS,), SLOWER),
    "forward time": ((EXPERTS,), (EXPERTS, ("PRIMUS_MOE_EXPERT_OVH_FWD_MS", "0.4")), SLOWER),
    "backward time": ((EXPERTS,), (EXPERTS, ("PRIMUS_MOE_EXPERT_OVH_BWD_MS", "0.1")), FASTER),
    "usual times": (
        (EXPERTS,),
        (EXPERTS, ("PRIMUS_MOE_EXPERT_OVH_FWD_MS", "0.19"), ("PRIMUS_MOE_EXPERT_OVH_BWD_MS", "0.66")),
        SAME,
    ),
    "times without their switch": ((), (("PRIMUS_MOE_EXPERT_OVH_FWD_MS", "9"),), SAME),
    "counted attention": ((), (("PRIMUS_ATTN_CALIBRATED", "0"),), SAME),
    "share of passes": ((ATTENTION,), (ATTENTION, ("PRIMUS_ATTN_ELEM_EFF", "0.3")), FASTER),
    "forward passes": ((ATTENTION,), (ATTENTION, ("PRIMUS_ATTN_MISC_FWD_PASSES", "16")), SLOWER),
    "backward passes": ((ATTENTION,), (ATTENTION, ("PRIMUS_ATTN_MISC_BWD_PASSES", "15")), FASTER),
    "passes without their switch": ((), (("PRIMUS_ATTN_MISC_FWD_PASSES", "99"),), SAME),
    "element-wise share": ((("PRIMUS_ATTN_MISC_ETA", "0.9"),), (("PRIMUS_ATTN_MISC_ETA", "0.566"),), SLOWER),
    "older name": ((("PRIMUS_ATTN_MISC_ETA", "0.7"),), (("PRIMUS_ATTN_FP_ETA", "0.7"),), SAME),
    "both names": (
        (("PRIMUS_ATTN_MISC_ETA", "0.7"),),
        (("PRIMUS_ATTN_FP_ETA", "0.1"), ("PRIMUS_ATTN_MISC_ETA", "0.7")),
        SAME,
    ),
    "full windows": ((), (("PRIMUS_ATTN_SWA_FULLBAND", "1"),), SAME),
    "half windows": ((), (("PRIMUS_ATTN_SWA_FULLBAND", "0"),), FASTER),
    "key scatter": ((("PRIMUS_ATTN_CSA_SCATTER_ETA", "0.6"),), (("PRIMUS_ATTN_CSA_SCATTER_ETA", "0.3"),), SLOWER),
    "trained indexer": (
        (("PRIMUS_V4_INDEXER_TRAINABLE", "0"),),
        (("PRIMUS_V4_INDEXER_TRAINABLE", "1"),),
        SLOWER,
    ),
    "eager keys": (
        (("PRIMUS_USE_V4_TRITON_CSA_ATTENTION", "1"),),
        (("PRIMUS_USE_V4_TRITON_CSA_ATTENTION", "0"),),
        SLOWER,
    ),
    "as the file says": ((), (("PRIMUS_USE_V4_TRITON_CSA_ATTENTION", "yes"),), SAME),
    "sinkhorn": ((("PRIMUS_HC_SINKHORN_ITERS", "20"),), (("PRIMUS_HC_SINKHORN_ITERS", "40"),), SLOWER),
    "compiled sinkhorn": ((("PRIMUS_HC_SINKHORN_ITERS", "20"),), (("PRIMUS_HC_SINKHORN_ITERS", "0"),), FASTER),
    "first layers alone": ((), (("PRIMUS_PROJ_MAX_LAYERS", "2"),), FASTER),
    "all layers": ((), (("PRIMUS_PROJ_MAX_LAYERS", "8"),), SAME),
    "ratios alone": ((), (("PRIMUS_PROJ_COMPRESS_RATIOS", "4"),), SAME),
    "chosen keys for all": (
        (("PRIMUS_PROJ_MAX_LAYERS", "2"), ("PRIMUS_PROJ_COMPRESS_RATIOS", "128,4")),
        (("PRIMUS_PROJ_MAX_LAYERS", "2"), ("PRIMUS_PROJ_COMPRESS_RATIOS", "[4, 4]")),
        SLOWER,
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_a_variable_changes_the_time_as_primus_documents(name: str) -> None:
    before, after, direction = PAIRS[name]
    difference = seconds(*after) - seconds(*before)
    if direction == SAME:
        assert difference == pytest.approx(0, abs=1e-9 * seconds(*before))
    else:
        assert difference * direction > 0


def test_every_variable_of_the_table_is_tried() -> None:
    tried = {name for before, after, _ in PAIRS.values() for name, _ in (*before, *after)}
    assert tried == set(ROWS)
    assert {row.fate for row in ROWS.values()} == {Fate.WORKS}


def test_the_optimizer_step_is_its_bytes_over_the_share() -> None:
    """Without the iterations of Muon, whose time is stated as nothing."""
    none = ("PRIMUS_OPT_MUON_NS_MS", "0")
    steps = [part("optimizer step", none, ("PRIMUS_OPT_HBM_EFF", share)) for share in ("0.2", "0.4", "0.8")]
    assert steps[0] / steps[1] == pytest.approx(2)
    assert steps[1] / steps[2] == pytest.approx(2)


def test_a_stated_time_of_iterations_is_that_time() -> None:
    steps = [part("optimizer step", ("PRIMUS_OPT_MUON_NS_MS", text)) for text in ("0", "25")]
    assert steps[1] - steps[0] == pytest.approx(0.025)


def test_a_fixed_time_of_an_expert_counts_for_each_of_a_gpu_in_every_layer() -> None:
    times = [
        part(
            "element-wise work", EXPERTS, ("PRIMUS_MOE_EXPERT_OVH_FWD_MS", text), ("PRIMUS_MOE_EXPERT_OVH_BWD_MS", "0")
        )
        for text in ("0", "0.2")
    ]
    layers, experts, micro_batches = 8 + 1, 64 // 8, 64 // 8
    assert times[1] - times[0] == pytest.approx(layers * experts * micro_batches * 0.2e-3)


def test_permutation_at_half_the_rate_takes_twice_its_bytes() -> None:
    times = [part("element-wise work", ("PRIMUS_MOE_PERMUTE_SCATTER", text)) for text in ("1", "0.5", "0.25")]
    assert times[2] - times[1] == pytest.approx(2 * (times[1] - times[0]))


@pytest.mark.parametrize(("layers", "ratios"), [("1", "0"), ("2", "4,128"), ("3", "4,128,0")])
def test_layers_of_a_sample_take_turns(layers: str, ratios: str) -> None:
    """A sample of kinds is their mean, over nine layers of which the last predicts."""
    sample = (("PRIMUS_PROJ_MAX_LAYERS", layers), ("PRIMUS_PROJ_COMPRESS_RATIOS", ratios))
    single = {
        ratio: part("attention", ("PRIMUS_PROJ_MAX_LAYERS", "1"), ("PRIMUS_PROJ_COMPRESS_RATIOS", ratio))
        for ratio in ("0", "4", "128")
    }
    kinds = ratios.split(",")
    turns = [kinds[index % len(kinds)] for index in range(8)]
    expected = sum(single[kind] / 9 for kind in (*turns, turns[-1]))
    assert part("attention", *sample) == pytest.approx(expected)


WRONG = {
    "PRIMUS_OPT_HBM_EFF": ["0", "-1", "1.5", "nan", "much", "inf"],
    "PRIMUS_OPT_MUON_NS_STEPS": ["0", "2.5", "-1"],
    "PRIMUS_OPT_MUON_NS_MS": ["-1", "nan", "1e9"],
    "PRIMUS_MOE_PERMUTE_FIRST_PRINCIPLES": ["2", "yes"],
    "PRIMUS_MOE_PERMUTE_SCATTER": ["0", "-2", "nan"],
    "PRIMUS_MOE_PERMUTE_LAUNCH_US": ["-0.1", "x"],
    "PRIMUS_MOE_EXPERT_QUANT_EFF": ["0"],
    "PRIMUS_MOE_EXPERT_LAUNCH_US": ["fast"],
    "PRIMUS_MOE_EXPERT_OVH_CALIBRATED": ["on"],
    "PRIMUS_MOE_EXPERT_OVH_FWD_MS": ["-1"],
    "PRIMUS_MOE_EXPERT_OVH_BWD_MS": ["inf"],
    "PRIMUS_ATTN_CALIBRATED": ["true"],
    "PRIMUS_ATTN_ELEM_EFF": ["0", "2"],
    "PRIMUS_ATTN_MISC_FWD_PASSES": ["-8"],
    "PRIMUS_ATTN_MISC_BWD_PASSES": ["many"],
    "PRIMUS_ATTN_MISC_ETA": ["0"],
    "PRIMUS_ATTN_FP_ETA": ["1.01"],
    "PRIMUS_ATTN_SWA_FULLBAND": ["half"],
    "PRIMUS_ATTN_CSA_SCATTER_ETA": ["-0.6"],
    "PRIMUS_V4_INDEXER_TRAINABLE": ["2"],
    "PRIMUS_USE_V4_TRITON_CSA_ATTENTION": ["maybe"],
    "PRIMUS_HC_SINKHORN_ITERS": ["-1", "1.5"],
    "PRIMUS_PROJ_MAX_LAYERS": ["0", "two"],
    "PRIMUS_PROJ_COMPRESS_RATIOS": ["4;128", "-4", "[]"],
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in WRONG.items() for text in texts])
def test_a_wrong_value_is_refused_by_the_name_of_its_variable(
    capsys: pytest.CaptureFixture[str], name: str, text: str
) -> None:
    line = complaint(carried_out(capsys, "performance", "--config", SAMPLE, environment={name: text}))
    assert line.startswith(f"{name}: ")


def test_every_variable_refuses_something() -> None:
    assert WRONG.keys() == ROWS.keys()


def test_the_answer_names_what_is_stated_and_what_finds_nothing_to_change(capsys: pytest.CaptureFixture[str]) -> None:
    variables = {"PRIMUS_OPT_HBM_EFF": "0.25", "PRIMUS_ATTN_MISC_ETA": "0.5", "PRIMUS_HC_SINKHORN_ITERS": "3"}
    line = ("performance", "--config", SAMPLE, "--output", "json")
    document = json.loads(carried_out(capsys, *line, environment=variables).out)["job"]
    stated = [note["what"] for note in document["assumed"] if note["what"].startswith("stated: ")]
    assert stated == ["stated: share of memory bandwidth in the optimizer step 0.25"]
    assert "tuning.attention_bandwidth_share (attention is not of DeepSeek-V4's kind)" in document["ignored"]
    assert any("hyper-connections" in each and "the residual is one stream" in each for each in document["ignored"])


def test_every_figure_is_said_in_words() -> None:
    assert list(FIGURES) == [field.name for field in fields(Tuning)]


def test_a_ratio_that_no_layer_has_is_an_error() -> None:
    with pytest.raises(InputError, match="no layer has the compression ratio 7; ratios of its layers: 0, 4, 128"):
        answered(("PRIMUS_PROJ_MAX_LAYERS", "1"), ("PRIMUS_PROJ_COMPRESS_RATIOS", "7"))


def test_the_project_s_own_format_states_the_same_figures() -> None:
    own = """\
projector: 1
model: {catalog: llama3.1-8b}
batch: {micro: 1, global: 64, sequence_length: 4096}
tuning: {optimizer_bandwidth_share: SHARE}
"""
    steps = []
    for share in ("0.1", "0.4"):
        question = Question(text=own.replace("SHARE", share), device="MI300X", nodes=1, memory=False)
        answer = project(question)
        assert any(note.what.startswith("stated: share of memory bandwidth") for note in answer.assumed)
        assert answer.performance is not None
        steps += [step.seconds for step in answer.performance.waterfall if step.name == "optimizer step"]
    assert steps[0] / steps[1] == pytest.approx(4)
    with pytest.raises(InputError, match=r"tuning.optimizer_bandwidth_share: 0; expected a number above 0, up to 1"):
        project(Question(text=own.replace("SHARE", "0"), device="MI300X", nodes=1))
