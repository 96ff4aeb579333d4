"""Launch scripts and argument lists: which command counts, its arguments, and how many devices it says."""

import pytest

from projector import Question, project
from projector.config import detect
from projector.errors import ConfigurationError, NotAvailable
from projector.job import RecomputeGranularity
from tests.config.megatron.builders import ARGUMENTS, BASE, assumed, load, unmodelled

LINES = "\n".join(f"--{flag} {value}" for flag, value in ARGUMENTS.items())
CONTINUED = " \\\n    ".join(f"--{flag} {value}" for flag, value in ARGUMENTS.items())
ARRAY = "ARGS=(\n" + "\n".join(f"    --{flag} {value}  # a comment" for flag, value in ARGUMENTS.items()) + "\n)\n"
QUOTED = f'GPT_ARGS="\n    {CONTINUED}\n"\n'
SAME = {
    "one line": BASE,
    "one argument a line": f"# what we run\n{LINES}\n",
    "continued lines": CONTINUED,
    "flag=value": " ".join(f"--{flag}={value}" for flag, value in ARGUMENTS.items()),
    "python": f"python pretrain_gpt.py {BASE}\n",
    "torchrun": f"#!/bin/bash\ntorchrun --nproc_per_node 8 pretrain_gpt.py {BASE} > log 2>&1\n",
    "the launcher as a module": f"python -m torch.distributed.run --nproc-per-node=8 ./pretrain_gpt.py {BASE}",
    "an array": f"#!/bin/bash\n{ARRAY}torchrun --nproc_per_node 8 $HERE/pretrain_gpt.py ${{ARGS[@]}}\n",
    "a quoted list": f"#!/bin/bash\n{QUOTED}deepspeed --num_gpus 8 pretrain_gpt.py $GPT_ARGS\n",
    "a command in a variable": f'#!/bin/bash\nCMD="pretrain_gpt.py {BASE}"\necho $CMD\nsrun python $CMD\n',
    "eval": f'#!/bin/bash\nrun_cmd="torchrun --nproc_per_node 8 pretrain_gpt.py {BASE}"\neval $run_cmd\n',
    "bash -c": f"#!/bin/bash\nsrun -N 2 bash -c 'python pretrain_gpt.py {BASE}'\n",
    "a wrapper": f"bash train.sh {BASE}",
    "a list that another script uses": ARRAY,
    "the same launch twice": f"python pretrain_gpt.py {BASE} --save a\npython pretrain_gpt.py {BASE} --save b\n",
    "a launch of another program before": f"python tools/preprocess.py --input x\npython pretrain_gpt.py {BASE}\n",
}


@pytest.mark.parametrize("form", SAME)
def test_the_same_job_comes_from(form: str) -> None:
    assert detect(SAME[form], name="run.sh") == "megatron"
    assert load(SAME[form]).job == load(BASE).job


RUN = f"pretrain_gpt.py {BASE}\n"
CLUSTERS = {
    "torchrun": (f"torchrun --nnodes 4 --nproc_per_node 8 {RUN}", 4, 8),
    "with dashes and equals signs": (f"torchrun --nnodes=4 --nproc-per-node=4 {RUN}", 4, 4),
    "an elastic launch": (f"torchrun --nnodes=2:4 --nproc-per-node=gpu {RUN}", 2, None),
    "DeepSpeed": (f"deepspeed --num_nodes 2 --num_gpus 4 {RUN}", 2, 4),
    "MPI": (f"mpirun -np 32 -npernode 8 python {RUN}", 4, 8),
    "accelerate": (f"accelerate launch --num_machines 2 --num_processes 16 {RUN}", 2, 8),
    "tasks of srun": (f"#!/bin/bash\nsrun -N 4 -n 32 --gpus-per-task=1 python {RUN}", 4, 8),
    "processes alone": (f"#!/bin/bash\nmpirun -np 64 python {RUN}", 8, 8),
    "processes of part of a host": (f"#!/bin/bash\nmpirun -n 4 python {RUN}", 1, 4),
    "MPI's processes of a host": (f"#!/bin/bash\nmpirun -n 8 -N 4 python {RUN}", 2, 4),
    "horovodrun": (f"#!/bin/bash\nhorovodrun -np 16 python {RUN}", 2, 8),
    "tasks of the job": (
        f"#!/bin/bash\n#SBATCH --ntasks=32\n#SBATCH --gpus-per-node=8\nsrun python {RUN}",
        4,
        8,
    ),
    "the argument that counts processes": (f"#!/bin/bash\npython {RUN.rstrip()} --world-size 64\n", 8, 8),
    "the environment of plain Python": (f"#!/bin/bash\nexport WORLD_SIZE=64\npython {RUN}", 8, 8),
    "the environment of the command": (f"#!/bin/bash\nWORLD_SIZE=4 python {RUN}", 1, 4),
    "one task a node, by its count": (f"#!/bin/bash\nsrun -N 2 -n 2 torchrun --nproc_per_node 8 {RUN}", 2, 8),
    "DeepSpeed, whose nodes a variable counts": (f"#!/bin/bash\nWORLD_SIZE=2\ndeepspeed {RUN}", None, None),
    "batch directives": (f"#!/bin/bash\n#SBATCH --nodes=16\n#SBATCH --gpus-per-node=mi250:8\nsrun python {RUN}", 16, 8),
    "GPUs among other resources": (
        f"#!/bin/bash\n#SBATCH -N 2\n#SBATCH --gres=nvme:1,gpu:h100:8\nsrun python {RUN}",
        2,
        8,
    ),
    "GPUs of the whole job": (f"#!/bin/bash\n#SBATCH -N 2\n#SBATCH --gpus=8\nsrun python {RUN}", 2, 4),
    "directives with tasks": (f"#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\nsrun python {RUN}", 2, 4),
    "one task a node under torchrun": (
        f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\nsrun torchrun --nproc_per_node 8 {RUN}",
        2,
        8,
    ),
    "srun's own options": (f"#!/bin/bash\n#SBATCH --nodes=16\nsrun --nodes=4 --ntasks-per-node=8 python {RUN}", 4, 8),
    "Slurm's own variables": (
        f"#!/bin/bash\n#SBATCH --nodes=16\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 {RUN}",
        16,
        8,
    ),
    "arithmetic": (f"#!/bin/bash\nN=$((2*3))\ntorchrun --nnodes $N --nproc_per_node ${{GPUS:-8}} {RUN}", 6, 8),
    "nobody": (f"python {RUN}", None, None),
}


@pytest.mark.parametrize("launcher", CLUSTERS)
def test_the_cluster_is_stated_by(launcher: str) -> None:
    text, nodes, devices = CLUSTERS[launcher]
    loaded = load(text)
    assert (loaded.nodes, loaded.devices_per_node) == (nodes, devices)


def test_what_the_cluster_rests_on_is_said() -> None:
    assert "64 GPUs, 8 a host" in assumed(load(f"#!/bin/bash\nmpirun -np 64 python {RUN}"))
    assert "the fewest that --nnodes 2:4" in assumed(
        load(f"#!/bin/bash\ntorchrun --nnodes 2:4 --nproc_per_node 8 {RUN}")
    )
    odd = load(f"#!/bin/bash\nmpirun -np 12 python {RUN}")
    assert (odd.nodes, odd.cluster_hint) == (None, "--np 12 (line 2) cannot be resolved")


OPEN = f"#!/bin/bash\nNNODES=${{WORLD_SIZE}}\ntorchrun --nnodes $NNODES --nproc_per_node 8 {RUN}"


def test_a_number_of_nodes_that_nobody_gives_is_asked_for() -> None:
    answer = project(Question(text=OPEN, name="run.sh", device="H100", performance=False))
    asked = [note.why for note in answer.assumed if "node(s)" in note.what]
    assert len(asked) == 1
    assert "WORLD_SIZE" in asked[0]
    assert "--target-nodes" in asked[0]


def test_a_number_of_nodes_comes_with_its_variable_or_the_question() -> None:
    assert load(OPEN, variables={"WORLD_SIZE": "16"}).nodes == 16
    stated = {"global_batch_size": "16"}
    answer = project(Question(text=OPEN, name="run.sh", device="H100", nodes=2, overrides=stated, performance=False))
    assert answer.target.nodes == 2
    assert not any("WORLD_SIZE" in note.why for note in answer.assumed)


def test_devices_of_a_node_that_nobody_gives_are_said_to_be_assumed() -> None:
    text = f"#!/bin/bash\ntorchrun --nnodes 1 --nproc_per_node $GPUS {RUN}"
    answer = project(Question(text=text, name="run.sh", device="H100", performance=False))
    assert [note.why for note in answer.assumed if note.what == "8 GPUs per node"] == [
        "--nproc-per-node $GPUS (line 2) cannot be resolved"
    ]


def test_names_do_not_decide_what_flags_mean() -> None:
    text = (
        "#!/bin/bash\nVPP_SIZE=2\nWORLD_SIZE=4\nTP_SIZE=2\n"
        f"torchrun --nnodes $WORLD_SIZE --nproc_per_node 8 {RUN.rstrip()} --num-layers 80"
        " --tensor-model-parallel-size 8"
        " --pipeline-model-parallel-size 8 --num-layers-per-virtual-pipeline-stage $VPP_SIZE\n"
    )
    loaded = load(text)
    assert loaded.nodes == 4
    assert (loaded.job.parallelism.tensor, loaded.job.parallelism.virtual_pipeline) == (8, 5)


def test_an_unresolved_value_that_decides_says_how_to_give_it() -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(f"#!/bin/bash\ntorchrun {RUN.rstrip()} --hidden-size $HIDDEN\n")
    for part in ("run.sh:2: --hidden-size", "HIDDEN", "set HIDDEN", "hidden_size=VALUE"):
        assert part in str(raised.value)
    text = f"#!/bin/bash\ntorchrun {RUN.rstrip()} --hidden-size $HIDDEN\n"
    assert load(text, variables={"HIDDEN": "2048"}).job.model.hidden == 2048


def test_paths_and_tokens_that_nothing_resolves_do_not_matter() -> None:
    loaded = load(f"#!/bin/bash\ntorchrun {RUN.rstrip()} --data-path 1 $DATA/a --save ${{OUT:?}} --wandb-project $P\n")
    assert loaded.job == load(BASE).job
    assert {"data_path", "save", "wandb_project"} <= set(loaded.ignored)


def test_arguments_that_nothing_resolves_are_named() -> None:
    loaded = load(f"#!/bin/bash\ntorchrun {RUN.rstrip()} $EXTRA_ARGS --bf16 $MORE\n")
    assert "no arguments in $EXTRA_ARGS" in assumed(loaded)
    assert "no arguments in $MORE" in assumed(loaded)
    assert loaded.job.precision.weight_bytes == 2
    assert not unmodelled(loaded)


CHOICE = """#!/bin/bash
if [ "$SIZE" = small ]; then HIDDEN=512; else HIDDEN=2048; fi
"""


def test_a_variable_from_outside_decides_a_branch() -> None:
    text = f"{CHOICE}torchrun {RUN.rstrip()} --hidden-size $HIDDEN\n"
    assert load(text, variables={"SIZE": "small"}).job.model.hidden == 512
    assert load(text, variables={"SIZE": "large"}).job.model.hidden == 2048


REFUSED = {
    "two different jobs": (
        f"#!/bin/bash\npython {RUN}python {RUN.rstrip()} --hidden-size 2048\n",
        ConfigurationError,
        ("lines 2 and 3", "hidden_size is 1024 and 2048", "keep one"),
    ),
    "no launch": (
        "#!/bin/bash\necho hello\n",
        ConfigurationError,
        ("nothing here starts Megatron-LM", "pretrain_gpt.py"),
    ),
    "another model": (f"python pretrain_bert.py {BASE}", NotAvailable, ("pretrain_bert.py", "decoder")),
    "a launch without its layers": (
        f"#!/bin/bash\npython pretrain_gpt.py {BASE.replace('--num-layers 8', '')}\n",
        ConfigurationError,
        ("num_layers", "is missing"),
    ),
    "no text": (b"#!/bin/bash\n\xff\xfe --num-layers 3", ConfigurationError, ("not UTF-8",)),
}


@pytest.mark.parametrize("why", REFUSED)
def test_it_refuses(why: str) -> None:
    text, kind, parts = REFUSED[why]
    with pytest.raises(kind) as raised:
        load(text)  # type: ignore[arg-type]
    assert all(part in str(raised.value) for part in parts)
    assert "\n" not in str(raised.value)


def test_a_mamba_program_has_layers_that_are_not_modelled() -> None:
    layers = load(f"python pretrain_mamba.py {BASE}").job.model.layers
    assert all(type(layer.mixer).__name__ == "UnmodelledMixer" for layer in layers)


def test_selective_recomputation_is_read_up_to_the_next_flag() -> None:
    recompute = load(
        f"torchrun {RUN.rstrip()} --recompute-granularity selective --recompute-modules mla_up_proj mlp --bf16"
    ).job.recompute
    assert recompute.granularity is RecomputeGranularity.SELECTIVE
    assert recompute.modules == ("mla_up_proj", "mlp")


def test_an_override_that_means_a_variable_of_the_script_is_told_how_to_set_it() -> None:
    script = f"#!/bin/bash\nTP=${{TP:-1}}\npython pretrain_gpt.py {BASE} --tensor-model-parallel-size $TP\n"
    with pytest.raises(ConfigurationError, match=r"TP is a variable of the script.*TP=\.\.\. projector"):
        load(script, "TP=2")
    assert load(script, variables={"TP": "2"}).job.parallelism.tensor == 2
