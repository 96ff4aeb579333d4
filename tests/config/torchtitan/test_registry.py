"""Command lines: a TOML file by name, or an entry of the Python registry."""

from pathlib import Path

import pytest

from projector.config import Source, detect, read, read_file
from projector.errors import ConfigurationError
from projector.job import RecomputeGranularity
from tests.config.torchtitan.files import LLAMA_405B_2025

RUN_TRAIN = """#!/usr/bin/bash
# the form of pytorch/torchtitan run_train.sh
set -ex
NGPU=${NGPU:-"8"}
export LOG_RANK=${LOG_RANK:-0}
MODULE=${MODULE:-"llama3"}
CONFIG=${CONFIG:-"llama3_8b"}
PYTORCH_ALLOC_CONF="expandable_segments:True" \\
torchrun --nproc_per_node=${NGPU} --rdzv_backend c10d --rdzv_endpoint="localhost:0" \\
  --local-ranks-filter ${LOG_RANK} --role rank --tee 3 \\
  -m torchtitan.train --module ${MODULE} --config ${CONFIG} "$@"
"""
RUN_TOML = """#!/usr/bin/bash
set -ex
NGPU=${NGPU:-"4"}
CONFIG_FILE=${CONFIG_FILE:-"./llama3_405b.toml"}
TRAIN_FILE=${TRAIN_FILE:-"torchtitan.train"}
torchrun --nproc_per_node=${NGPU} -m ${TRAIN_FILE} --job.config_file ${CONFIG_FILE} --training.seq_len 4096 "$@"
"""
COMMANDS = {
    "flags alone": "--module llama3 --config llama3_8b\n",
    "torchrun": "torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 --config llama3_8b\n",
    "a run script with defaults": RUN_TRAIN,
}


@pytest.mark.parametrize("text", COMMANDS.values(), ids=COMMANDS.keys())
def test_an_entry_that_is_known_is_read_with_its_values_assumed(text: str) -> None:
    assert detect(text, name="run") == "torchtitan"
    loaded = read(text, name="run")
    job = loaded.job
    assert (job.model.name, job.batch.micro, job.batch.sequence_length) == ("llama3.1-8b", 1, 8192)
    # From 2026 on selective checkpointing is by operation.
    assert job.recompute.granularity is RecomputeGranularity.OPERATIONS
    assert loaded.assumed[0].what == "the values of llama3_8b in TorchTitan's registry"
    assert "config.json" in loaded.assumed[0].why
    assert loaded.values["training.seq_len"].source is Source.CATALOG


def test_arguments_of_the_command_lie_on_top_of_the_entry() -> None:
    arguments = (
        "--training.local-batch-size 4 --parallelism.tensor_parallel_degree=2 --training.global_batch_size -1"
        " --compile.enable --debug.no-deterministic"
    )
    loaded = read(
        f"torchrun --nnodes 2 --nproc_per_node 4 -m torchtitan.train --module llama3 --config llama3_8b {arguments}\n",
        name="run",
    )
    assert (loaded.job.batch.micro, loaded.job.parallelism.tensor) == (4, 2)
    assert (loaded.nodes, loaded.devices_per_node) == (2, 4)
    assert loaded.values["training.local_batch_size"].source is Source.EXPERIMENT
    assert loaded.values["debug.deterministic"].value is False
    assert [note.what for note in loaded.unmodelled] == ["torch.compile of model and loss"]


def test_a_variable_of_a_run_script_is_reflected() -> None:
    loaded = read(RUN_TRAIN, name="run", variables={"CONFIG": "llama3_70b", "NGPU": "4"})
    assert (loaded.job.model.name, loaded.devices_per_node) == ("llama3.1-70b", 4)


@pytest.mark.parametrize(
    "text",
    [
        "./run_train.sh --module llama3 --config llama3_mine\n",
        "./run_train.sh --module my_models.llama9 --config llama3_8b\n",
        "torchrun -m torchtitan.train\n",
    ],
)
def test_an_entry_that_nobody_knows_is_one_line_that_says_what_to_export(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(text, name="run")
    assert "a resolved configuration: run it once with --debug.save_config_file=config.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_script_reads_the_toml_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "llama3_405b.toml").write_text(LLAMA_405B_2025)
    script = tmp_path / "run.sh"
    script.write_text(RUN_TOML)
    loaded = read_file(script)
    assert (loaded.job.batch.sequence_length, loaded.job.parallelism.tensor) == (4096, 8)
    assert loaded.devices_per_node == 4
    assert loaded.values["training.batch_size"].file == "llama3_405b.toml"


def test_a_toml_file_outside_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.toml").write_text(LLAMA_405B_2025)
    inner = tmp_path / "inner"
    inner.mkdir()
    script = inner / "run.sh"
    script.write_text(RUN_TOML.replace("./llama3_405b.toml", "../secret.toml"))
    with pytest.raises(ConfigurationError, match="leads outside"):
        read_file(script)
    with pytest.raises(ConfigurationError, match="give that file instead of the command"):
        read(RUN_TOML, name="run")


def test_a_value_that_nothing_resolves_is_named() -> None:
    text = "./run_train.sh --module llama3 --config llama3_8b --training.seq_len ${SEQUENCE}\n"
    with pytest.raises(ConfigurationError, match=r"run:1: the value of --training.seq_len \(\$\{SEQUENCE\}\)"):
        read(text, name="run")
    assert read(text, name="run", variables={"SEQUENCE": "512"}).job.batch.sequence_length == 512
