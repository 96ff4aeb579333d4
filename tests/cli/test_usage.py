import re
from pathlib import Path

import pytest

from projector.cli.parser import COMMANDS
from tests.cli.lines import SAMPLE, carried_out, complaint, understood

BOTH = ("both", "--config", SAMPLE)


@pytest.mark.parametrize(
    ("tokens", "wanted"),
    [
        (
            (),
            "a command is needed; one of memory, performance, both, schedule, show, convert, models, devices, backends",
        ),
        (("--output", "json"), "'json' is not a command"),
        (("bth",), "'bth' is not a command; did you mean both?"),
        (("both",), "both: --config FILE, the training configuration, is needed"),
        (("both", "--config"), "argument --config/--exp: expected one argument; see projector both --help"),
        ((*BOTH, "--target-node", "4"), "--target-node is not an option; did you mean --target-nodes?"),
        ((*BOTH, "--target-nod=4"), "--target-nod is not an option; did you mean --target-nodes?"),
        ((*BOTH, "--target-nodes", "0"), "--target-nodes: '0' is not a count; a whole number, 1 or more"),
        ((*BOTH, "--target-nodes", "-1"), "--target-nodes: '-1' is not a count"),
        ((*BOTH, "--target-nodes", "2.5"), "--target-nodes: '2.5' is not a count"),
        ((*BOTH, "--target-nodes", "9" * 5000), f"--target-nodes: '{'9' * 56}... is too large; a whole number of at"),
        ((*BOTH, "--", "--target-nodes", "2"), "'--' has no meaning here"),
        ((*BOTH, "model=llama3_8B"), "override model: the model preset is read before overrides are applied"),
        ((*BOTH, "--primus-root", "x" * 5000), f"--primus-root: '{'x' * 56}... is not a folder"),
        ((*BOTH, "--micro-batch-size", "three"), "--micro-batch-size: 'three' is not a count"),
        ((*BOTH, "--memory-safety-margin", "-0.1"), "--memory-safety-margin: '-0.1' is not a share"),
        ((*BOTH, "--host-factor", "-1"), "--host-factor: '-1' is not a multiple; a number from 0 to 1000"),
        ((*BOTH, "--routing-imbalance", "0.9"), "--routing-imbalance: '0.9' is not a factor; a number of 1 or more"),
        ((*BOTH, "--routing-imbalance", "inf"), "--routing-imbalance: 'inf' is not a factor; a number of 1 or more"),
        ((*BOTH, "--memory-safety-margin", "nan"), "--memory-safety-margin: 'nan' is not a share"),
        ((*BOTH, "--memory-safety-margin", "1e308"), "--memory-safety-margin: '1e308' is not a share; a number from 0"),
        ((*BOTH, "--scaling", "linear"), "--scaling: 'linear' is not known; one of strong, weak"),
        ((*BOTH, "--sync-free-stage", "4"), "--sync-free-stage: '4' is not known; one of 0, 1, 2, 3"),
        ((*BOTH, "--output", "xml"), "--output: 'xml' is not known; one of text, json, yaml, csv"),
        ((*BOTH, "--output", "html"), "--output: 'html' is not available yet; what works instead: text, json"),
        ((*BOTH, "--gemm-backend", "magic"), "--gemm-backend: 'magic'; one of analytical, origami"),
        (
            (*BOTH, "--gpu-arch", "h100", "--gemm-backend", "origami"),
            "--gemm-backend: origami does not know H100 (sm90)",
        ),
        ((*BOTH, "--profiling-mode", "both"), "--profiling-mode: 'both' is not available yet; what works instead"),
        (
            ("memory", "--config", SAMPLE, "--memory-mode", "benchmark"),
            "--memory-mode: 'benchmark' is not available yet; what works instead",
        ),
        ((*BOTH, "--pipeline-schedule-algorithm", "vpipe"), "--pipeline-schedule-algorithm: 'vpipe' is not known"),
        ((*BOTH, "--primus-root", "/nowhere"), "--primus-root: '/nowhere' is not a folder"),
        (
            ("memory", "--config", SAMPLE, "--gemm-backend", "analytical"),
            "memory: --gemm-backend is not an option of this command; it belongs to performance, both",
        ),
        (
            ("performance", "--config", SAMPLE, "--check"),
            "performance: --check is not an option of this command; it belongs to memory, both",
        ),
        (("models", "llama"), "projector models: 'llama' is not understood; options only"),
        (("devices", "--config", "x"), "projector devices: '--config' is not understood; options only"),
        ((*BOTH, "7"), "override: '7' is not an override; key=value, --key=value, --key value or --flag"),
        (
            (*BOTH, "--target-nodes", "2", "--target-num-nodes", "4"),
            "nodes: --target-nodes says 2, --target-num-nodes says 4; say one of the two",
        ),
        (
            (*BOTH, "--micro-batch-size", "2", "micro_batch_size=3"),
            "micro_batch_size: the override micro_batch_size says 3, --micro-batch-size says 2; say one of the two",
        ),
        ((*BOTH, "--enable-deepep=yes"), "argument --enable-deepep: ignored explicit argument 'yes'"),
    ],
    ids=lambda value: " ".join(value).replace(SAMPLE, "FILE") if isinstance(value, tuple) else "",
)
def test_wrong_usage_is_one_clear_line_and_exit_2(
    capsys: pytest.CaptureFixture[str], tokens: tuple[str, ...], wanted: str
) -> None:
    assert complaint(carried_out(capsys, *tokens)).startswith(wanted)


@pytest.mark.parametrize(
    ("variable", "value", "wanted"),
    [
        ("NNODES", "many", "NNODES: 'many' is not a count; a whole number, 1 or more"),
        ("PRIMUS_ROOT", "/nowhere", "PRIMUS_ROOT: '/nowhere' is not a folder; an existing folder"),
        ("PRIMUS_GEMM_BACKEND", "magic", "--gemm-backend: 'magic'; one of analytical, origami"),
        (
            "PRIMUS_GPU_CLOCK_MHZ",
            "fast",
            "PRIMUS_GPU_CLOCK_MHZ: 'fast' is not a clock; megahertz above 0, such as 1200",
        ),
        ("PRIMUS_GPU_CLOCK_MHZ", "2200", "--gpu-clock-mhz: 2200; at most the 2100 MHz of MI300X"),
        ("PRIMUS_HW_PROFILE_DIR", "/nowhere", "PRIMUS_HW_PROFILE_DIR: '/nowhere' is not a folder; an existing folder"),
        ("PRIMUS_WORKLOAD", "dlrm", "PRIMUS_WORKLOAD: 'dlrm' is not available yet; what works instead: megatron"),
    ],
)
def test_wrong_variable_is_named(capsys: pytest.CaptureFixture[str], variable: str, value: str, wanted: str) -> None:
    assert complaint(carried_out(capsys, *BOTH, environment={variable: value})).startswith(wanted)


@pytest.mark.parametrize(
    ("tokens", "wanted"),
    [
        (("tensor_model_parallel_size=2",), {"tensor_model_parallel_size": "2"}),
        (("--tensor_model_parallel_size=2",), {"tensor_model_parallel_size": "2"}),
        (("--tensor_model_parallel_size", "2"), {"tensor_model_parallel_size": "2"}),
        (("--use_torch_fsdp2",), {"use_torch_fsdp2": "true"}),
        (("--use_torch_fsdp2", "lr=-1"), {"use_torch_fsdp2": "true", "lr": "-1"}),
        (("--lr", "-1", "a.b=c=d"), {"lr": "-1", "a.b": "c=d"}),
        (("recompute_layer_ids=[0, 3]", "save=null"), {"recompute_layer_ids": "[0, 3]", "save": "null"}),
        (("a=1", "a=2"), {"a": "2"}),
        (("--micro-batch-size", "2", "micro_batch_size=2"), {"micro_batch_size": "2"}),
        (("--sync-free-stage", "0"), {"turbo_sync_free_moe_stage": "0"}),
        (("--sync-free-stage", "1"), {"turbo_sync_free_moe_stage": "1", "use_turbo_deepep": "true"}),
        (("--enable-deepep", "--sync-free-stage=3"), {"turbo_sync_free_moe_stage": "3", "use_turbo_deepep": "true"}),
        (("--enable-zero-bubble",), {"enable_zero_bubble": "true", "patch_zero_bubble": "true"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_overrides_are_taken_in_every_spelling(tokens: tuple[str, ...], wanted: dict[str, str]) -> None:
    assert understood(*BOTH, *tokens).overrides == wanted
    assert understood("both", *tokens, "--config", SAMPLE).overrides == wanted


def test_options_are_not_abbreviated() -> None:
    assert understood(*BOTH, "--exp_name", "x").overrides == {"exp_name": "x"}


@pytest.mark.parametrize("tokens", [("--help",), ("-h",), *((command, "--help") for command in COMMANDS)], ids=str)
def test_help_answers_with_exit_0(capsys: pytest.CaptureFixture[str], tokens: tuple[str, ...]) -> None:
    ended = carried_out(capsys, *tokens)
    assert ended.code == 0
    assert ended.out.startswith("usage: projector ")
    assert ended.err == ""


def test_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    stated = re.search(r'^version = "(.+)"$', (Path(__file__).parents[2] / "pyproject.toml").read_text(), re.MULTILINE)
    assert stated is not None
    ended = carried_out(capsys, "--version")
    assert (ended.code, ended.out) == (0, f"projector {stated.group(1)}\n")
