"""The ways in which published launch scripts put their arguments together.

The shapes are those of LumiOpen/Megatron-LM-lumi db3b069b (launch_71B_1024N.sh), ROCm/Megatron-LM 02b8aa76
(examples/llama/train_llama3.sh), alibaba/Pai-Megatron-Patch 15349408 (examples/deepseek_v3/run_mcore_deepseek.sh) and
yanring/Megatron-MoE-ModelZoo 38ce2ed2 (sbatch_benchmarking.sh).
"""

import pytest

from projector.config.shell import Command, Script, read_script
from projector.config.shell.directives import directives, gpus_per_node, slurm_variables

SLURM = r"""#!/bin/bash
#SBATCH --job-name=train-70B
#SBATCH --nodes=1024
#SBATCH --ntasks-per-node=8   # one for each die
#SBATCH --gpus-per-node=mi250:8
#SBATCH --exclusive=user
##SBATCH --nodes=2

if [ -z $SLURM_JOB_ID ]; then
    sbatch "$0"
    exit
fi
if [[ -v SLURM_RESTART_COUNT ]]
then
	failed=$(grep 'Node failure' logs/latest.err | awk '{print $NF}')
	if [[ -z ${failed:+x} ]]
	then
		echo "RESTARTED"
	else
		failed="${failed//$'\n'/ }"
	fi
fi
export WORLD_SIZE=$SLURM_NTASKS
#SBATCH --nodes=4
set -euo pipefail
source data.sh
SEQ_LEN=5120
VPP_SIZE=2
TOTAL_TOKENS=3_000_000_000_000
TOTAL_TOKENS=${TOTAL_TOKENS//_}    # for arithmetic
TRAIN_SAMPLES=$((TOTAL_TOKENS/SEQ_LEN))
GPT_ARGS=" \
    --seq-length $SEQ_LEN \
    --train-samples $TRAIN_SAMPLES \
    --recompute-activations \
    "
PARALLEL_ARGS="\
    --tensor-model-parallel-size 8 \
"
if (( VPP_SIZE > 1)); then
    PARALLEL_ARGS="$PARALLEL_ARGS \
    --num-layers-per-virtual-pipeline-stage $VPP_SIZE"
fi
CMD=" \
    pretrain_gpt.py \
    $GPT_ARGS \
    $PARALLEL_ARGS \
    --train-data-path $TRAIN_DATA \
    "
echo $CMD
if [ ! -d "$wd"/deps ] ; then
  cp /usr/lib64/lib* $wd/deps
fi
srun \
    --label \
    singularity exec -B "$PWD" \
    ./launch.sh \
    $CMD
"""

TEXTS_AND_EVAL = r"""#!/bin/bash
for ARGUMENT in "$@"
do
   KEY=$(echo $ARGUMENT | cut -f1 -d=)
   VALUE="${ARGUMENT:${#KEY}+1}"
   export "$KEY"="$VALUE"
done
GPUS_PER_NODE=`python3 -c "import torch; print(torch.cuda.device_count())"`
NNODES="${NNODES:-1}"
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
MODEL_SIZE="${MODEL_SIZE:-70}"
TP="${TP:-8}"
TE_FP8="${TE_FP8:-0}"
DATA_DIR="${DATA_DIR:-/root/data}"
TOKENIZER="${TOKENIZER:-"$DATA_DIR/tokenizer"}"
if ! [ -d "$TOKENIZER" ]; then
  mkdir -p $TOKENIZER
  wget --header="Authorization: Bearer $TOKEN" -O $TOKENIZER/a.json https://example.com/a.json
fi
if [[ $MODEL_SIZE -eq 8 ]]; then #small
        NUM_LAYERS=32 # e.g. 40
        NUM_HEADS=32
elif [[ $MODEL_SIZE -eq 70 ]]; then
        NUM_LAYERS=80
        NUM_HEADS=64
else
        echo "Model size not supported."
        exit 1
fi
NUM_GROUPS=$(( ${NUM_HEADS} / $(( ${NUM_HEADS} / 8 )) ))
GPT_ARGS="
    --tensor-model-parallel-size ${TP} \
    --num-layers $NUM_LAYERS \
    --num-query-groups $NUM_GROUPS \
"
if [ "$TE_FP8" -eq 1 ]; then
    GPT_ARGS="$GPT_ARGS --fp8-format=hybrid"
fi
DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes $NNODES \
"
run_cmd="
    torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \
        $GPT_ARGS \
        --moe-layer-freq '([0]*3+[1]*58)' \
"
if [ "${TEE_OUTPUT:-1}" -eq 0 ]; then
    run_cmd="$run_cmd >& $TRAIN_LOG"
else
    run_cmd="$run_cmd |& tee $TRAIN_LOG"
fi
eval $run_cmd
echo 'import numpy as np
print("done")' > mean.py
PERFORMANCE=$(python3 mean.py tmp.txt 2>/dev/null | awk '{printf "%.6f", $0}')
"""

ARRAYS = r"""#!/usr/bin/env bash
: "${MODEL:=small}"
declare -A LAYERS=([small]=20 [large]=61)
NODES=${WORLD_SIZE}
readonly GPUS=8
MODEL_ARGS=(
    --num-layers ${LAYERS[$MODEL]}     # first the shape
    # --hidden-size 4096
    --hidden-size 2048
    --moe-layer-freq [0,1,1]
    --rotary-scaling "a b"
)
if [[ "${FP8:-true}" == true ]]; then
    MODEL_ARGS+=(--fp8-recipe blockwise)
fi
launch() {
    local nodes=$1; shift
    torchrun --nproc_per_node=$GPUS --nnodes="$nodes" "$@"
}
launch $NODES pretrain.py "${MODEL_ARGS[@]}" ${EXTRA[@]:+--extra} --micro-batch-size $((16 / GPUS))
"""

SUBMITTED = r"""#!/bin/bash
export TRAINING_PARAMS="--pipeline-model-parallel-size ${PP} --global-batch-size 8192"
if [[ ! "${TRAINING_PARAMS}" =~ "--pipeline-model-parallel-layout" ]]; then
    TRAINING_PARAMS="${TRAINING_PARAMS} --num-virtual-stages-per-pipeline-rank ${VPP}"
fi
mkdir -p logs || { echo "no logs"; exit 1; }
export TRAINING_CMD="python pretrain_gpt.py ${TRAINING_PARAMS}"
sbatch <<EOF
#!/bin/bash
#SBATCH --nodes=${NNODES}
#SBATCH --ntasks-per-node=8

srun \
    --container-image=${IMAGE} \
    bash -c \\\${TRAINING_CMD} 2>&1 | tee logs/\${SLURM_JOB_ID}.log
srun bash -c "torchrun --nnodes \$SLURM_NNODES --node_rank \\\$SLURM_NODEID ${TRAINING_PARAMS}"
EOF
"""

POSITIONAL = r"""
MODEL_SIZE=$1
TP=${2:-1}
AC=${11}
if [ $MODEL_SIZE = A37B ]; then
    options="--num-layers 61"
elif [ $MODEL_SIZE = A2B ]; then
    options="--num-layers 27"
fi
if [ -z ${MP_VP} ]; then vp=""; else vp=" --num-layers-per-virtual-pipeline-stage ${MP_VP}"; fi
overlap=$(( ($TP > 1) ? 1 : 0 ))
eval "torchrun x.py --tensor-model-parallel-size ${TP} ${options} ${vp} --overlap ${overlap} --ac ${AC}"
"""


def read(text: str, **variables: str) -> Script:
    return read_script(text, name="run.sh", variables=variables)


def launch(script: Script, name: str) -> Command:
    """The last command with a name."""
    return [command for command in script.commands if command.words[0].text == name][-1]


def texts(command: Command) -> list[str]:
    return [word.text for word in command.words]


def test_slurm_script() -> None:
    script = read(SLURM)
    command = launch(script, "srun")
    assert texts(command) == [
        *("srun", "--label", "singularity", "exec", "-B", "$PWD", "./launch.sh", "pretrain_gpt.py"),
        *("--seq-length", "5120", "--train-samples", "585937500", "--recompute-activations"),
        *("--tensor-model-parallel-size", "8", "--num-layers-per-virtual-pipeline-stage", "2"),
        *("--train-data-path", "$TRAIN_DATA"),
    ]
    assert command.undecided == ()
    assert [word.unresolved for word in command.words if word.unresolved] == [("PWD",), ("TRAIN_DATA",)]
    assert script.assignments["WORLD_SIZE"][0].text == "8192"
    assert script.directives == {
        "job-name": "train-70B",
        "nodes": "1024",
        "ntasks-per-node": "8",
        "gpus-per-node": "mi250:8",
        "exclusive": "user",
    }


def test_texts_and_eval() -> None:
    script = read(TEXTS_AND_EVAL, TP="4", NNODES="2")
    command = launch(script, "torchrun")
    count = '`python3 -c "import torch; print(torch.cuda.device_count())"`'
    assert texts(command) == [
        *(
            "torchrun",
            "--nproc_per_node",
            count,
            "--nnodes",
            "2",
            "pretrain_gpt.py",
            "--tensor-model-parallel-size",
            "4",
        ),
        *("--num-layers", "80", "--num-query-groups", "8", "--moe-layer-freq", "([0]*3+[1]*58)"),
    ]
    assert command.undecided == ()
    assert command.within is not None
    assert command.within.words[0].text == "eval"
    assert {name for word in command.words for name in word.variables} == {"TP", "NNODES"}
    assert {"MODEL_SIZE", "TE_FP8", "@"} <= set(script.taken_as_unset)
    assert texts(launch(read(TEXTS_AND_EVAL, MODEL_SIZE="8", TE_FP8="1"), "torchrun"))[8:] == [
        *("--num-layers", "32", "--num-query-groups", "8", "--fp8-format=hybrid", "--moe-layer-freq", "([0]*3+[1]*58)"),
    ]
    assert read(TEXTS_AND_EVAL, MODEL_SIZE="9").ends_at == 28


def test_arrays_and_functions() -> None:
    assert texts(launch(read(ARRAYS), "torchrun")) == [
        *("torchrun", "--nproc_per_node=8", "--nnodes=${WORLD_SIZE}", "pretrain.py", "--num-layers", "20"),
        *(
            "--hidden-size",
            "2048",
            "--moe-layer-freq",
            "[0,1,1]",
            "--rotary-scaling",
            "a b",
            "--fp8-recipe",
            "blockwise",
        ),
        *("--micro-batch-size", "2"),
    ]
    assert "61" in texts(launch(read(ARRAYS, MODEL="large"), "torchrun"))


def test_script_submitted_from_a_script() -> None:
    script = read(SUBMITTED, NNODES="128", PP="8", VPP="4")
    assert script.directives == {"nodes": "128", "ntasks-per-node": "8"}
    arguments = [
        *("--pipeline-model-parallel-size", "8", "--global-batch-size", "8192"),
        *("--num-virtual-stages-per-pipeline-rank", "4"),
    ]
    assert texts(launch(script, "torchrun")) == [
        *("torchrun", "--nnodes", "128", "--node_rank", "$SLURM_NODEID", *arguments),
    ]
    python = launch(script, "python")
    assert texts(python) == ["python", "pretrain_gpt.py", *arguments]
    assert python.within is not None
    assert texts(python.within)[:2] == ["srun", "--container-image=${IMAGE}"]
    assert python.undecided == ()


def test_positional_parameters() -> None:
    command = launch(read(POSITIONAL), "torchrun")
    assert texts(command) == [
        *("torchrun", "x.py", "--tensor-model-parallel-size", "1", "${options}", "--overlap", "0", "--ac", "${11}"),
    ]
    given = {str(number): value for number, value in enumerate(["A37B", "8", *"345678901"], start=1)}
    assert texts(launch(read(POSITIONAL, **given), "torchrun")) == [
        *("torchrun", "x.py", "--tensor-model-parallel-size", "8", "--num-layers", "61", "--overlap", "1", "--ac", "1"),
    ]


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("#SBATCH --nodes=4", {"nodes": "4"}),
        ("#SBATCH --nodes 4", {"nodes": "4"}),
        ("#SBATCH -N 4", {"nodes": "4"}),
        ("#SBATCH -N4 -n 32", {"nodes": "4", "ntasks": "32"}),
        ("#SBATCH\t--gpus-per-node=8 --exclusive -J x", {"gpus-per-node": "8", "exclusive": "", "job-name": "x"}),
        ('#SBATCH --comment="a b" # why', {"comment": "a b"}),
        ("#SBATCH --nodes=4\n#SBATCH -N 8", {"nodes": "8"}),
        ("\n# note\n#SBATCH -N 8", {"nodes": "8"}),
        ("# SBATCH -N 8\n##SBATCH -N 9\n#SBATCHX -N 1", {}),
        ("true\n#SBATCH -N 8", {}),
        ('#SBATCH --comment="open', {"comment": '"open'}),
    ],
)
def test_directives(line: str, want: dict[str, str]) -> None:
    assert directives(f"#!/bin/bash\n{line}\n") == want


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({"gpus-per-node": "8"}, 8),
        ({"gpus-per-node": "mi250:8"}, 8),
        ({"gres": "gpu:8"}, 8),
        ({"gres": "gpu:a100:4(S:0-1)"}, 4),
        ({"gres": "nvme:1,gpu:h100:8"}, 8),
        ({"gpus-per-task": "8", "ntasks": "4", "nodes": "4"}, 8),
        ({"gpus-per-task": "2", "ntasks-per-node": "4"}, 8),
        ({"gpus-per-task": "8", "ntasks": "4"}, None),
        ({"gpus": "a100:32", "nodes": "4"}, 8),
        ({"gpus": "32"}, None),
        ({"gres": "nvme:1"}, None),
        ({"gpus-per-node": "$N"}, None),
        ({}, None),
    ],
)
def test_gpus_of_a_node(options: dict[str, str], want: int | None) -> None:
    assert gpus_per_node(options) == want


def test_slurm_variables_that_the_directives_decide() -> None:
    decided = slurm_variables({"nodes": "4", "ntasks-per-node": "8"})
    assert (decided["SLURM_NNODES"], decided["SLURM_JOB_NUM_NODES"], decided["SLURM_NTASKS"]) == ("4", "4", "32")
    assert slurm_variables({"nodes": "4-8", "ntasks-per-node": "8"}) == {"SLURM_NTASKS_PER_NODE": "8"}


def test_variables_from_outside_win_over_directives() -> None:
    text = "#SBATCH -N 4\nshow $SLURM_NNODES ${SLURM_NODEID:-0}"
    assert texts(launch(read(text), "show")) == ["show", "4", "${SLURM_NODEID:-0}"]
    assert texts(launch(read(text, SLURM_NNODES="2"), "show"))[1] == "2"
    assert texts(launch(read("show ${SLURM_NNODES:-1}"), "show"))[1] == "1"


def test_commands_know_their_line_and_environment() -> None:
    script = read("A=1\n\nCUDA_DEVICE_MAX_CONNECTIONS=1 B=$A \\\n  torchrun x\nbash <<E\n\necho $A\nE\n")
    assert [command.line for command in script.commands] == [3, 5, 7]
    assert {name: word.text for name, word in script.commands[0].environment.items()} == {
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        "B": "1",
    }
    assert "B" not in script.assignments


def test_line_ends_of_another_system() -> None:
    assert texts(read("A=1\r\necho $A \\\r\n  b\r\n").commands[0]) == ["echo", "1", "b"]
