"""Cases about TorchTitan's configuration files."""

import pytest

from projector import Question, project
from projector.config import read
from projector.errors import ConfigurationError
from tests.config.torchtitan import files
from tests.config.torchtitan.test_primus import experiment


def test_cfg_07_a_file_of_a_fork_is_read_with_its_own_keys_named() -> None:
    answer = project(Question(text=files.KIMI_K2_OF_A_FORK, name="run.toml", device="H100", nodes=16))
    assert (answer.layout.expert, answer.layout.context, answer.layout.data, answer.layout.shard) == (
        128,
        16,
        8,
        "parameters",
    )
    unknown = {note.what for note in answer.unmodelled if "not a key that the project knows" in note.effect}
    assert {"training.aggressive_memory_mode", "optimizer.state_dtype"} <= unknown
    assert answer.memory is not None
    parts = {part.name for part in answer.memory.worst.components}
    assert parts.isdisjoint({"weights", "gradients", "optimizer state"})


def test_cfg_07_parameters_and_moments_are_two_bytes_on_the_host() -> None:
    job = read(files.KIMI_K2_OF_A_FORK, name="run.toml").job
    assert (job.precision.weight_bytes, job.precision.optimizer_bytes) == (2, 4)
    assert (job.optimizer.offload_fraction, job.optimizer.offload_shards) == (1.0, True)


@pytest.mark.parametrize(
    "text", [files.DEEPSEEK_16B_JUNE_2025, files.DEEPSEEK_16B_AUGUST_2025, files.DEEPSEEK_16B_LATE_2025]
)
def test_cfg_09_one_file_at_three_times_gives_one_answer(text: str) -> None:
    answer = project(Question(text=text, name="deepseek_v3_16b.toml", device="H100"))
    assert answer.parameters.total == 15_706_484_224  # deepseek-ai/DeepSeek-V2-Lite, and TorchTitan's own log
    assert (answer.micro_batch, answer.sequence_length, answer.layout.shard) == (8, 4096, "parameters")
    assert answer.memory is not None
    assert answer.memory.verdict.value != "Unknown"


def test_cfg_09_files_of_2024_and_primus_files_are_read() -> None:
    assert read(files.LLAMA_405B_2024, name="run.toml").job.model.name == "llama3.1-405b"
    assert read(experiment(), name="exp.yaml").job.model.name == "llama3.1-8b"


def test_cfg_09_a_command_of_the_registry_asks_for_a_resolved_configuration() -> None:
    with pytest.raises(ConfigurationError, match=r"a resolved configuration: run it once with --debug.save"):
        read("torchrun -m torchtitan.train --module mine --config mine_8b\n", name="run.sh")
