"""Settings of torch's caching allocator: where they are read, which hold, and what is said of the others."""

from dataclasses import replace

import pytest

from projector.api import Question, project
from projector.config import LoadedConfiguration, Source, overrides_from_pairs, read
from projector.errors import ConfigurationError

ARGUMENTS = (
    "--num-layers 4 --hidden-size 1024 --num-attention-heads 8 --seq-length 1024 --max-position-embeddings 1024"
    " --micro-batch-size 1 --global-batch-size 8 --vocab-size 32000 --tokenizer-type NullTokenizer --bf16"
)
GROWS = "expandable_segments:True"
TRAIN = f"pretrain_gpt.py {ARGUMENTS}\n"
HUGGING_FACE = """{"model_type": "llama", "architectures": ["LlamaForCausalLM"],
 "hidden_size": 1024, "num_hidden_layers": 4,
 "num_attention_heads": 8, "intermediate_size": 4096, "vocab_size": 32000}"""
TITAN = "[job]\n[model]\nname = 'llama3'\nflavor = '8B'\n[training]\nseq_len = 8192\n"
STARTED = {
    "exported before": f"export PYTORCH_CUDA_ALLOC_CONF={GROWS}\ntorchrun {TRAIN}",
    "among others": f"export PYTORCH_CUDA_ALLOC_CONF='max_split_size_mb:64, {GROWS}'\ntorchrun {TRAIN}",
    "before the command": f"PYTORCH_ALLOC_CONF={GROWS} torchrun {TRAIN}",
    "by env": f"env PYTORCH_HIP_ALLOC_CONF={GROWS} torchrun {TRAIN}",
    "for a container": f"docker run -e PYTORCH_CUDA_ALLOC_CONF={GROWS} image torchrun {TRAIN}",
    "by mpirun": f"mpirun -np 8 -x PYTORCH_CUDA_ALLOC_CONF={GROWS} python {TRAIN}",
    "around bash": f"PYTORCH_CUDA_ALLOC_CONF={GROWS} bash -c 'torchrun {TRAIN.strip()}'\n",
}
EFFECTS = {
    "roundup_power2_divisions:[256:1,512:2,>:4]": True,
    "roundup_power2_divisions:8": True,
    "backend:cudaMallocAsync": True,
    "per_process_memory_fraction:0.5": True,
    "garbage_collection_threshold:0.8": False,
    "an_option_of_tomorrow:1": False,
}
"""Settings that are not modelled, and whether they decide."""


def started(script: str, **variables: str) -> LoadedConfiguration:
    return read(f"#!/bin/bash\n{script}", name="run.sh", variables=variables)


@pytest.mark.parametrize("script", STARTED.values(), ids=STARTED.keys())
def test_a_launch_script_says_that_segments_grow(script: str) -> None:
    loaded = started(script)
    assert loaded.job.software.expandable_segments
    (value,) = (value for key, value in loaded.values.items() if "ALLOC_CONF" in key)
    assert (value.source, value.file) == (Source.EXPERIMENT, "run.sh")


def test_a_script_wins_over_the_environment_in_which_it_runs() -> None:
    script = f"export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False\ntorchrun {TRAIN}"
    assert not started(script, PYTORCH_CUDA_ALLOC_CONF=GROWS).job.software.expandable_segments


@pytest.mark.parametrize("name", ["PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"])
@pytest.mark.parametrize(
    "text", [f"torchrun {TRAIN}", TITAN, HUGGING_FACE], ids=["megatron", "torchtitan", "huggingface"]
)
def test_variables_count_under_every_format(name: str, text: str) -> None:
    overrides = overrides_from_pairs(
        {"seq_length": "1024", "micro_batch_size": "1"}.items() if text == HUGGING_FACE else ()
    )
    loaded = read(text, name="job", variables={name: GROWS}, overrides=overrides)
    assert loaded.job.software.expandable_segments
    assert loaded.values[name].source is Source.VARIABLE
    assert not read(text, name="job", overrides=overrides).job.software.expandable_segments


def test_files_of_model_arguments_have_a_section_of_variables() -> None:
    text = f"ENV_VARS:\n  PYTORCH_CUDA_ALLOC_CONF: {GROWS}\n  SKIP: 1\nMODEL_ARGS:\n"
    flags = ARGUMENTS.removesuffix(" --bf16").split(" ")
    text += "".join(f"  {flag}: {value}\n" for flag, value in zip(flags[::2], flags[1::2], strict=True))
    loaded = read(text, name="model_config.yaml")
    assert loaded.job.software.expandable_segments
    assert "ENV_VARS.SKIP" in loaded.ignored
    assert "ENV_VARS.PYTORCH_CUDA_ALLOC_CONF" not in loaded.ignored


def test_a_script_beside_the_arguments_sets_variables_for_them() -> None:
    beside = {"runtime.conf": f"export PYTORCH_CUDA_ALLOC_CONF={GROWS}\n"}
    assert read(f"torchrun {TRAIN}", name="run", companions=beside).job.software.expandable_segments


def test_the_run_script_of_torchtitan_grows_segments() -> None:
    loaded = read("MODULE=llama3 CONFIG=llama3_8b NGPU=8 ./run_train.sh\n", name="run")
    assert loaded.job.software.expandable_segments
    command = "torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config llama3_8b\n"
    assert not read(command, name="run").job.software.expandable_segments
    assert read(f"PYTORCH_ALLOC_CONF={GROWS} {command}", name="run").job.software.expandable_segments


def test_blocks_may_be_kept_whole_from_a_size_on() -> None:
    script = f"export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:512\ntorchrun {TRAIN}"
    assert started(script).job.software.maximum_split_bytes == 512 << 20
    both = started(script.replace("mb:512", f"mb:512,{GROWS}"))
    assert both.job.software.maximum_split_bytes is None
    assert [note.what for note in both.unmodelled] == ["max_split_size_mb beside expandable_segments"]


@pytest.mark.parametrize(("setting", "decides"), EFFECTS.items(), ids=EFFECTS.keys())
def test_a_setting_that_is_not_modelled_is_named_with_what_it_does(setting: str, decides: bool) -> None:  # noqa: FBT001
    loaded = started(f"torchrun {TRAIN}", PYTORCH_ALLOC_CONF=f"{GROWS},{setting}")
    (note,) = loaded.unmodelled
    assert (note.what, note.where, note.decides) == (setting, "the variable PYTORCH_ALLOC_CONF", decides)
    assert loaded.job.software.expandable_segments


def test_settings_without_influence_are_not_mentioned() -> None:
    setting = "pinned_use_cuda_host_register:True,pinned_num_register_threads:8,backend:native"
    assert not started(f"torchrun {TRAIN}", PYTORCH_ALLOC_CONF=setting).unmodelled


def test_a_run_without_a_cache_needs_no_more_than_is_projected() -> None:
    (note,) = started(f"torchrun {TRAIN}", PYTORCH_NO_CUDA_MEMORY_CACHING="1").unmodelled
    assert (note.what, note.decides, note.overstates) == ("PYTORCH_NO_CUDA_MEMORY_CACHING", False, True)
    assert not started(f"torchrun {TRAIN}", PYTORCH_NO_CUDA_MEMORY_CACHING="0").unmodelled


def test_a_value_that_nothing_gives_is_named() -> None:
    (note,) = started(f"PYTORCH_ALLOC_CONF=$CHOSEN torchrun {TRAIN}").unmodelled
    assert "CHOSEN" in note.what
    assert not note.decides


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("expandable_segments:1", "expandable_segments is '1'; True or False"),
        ("expandable_segments", "expandable_segments is ''; True or False"),
        ("max_split_size_mb:19", "max_split_size_mb is '19'; a whole number of MiB, at least 20"),
        ("max_split_size_mb:-512", "max_split_size_mb is '-512'; a whole number of MiB, at least 20"),
    ],
)
def test_a_value_with_which_torch_does_not_start_is_an_error(setting: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        started(f"export PYTORCH_CUDA_ALLOC_CONF={setting}\ntorchrun {TRAIN}")
    assert str(caught.value) == f"run.sh: PYTORCH_CUDA_ALLOC_CONF: {message}"


def test_a_variable_of_endless_settings_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="the variable PYTORCH_ALLOC_CONF: 100000 characters; at most 1000"):
        started(f"torchrun {TRAIN}", PYTORCH_ALLOC_CONF="[" * 100_000)


def assumptions(device: str, *, grows: bool | None = None, **variables: str) -> list[str]:
    question = Question(
        text=f"torchrun {TRAIN}", device=device, performance=False, variables=variables, expandable_segments=grows
    )
    return [each.what for each in project(question).assumed if "alloc" in each.what]


def test_the_answer_says_what_is_assumed_of_the_allocator() -> None:
    assert assumptions("H100") == ["torch's default settings of its caching allocator"]
    assert assumptions("H100", PYTORCH_ALLOC_CONF=GROWS) == []
    assert assumptions("H100", grows=False) == []


def test_torch_that_does_not_grow_segments_of_a_vendor_is_named_unless_the_question_knows_better() -> None:
    assert assumptions("MI300X", PYTORCH_ALLOC_CONF=GROWS) == ["allocator segments that do not grow"]
    assert assumptions("MI300X", grows=True) == []


def test_the_own_format_states_settings_among_its_values() -> None:
    text = "projector: 1\nmodel: {catalog: llama3.1-8b}\nbatch: {micro: 1, micro_batches: 1, sequence_length: 1024}\n"
    assert not read(text, name="job", variables={"PYTORCH_ALLOC_CONF": GROWS}).job.software.expandable_segments
    question = Question(text=text, device="H100", performance=False)
    stated = replace(question, overrides={"software.expandable_segments": "true"})
    unknown = replace(stated, overrides={**stated.overrides, "parallelism.sharding": "parameters"})
    said = [
        [each.what for each in project(asked).assumed if "alloc" in each.what] for asked in (question, stated, unknown)
    ]
    # Megatron-LM's own FSDP is not replayed.
    assert said == [["torch's default settings of its caching allocator"], [], ["allocator slack as in published runs"]]
