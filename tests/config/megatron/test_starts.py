"""Runs that Megatron-LM would not start, and programs that are not its own."""

import pytest

from projector.errors import ConfigurationError, NotAvailable
from projector.job import RecomputeGranularity, Sharding
from tests.config.megatron.builders import BASE, arguments, assumed, load, unmodelled

OVERLAPPED = f"{BASE} --num-experts 8 --overlap-moe-expert-parallel-comm"
NOT_STARTED = {
    "fewer positions than the sequence has": (
        BASE.replace("--max-position-embeddings 2048", "--max-position-embeddings 1024"),
        r"max_position_embeddings: 1024 is too few; at least the sequence length, 2048",
    ),
    "learned positions of unknown number": (
        BASE.replace("--max-position-embeddings 2048", ""),
        r"max_position_embeddings: is missing; the rows of the learned position table, at least 2048",
    ),
    "the precision-aware optimizer alone on each rank": (
        f"{BASE} --bf16 --use-precision-aware-optimizer",
        r"with the distributed optimizer alone",
    ),
    "parameters gathered beside the computation without sharding": (
        f"{BASE} --overlap-param-gather",
        r"overlap_param_gather: parameters are gathered",
    ),
    "FSDP2 with the distributed optimizer": (
        f"{BASE} --use-torch-fsdp2 --use-distributed-optimizer",
        r"not supported with the distributed optimizer",
    ),
    "FSDP2 with a pipeline": (
        f"{BASE} --use-torch-fsdp2 --pipeline-model-parallel-size 2",
        r"not supported with pipeline",
    ),
    "a method of selective recomputation": (
        f"{BASE} --recompute-granularity selective --recompute-method uniform",
        r"recompute_method: selective recomputation takes no method",
    ),
    "activations offloaded beside recomputation": (
        f"{BASE} --cpu-offloading --recompute-granularity selective",
        r"not offloaded beside recomputation",
    ),
    "recomputation beside separate weight gradients": (
        f"{BASE} --pipeline-model-parallel-size 2 --enable-zero-bubble --recompute-granularity selective",
        r"recompute_granularity: recomputation does not go with a schedule",
    ),
    "expert communication overlapped without expert parallelism": (
        OVERLAPPED,
        r"overlap_moe_expert_parallel_comm: .* without expert parallelism",
    ),
    "the same in a pipeline without model chunks": (
        f"{OVERLAPPED} --expert-model-parallel-size 8 --pipeline-model-parallel-size 2",
        r"overlap_moe_expert_parallel_comm: .* without several model chunks",
    ),
    "the same beside the shared expert's": (
        f"{OVERLAPPED} --expert-model-parallel-size 8 --moe-shared-expert-overlap",
        r"overlap_moe_expert_parallel_comm: .* beside the shared expert",
    ),
    "experts without a place": (
        f"{BASE} --num-experts 8 --moe-expert-capacity-factor 0",
        r"moe_expert_capacity_factor: a capacity of 0",
    ),
    "groups of no layers": (
        f"{BASE} --recompute-granularity full --recompute-method uniform --recompute-num-layers 0",
        r"recompute_num_layers: uniform recomputation in groups of 0 layers",
    ),
    "experts under tensor parallelism alone": (
        f"{BASE} --num-experts 8 --tensor-model-parallel-size 2",
        r"sequence_parallel: mixture-of-experts layers do not train",
    ),
}


@pytest.mark.parametrize(("text", "complaint"), NOT_STARTED.values(), ids=NOT_STARTED.keys())
def test_what_megatron_asserts_against_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        load(text)


@pytest.mark.parametrize("version", ["0.16", "0.17.0"])
def test_muon_with_a_divided_state_does_not_start_before_megatron_core_divides_it(version: str) -> None:
    text = f"{BASE} --optimizer muon --use-distributed-optimizer --bf16"
    with pytest.raises(
        ConfigurationError, match=r"Muon does not divide its state over ranks before megatron-core 0.18"
    ):
        load(text, f"megatron_core_version={version}")


@pytest.mark.parametrize(
    "words", ["muon --use-distributed-optimizer", "adaptive_muon --use-distributed-optimizer", "dist_muon"]
)
def test_ranks_divide_the_matrices_of_muon_whole(words: str) -> None:
    """megatron/training/arguments.py of megatron-core 0.18.0: `use_layer_wise_distributed_optimizer`."""
    loaded = load(f"{BASE} --bf16 --optimizer {words}")
    assert loaded.job.parallelism.sharding is Sharding.OPTIMIZER
    assert loaded.job.optimizer.whole_tensors
    assert ("by whole matrices" in assumed(loaded)) is not words.startswith("dist")


def test_muon_alone_divides_nothing() -> None:
    job = load(f"{BASE} --bf16 --optimizer muon").job
    assert job.parallelism.sharding is Sharding.NONE
    assert not job.optimizer.whole_tensors


def test_a_schedule_of_a_fork_is_said_to_be_one() -> None:
    loaded = load(f"{BASE} --pipeline-model-parallel-size 2 --enable-zero-bubble")
    assert "the zero-bubble fork of Megatron-LM" in assumed(loaded)


def test_a_longer_sequence_may_be_asked_for_beside_the_file() -> None:
    assert load(BASE, "seq_length=4096").job.batch.sequence_length == 4096


@pytest.mark.parametrize("flag", ["--activations-checkpoint-method uniform", "--checkpoint-activations"])
def test_older_words_for_recomputation_mean_whole_layers(flag: str) -> None:
    recompute = load(f"{BASE} {flag}").job.recompute
    assert (recompute.granularity, recompute.layers) == (RecomputeGranularity.FULL, 1)


PROGRAMS = {
    "pretrain_gpt.py": None,
    "train.py": None,
    "my_model.py": False,
    "train_ppo.py": True,
    "dpo_train.py": True,
    "distill.py": True,
}


@pytest.mark.parametrize(("program", "decides"), PROGRAMS.items(), ids=PROGRAMS.keys())
def test_a_program_that_may_do_more_than_pretrain_is_named(program: str, decides: bool | None) -> None:  # noqa: FBT001
    notes = unmodelled(load(f"python {program} {BASE}\n"))
    assert notes.get(f"the program {program}") == decides


@pytest.mark.parametrize("program", ["eval.py", "examples/export/ptq.py"])
def test_a_program_that_does_not_train_is_refused(program: str) -> None:
    with pytest.raises(NotAvailable, match="does not train"):
        load(f"python {program} {BASE}\n")


def test_the_vocabulary_of_gpt_2_is_assumed_wherever_its_two_files_lie() -> None:
    text = BASE.replace("--vocab-size 32000", "--vocab-file $3 --merge-file $4")
    loaded = load(f"#!/bin/bash\npython pretrain_gpt.py {text}\n")
    assert loaded.job.model.vocabulary == 50257
    assert "GPT2BPETokenizer" in assumed(loaded)


def test_a_stage_of_zero_without_deepspeed_is_said_to_do_nothing() -> None:
    assert "zero_stage 3 has no effect" in assumed(arguments("--zero-stage", "3"))


@pytest.mark.parametrize("flag", ["--seq-len 8192", "--mbs 4", "--gradient-accumulation-steps 8", "--use-fp8"])
def test_an_unknown_flag_that_speaks_of_memory_decides(flag: str) -> None:
    name = flag.split(maxsplit=1)[0].removeprefix("--").replace("-", "_")
    assert unmodelled(load(f"{BASE} {flag}"))[name]
