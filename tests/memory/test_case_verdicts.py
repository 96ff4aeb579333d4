"""The verdicts of all memory cases whose run is known to have worked or to have gone out of memory, counted together.

A wrong `Fits` costs a cluster, a wrong `DoesNotFit` a job that would have run, `AtRisk` or `Unknown` the answer that
somebody came for. Cases are asked as `cases.yaml` writes them, or as the run of which they tell was configured.
"""

from collections.abc import Callable
from functools import cache

import pytest

from projector.projection import MemoryProjection, Verdict
from tests.cases import test_fit as fit
from tests.cases import test_measured_memory as measured
from tests.cases.asking import experiment, file, halves, memory_of, recipe
from tests.cases.asking import measured as row
from tests.cases.test_primus_projection import MIXTRAL, PUBLISHED_COMMANDS
from tests.config.primus_tree import ROOT

Asked = Callable[[], MemoryProjection]


def _run(name: str) -> Asked:
    return lambda: halves(*row(name))[0]


def _file(path: str, device: str, nodes: int | None, overrides: dict[str, int] | None = None) -> Asked:
    return lambda: memory_of(file(path, device=device, nodes=nodes, overrides=overrides))


def _b200(run: tuple[int, int, int]) -> Asked:
    micro, sequence, expert = run
    return lambda: fit.b200(micro=micro, sequence=sequence, expert=expert)


def _llama_70b(*, again: bool) -> Asked:
    asked = {**measured.LLAMA_70B, **(measured.WHOLE_LAYERS if again else {})}
    return lambda: memory_of(experiment(asked, model="llama2_70B.yaml", device="MI300X"))


def _mixtral(name: str) -> Asked:
    nodes, batch = PUBLISHED_COMMANDS[name]
    flags = {"micro_batch_size": 1, "num_virtual_stages_per_pipeline_rank": 2, "recompute_num_layers": 1, **batch}
    return lambda: memory_of(recipe(MIXTRAL, device="MI355X", nodes=nodes, overrides=flags))


def _gpt_oss(kernel: str) -> Asked:
    asked = {**fit.GPT_OSS, "attention_backend": kernel}
    return lambda: memory_of(experiment(asked, model="gpt_oss_20B.yaml", device="B200"))


def _deepseek(nodes: int) -> Asked:
    asked = {
        "micro_batch_size": 1,
        "global_batch_size": 64,
        "seq_length": 4096,
        "expert_model_parallel_size": 32,
        **measured.WHOLE_LAYERS,
    }
    return lambda: memory_of(experiment(asked, model="deepseek_v3.yaml", device="A100-80GB", nodes=nodes))


RAN: dict[str, Asked] = {
    **{f"MEM-01 {device}": _file(measured.GPT_7B, device, None) for device in ("H100", "A100-80GB", "GB200")},
    **{f"MEM-03 {device}": _file(measured.GPT_15B, device, 16, measured.PIECES) for device in ("H100", "A100-80GB")},
    **{f"MEM-04 {device}": _file(measured.MIXTRAL, device, 8) for device in ("H100", "A100-80GB")},
    "MEM-07 unfused": _file(measured.UNFUSED, "H100", None, measured.GPT2),
    **{f"MEM-09 {name}": _run(f"{each[0]}_mbc4") for name, each in measured.LAYOUTS.items()},
    **{f"MEM-11 {name}": _run(f"simumax-b200-llama3_70b_l12_{each[0]}_mbc4") for name, each in measured.LONG.items()},
    **{
        f"MEM-13 {name}": _run(f"titan-8b-fsdp{name}")
        for name in ("8-eager", "8-compile", "8-compile+float8", "128-eager", "128-compile", "128-compile+float8")
    },
    "MEM-15 full recomputation": _llama_70b(again=True),
    "MEM-17 more pipeline": lambda: measured.bridge(4, 8, 5),
    "MEM-17 more tensor": lambda: measured.bridge(8, 4, 5),
    "MEM-17 mlp recomputed": lambda: measured.bridge(4, 4, 5, again=("mlp",)),
    **{f"FIT-03 {name}": _b200(run) for name, (run, verdict) in fit.RUNS.items() if verdict is Verdict.FITS},
    "FIT-08 four nodes": lambda: fit.qwen(4),
    "FIT-12 flash": _gpt_oss("flash"),
    "FIT-15 bf16 with graphs": lambda: fit.b300(enable_cuda_graph=True),
}
"""Cases whose run worked."""
if ROOT.is_dir():
    RAN |= {f"PRJ-04 {name}": _mixtral(name) for name in PUBLISHED_COMMANDS}

OUT_OF_MEMORY: dict[str, Asked] = {
    "FIT-01 as traced": fit.mi350x,
    **{f"FIT-03 {name}": _b200(run) for name, (run, verdict) in fit.RUNS.items() if verdict is Verdict.DOES_NOT_FIT},
    "FIT-08 one node": lambda: fit.qwen(1),
    "FIT-12 unfused": _gpt_oss("unfused"),
    "FIT-14 four nodes": _deepseek(4),
    "FIT-14 eight nodes": _deepseek(8),
    "MEM-15 no recomputation": _llama_70b(again=False),
    "MEM-17 baseline, by fragmentation": lambda: measured.bridge(4, 4, 5),
}
"""Cases whose run went out of memory, or cannot have worked."""


@cache
def verdicts() -> dict[str, tuple[bool, MemoryProjection]]:
    """Whether each case's run worked, and the answer."""
    asked = [(True, RAN), (False, OUT_OF_MEMORY)]
    return {name: (ran, ask()) for ran, cases in asked for name, ask in cases.items()}


def _those(ran: bool, *given: Verdict) -> dict[str, str]:  # noqa: FBT001 - a pair that reads as a sentence
    return {
        name: f"{memory.worst.device_bytes / memory.device_capacity_bytes:.0%} expected"
        for name, (worked, memory) in verdicts().items()
        if worked is ran and memory.verdict in given
    }


def test_no_job_that_went_out_of_memory_is_said_to_fit() -> None:
    assert _those(False, Verdict.FITS) == {}


def test_hardly_any_job_that_ran_is_said_not_to_fit() -> None:
    wrong = _those(True, Verdict.DOES_NOT_FIT)
    assert len(wrong) <= 0.05 * len(verdicts()), wrong


def test_most_jobs_get_a_verdict() -> None:
    open_ = {
        **_those(True, Verdict.AT_RISK, Verdict.UNKNOWN),
        **_those(False, Verdict.AT_RISK, Verdict.UNKNOWN),
    }
    assert len(open_) <= 0.20 * len(verdicts()), open_


@pytest.mark.parametrize("name", [*RAN, *OUT_OF_MEMORY])
def test_the_interval_holds_what_is_expected(name: str) -> None:
    worst = verdicts()[name][1].worst
    assert worst.device_bytes_lower <= worst.device_bytes <= worst.device_bytes_upper
