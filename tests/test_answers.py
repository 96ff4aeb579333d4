"""What the two halves of an answer say when one of them cannot be told."""

from typing import Any

import pytest

from projector.api import Question, project
from projector.errors import ConfigurationError, RateUnknown
from projector.projection import TIME, Projection, Verdict
from tests.config.builders import llama_text


def answer(device: str, *, memory: bool = True, compiled: bool = False, micro: int = 1, **overrides: str) -> Projection:
    """The 8B Llama on 8 GPUs; compilation is a switch whose effect is not modelled, and which lowers memory."""
    text = llama_text(
        micro_batch_size=micro,
        global_batch_size=8 * micro,
        seq_length=8192,
        torch_compile={"enable": compiled},
        **overrides,
    )
    return project(Question(text=text, name="exp.yaml", device=device, memory=memory))


def verdict(device: str, *, compiled: bool) -> Verdict:
    memory = answer(device, compiled=compiled, micro=4).memory
    assert memory is not None
    return memory.verdict


def test_memory_is_told_where_the_time_of_a_device_is_not_known() -> None:
    both = answer("MI250X", fp8="hybrid")
    assert both.memory is not None
    assert both.performance is None
    assert [note.where for note in both.unmodelled if note.what == TIME] == ["target device"]
    with pytest.raises(RateUnknown, match="MI250X has no matrix units for fp8; a format whose rate is known there"):
        answer("MI250X", memory=False, fp8="hybrid")


ASSUMED_RATES = {
    "measured on the GPU": ("MI355X", {}, set()),
    "two dies of CDNA 2": ("MI250X", {}, {"gemm_tflops.bf16", "attention_forward_tflops", "attention_backward_tflops"}),
    "scaled from MI300X": ("MI300A", {}, {"gemm_tflops.bf16", "attention_forward_tflops", "attention_backward_tflops"}),
    "of one short run": ("MI355X", {"fp4": "e2m1", "fp4_recipe": "mxfp4"}, {"gemm_tflops.mxfp4"}),
    "of the same units": ("B200", {"fp8": "hybrid", "fp8_recipe": "blockwise"}, {"gemm_tflops.fp8-block"}),
}


@pytest.mark.parametrize(("device", "precision", "wanted"), ASSUMED_RATES.values(), ids=ASSUMED_RATES)
def test_rates_that_no_run_of_the_gpu_checks_are_listed_as_assumed(
    device: str, precision: dict[str, Any], wanted: set[str]
) -> None:
    found = {each.what: each.why for each in answer(device, **precision).assumed if "tflops" in each.what}
    assert found.keys() == {f"{name} of {device}" for name in wanted}
    assert all(found.values())


WITHOUT_AND_WITH_WHAT_OVERSTATES = {
    "MI355X": (Verdict.FITS, Verdict.FITS),
    "H100": (Verdict.DOES_NOT_FIT, Verdict.UNKNOWN),
    # Weights, gradients and optimizer state alone are more than the GPU has.
    "A100-40GB": (Verdict.DOES_NOT_FIT, Verdict.DOES_NOT_FIT),
}


@pytest.mark.parametrize("device", WITHOUT_AND_WITH_WHAT_OVERSTATES)
def test_what_overstates_memory_leaves_open_whether_a_job_that_does_not_fit_does(device: str) -> None:
    wanted = WITHOUT_AND_WITH_WHAT_OVERSTATES[device]
    assert (verdict(device, compiled=False), verdict(device, compiled=True)) == wanted
    deciding = [note.what for note in answer(device, compiled=True, micro=4).unmodelled if note.decides]
    assert deciding == (["torch.compile (torch_compile.enable: True)"] if wanted[1] is Verdict.UNKNOWN else [])


WHOLE = {"enable_packed_sequences": True}
PACKED = {**WHOLE, "use_packed_attention": True}
"""Primus's keys: attention crosses samples unless the second is on (examples/megatron, llama3_8B-BF16-sft-packed)."""


def test_packed_samples_shorten_attention_where_their_length_is_stated_and_are_named_where_it_is_not() -> None:
    text = llama_text(micro_batch_size=1, global_batch_size=8, seq_length=8192, **PACKED)
    whole, short = (
        project(Question(text=text, name="exp.yaml", device="MI300X", memory=False, packed_length=length))
        for length in (None, 1024)
    )
    assert [note.where for note in whole.unmodelled] == ["packed_length"]
    assert not short.unmodelled
    assert whole.performance is not None
    assert short.performance is not None
    steps = [{step.name: step.seconds for step in each.waterfall} for each in (whole.performance, short.performance)]
    assert steps[1]["attention"] < 0.2 * steps[0]["attention"]
    assert steps[1]["matrix products"] == steps[0]["matrix products"]
    plain = project(Question(text=llama_text(micro_batch_size=1, global_batch_size=8, seq_length=8192, **WHOLE)))
    assert not plain.unmodelled


def test_packed_samples_are_no_longer_than_the_sequence() -> None:
    text = llama_text(micro_batch_size=1, global_batch_size=8, seq_length=8192)
    with pytest.raises(ConfigurationError, match="packed_length: 9000; a number of tokens from 1 to the sequence"):
        project(Question(text=text, name="exp.yaml", packed_length=9000))
