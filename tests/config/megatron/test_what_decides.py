"""Arguments and programs that make another model than the plain one: named, and never counted in silence."""

import pytest

from projector.errors import NotAvailable
from tests.config.megatron.builders import BASE, arguments, load

OTHERS = {
    "arguments of a checkpoint": ("--use-checkpoint-args", "--load", "x"),
    "parallelism of a checkpoint": ("--use-mp-args-from-checkpoint-args",),
    "layers of one's own": ("--spec", "my.specs", "my_spec"),
    "layers of Mamba": ("--spec", "megatron.core.models.mamba.mamba_layer_specs", "mamba_stack_spec"),
    "a share of attention": ("--hybrid-attention-ratio", "0.1"),
    "a hybrid model": ("--is-hybrid-model",),
    "adapters": ("--lora-rank", "8"),
    "an encoder of images": ("--vision-model-type", "clip"),
    "gradients of PyTorch's DDP": ("--DDP-impl", "torch"),
    "a misspelt argument": ("--tensor-model-paralel-size", "2"),
    "part of an argument": ("--tensor-model-parallel", "2"),
    "a misspelt switch": ("--no-rope-fussion",),
    "a misspelt older argument": ("--num-moe-expert", "8"),
}


@pytest.mark.parametrize("words", OTHERS.values(), ids=OTHERS.keys())
def test_it_decides(words: tuple[str, ...]) -> None:
    assert not any(note.decides for note in arguments("--bf16").unmodelled)
    assert any(note.decides for note in arguments("--bf16", *words).unmodelled)


def test_a_misspelt_argument_names_the_one_that_was_meant() -> None:
    (note,) = arguments("--bf16", "--tensor-model-paralel-size", "2").unmodelled
    assert "did you mean tensor_model_parallel_size?" in note.effect
    assert not any(note.decides for note in arguments("--bf16", "--a-flag-of-a-fork").unmodelled)


PROGRAMS = {
    "tools/run_text_generation_server.py": "does not train",
    "tools/checkpoint/convert.py": "does not train",
    "pretrain_gpt_diffusion.py": "trains no decoder-only",
    "/opt/Megatron-LM/examples/multimodal/train.py": "trains no decoder-only",
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_another_program_is_refused_by_name(program: str) -> None:
    with pytest.raises(NotAvailable, match=PROGRAMS[program]):
        load(f"torchrun {program} {BASE}\n")


@pytest.mark.parametrize("program", ["/home/me/multimodal/pretrain_gpt.py", "/home/me/vision/train.py", "finetune.py"])
def test_a_folder_of_any_name_does_not_tell_the_model(program: str) -> None:
    assert load(f"torchrun {program} {BASE}\n").job == load(BASE).job
