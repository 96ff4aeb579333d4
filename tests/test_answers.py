"""What the two halves of an answer say when one of them cannot be told."""

import pytest

from projector.api import Question, project
from projector.errors import RateUnknown
from projector.projection import TIME, Projection, Verdict
from tests.config.builders import llama_text


def answer(device: str, *, memory: bool = True, compiled: bool = False, micro: int = 1) -> Projection:
    """The 8B Llama on 8 GPUs; compilation is a switch whose effect is not modelled, and which lowers memory."""
    text = llama_text(
        micro_batch_size=micro, global_batch_size=8 * micro, seq_length=8192, torch_compile={"enable": compiled}
    )
    return project(Question(text=text, name="exp.yaml", device=device, memory=memory))


def verdict(device: str, *, compiled: bool) -> Verdict:
    memory = answer(device, compiled=compiled, micro=4).memory
    assert memory is not None
    return memory.verdict


def test_memory_is_told_where_the_time_of_a_device_is_not_known() -> None:
    both = answer("MI250X")
    assert both.memory is not None
    assert both.performance is None
    assert [note.where for note in both.unmodelled if note.what == TIME] == ["target device"]
    with pytest.raises(RateUnknown, match="MI250X needs its elementwise_bytes_per_second"):
        answer("MI250X", memory=False)


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
