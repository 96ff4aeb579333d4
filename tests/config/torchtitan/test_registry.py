"""Command lines: a TOML file by name, or an entry of the Python registry."""

import time
from pathlib import Path

import pytest

from projector.config import Source, detect, read, read_file
from projector.errors import ConfigurationError, ConfigurationTooLarge
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
    assert loaded.job.software.compiled_layers
    assert loaded.job.software.compiled_loss
    assert loaded.unmodelled == ()


def test_an_argument_without_a_section_is_reported_and_not_lost() -> None:
    loaded = read("./run_train.sh --module llama3 --config llama3_8b --seq-len 4096 --dump-folder=out\n", name="run")
    assert [note.what for note in loaded.unmodelled] == ["seq_len"]
    assert loaded.ignored == ("dump_folder",)


def test_words_that_are_no_argument_are_named() -> None:
    loaded = read("./run_train.sh --module llama3 --config=llama3_8b $EXTRA\n", name="run")
    assert "no arguments in '$EXTRA'" in [note.what for note in loaded.assumed]


ENTRY = "-m torchtitan.train --module llama3 --config llama3_8b"
CLUSTERS = {
    "batch directives": (
        f"#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --ntasks=4\n#SBATCH --gpus-per-task=8\nsrun python {ENTRY}\n",
        (4, 8),
    ),
    "the launcher before the directives": (
        f"#!/bin/bash\n#SBATCH --nodes=4\nsrun torchrun --nnodes 2 --nproc_per_node 4 {ENTRY}\n",
        (2, 4),
    ),
    "the command around": (
        f"#!/bin/bash\nsrun --nodes=3 bash -c 'torchrun --nproc-per-node=8 {ENTRY}'\n",
        (3, 8),
    ),
    "an elastic launch": (f"torchrun --nnodes=2:4 --nproc-per-node=gpu {ENTRY}\n", (2, None)),
    "a launcher and the degrees": (
        f"torchrun --nproc_per_node 4 {ENTRY} --parallelism.data_parallel_shard_degree 8\n",
        (2, 4),
    ),
}


@pytest.mark.parametrize(("text", "want"), CLUSTERS.values(), ids=CLUSTERS.keys())
def test_the_cluster_is_stated_by(text: str, want: tuple[int | None, int | None]) -> None:
    loaded = read(text, name="run.sh")
    assert (loaded.nodes, loaded.devices_per_node) == want
    assert not any("a host" in note.what for note in loaded.assumed)


def test_a_number_of_nodes_that_nobody_gives_says_so() -> None:
    loaded = read(f"#!/bin/bash\ntorchrun --nnodes ${{NODES}} --nproc_per_node 8 {ENTRY}\n", name="run.sh")
    assert (loaded.nodes, loaded.cluster_hint) == (None, "--nnodes ${NODES} (line 2) cannot be resolved")


def test_launches_that_would_be_different_jobs_are_refused() -> None:
    both = f"python {ENTRY} --training.seq_len 512\npython {ENTRY} --training.seq_len 1024\n"
    with pytest.raises(
        ConfigurationError, match=r"lines 1 and 2 start different jobs: training.seq_len is 512 and 1024"
    ):
        read(both, name="run.sh")
    same = f"python {ENTRY} --checkpoint.folder a\npython {ENTRY} --checkpoint.folder b\n"
    assert read(same, name="run.sh").job == read(f"python {ENTRY}\n", name="run.sh").job


def test_a_tool_of_the_framework_before_the_launch_is_no_launch() -> None:
    text = f"python -m torchtitan.tools.convert in out\npython {ENTRY}\n"
    assert read(text, name="run.sh").job == read(f"python {ENTRY}\n", name="run.sh").job


def test_what_nothing_decides_about_a_launch_is_said() -> None:
    text = f"#!/bin/bash\nif [ -f $DONE ]; then python {ENTRY} --training.seq_len ${{LENGTH:-512}}; fi\n"
    said = [note.what for note in read(text, name="run.sh").assumed]
    assert "the command in line 2 runs" in said
    assert "unset: LENGTH" in said


HOSTILE = {
    "a name of many parts": f"python {ENTRY} --a{'.a' * 1200}=1\n",
    "a switch of many parts": f"python {ENTRY} --a{'.a' * 1200}\n",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_name_of_too_many_parts_is_one_clear_line(text: str) -> None:
    with pytest.raises(ConfigurationTooLarge, match=r"^run.sh:1: an argument of more than 32 parts$"):
        read(text, name="run.sh")


def test_thousands_of_arguments_take_little_time() -> None:
    start = time.process_time()
    read(f"python {ENTRY} {' '.join(f'--job.a{number}=1' for number in range(10_000))}\n", name="run.sh")
    assert time.process_time() - start < 2


def test_a_variable_of_a_run_script_is_reflected() -> None:
    loaded = read(RUN_TRAIN, name="run", variables={"CONFIG": "llama3_70b", "NGPU": "4"})
    assert (loaded.job.model.name, loaded.devices_per_node) == ("llama3.1-70b", 4)


RUN_SCRIPTS = {
    "set for the command": ("MODULE=llama3 CONFIG=llama3_8b ./run_train.sh\n", None),
    "with a size": ("NGPU=4 CONFIG=llama3_8b bash torchtitan/run_train.sh\n", 4),
    "exported": ("#!/bin/bash\nexport MODULE=llama3\nexport CONFIG=llama3_8b NGPU=2\n./run_train.sh\n", 2),
    "by env": ("env CONFIG=llama3_8b NGPU=2 ./run_train.sh\n", 2),
    "around": ("CONFIG=llama3_8b bash -c 'NGPU=2 ./run_train.sh'\n", 2),
    "a dry run": ("NGPU=32 COMM_MODE=fake_backend CONFIG=llama3_8b ./run_train.sh\n", 8),
    "before its own arguments": ("CONFIG=llama3_70b ./run_train.sh --config llama3_8b\n", None),
}


@pytest.mark.parametrize(("text", "devices"), RUN_SCRIPTS.values(), ids=RUN_SCRIPTS.keys())
def test_the_run_script_takes_its_environment(text: str, devices: int | None) -> None:
    assert detect(text, name="run") == "torchtitan"
    loaded = read(text.replace("train.sh", "train.sh --training.seq_len 4096"), name="run")
    assert (loaded.job.model.name, loaded.job.batch.sequence_length) == ("llama3.1-8b", 4096)
    assert loaded.devices_per_node == devices
    assert loaded.nodes == (4 if "NGPU=32" in text else None)


@pytest.mark.parametrize("script", ["run_train.sh", "run_llama_train.sh"])
def test_the_run_script_takes_a_toml_file(tmp_path: Path, script: str) -> None:
    (tmp_path / "llama3_405b.toml").write_text(LLAMA_405B_2025)
    command = tmp_path / "run.sh"
    command.write_text(f'CONFIG_FILE="./llama3_405b.toml" NGPU=4 ./{script} --training.seq_len 4096\n')
    loaded = read_file(command)
    assert (loaded.job.model.name, loaded.job.batch.sequence_length) == ("llama3.1-405b", 4096)
    assert loaded.devices_per_node == 4


def test_what_nobody_gives_the_run_script_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"run:1: the value of --config \(\$\{WANTED\}\) is not known"):
        read("CONFIG=${WANTED} ./run_train.sh\n", name="run")
    loaded = read("CONFIG=llama3_8b NGPU=$(nvidia-smi -L) ./run_train.sh\n", name="run")
    assert loaded.devices_per_node is None
    assert "NGPU=$(nvidia-smi -L) (line 1) cannot be resolved" in loaded.cluster_hint


def test_a_run_script_of_another_framework_is_not_taken_for_torchtitans() -> None:
    text = "#!/bin/bash\nCONFIG=a bash run_train.sh --num-layers 2\n"
    assert detect(text, name="run") == "megatron"


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
