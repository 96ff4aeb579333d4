#!/bin/bash
# Excerpt: LumiOpen/Megatron-LM-lumi e0ce1d99 launch_71B_1024N.sh

#SBATCH --nodes=1024
#SBATCH --cpus-per-task=7
#SBATCH --ntasks-per-node=8
#SBATCH --mem=480G
#SBATCH --partition=standard-g
#SBATCH --gpus-per-node=mi250:8
#SBATCH --output=logs/%j.out

if [ -z $SLURM_JOB_ID ]; then
    mkdir -p logs
    sbatch "$0"
    exit
fi

wd=$(realpath workdir)
timestamp=$(date +"%Y-%m-%d_%H-%M-%S")

if [[ -v SLURM_RESTART_COUNT ]]
then
    failed_node=$(grep 'Node failure' logs/latest.err | awk '{print $NF}')
    if [[ -z ${failed_node:+x} ]]
    then
        echo "RUN RESTARTED but no node failure logged"
    else
        failed_node="${failed_node//$'\n'/ }"
    fi
fi

export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export WORLD_SIZE=$SLURM_NTASKS

CONTAINER="/scratch/containers/flashattention"
SING_BIND="/scratch"

LEARNING_RATE=1.5e-4
MIN_LR=1.5e-5

set -euo pipefail

CHECKPOINT_PATH=/scratch/europa-checkpoints/1024N-lr-fixed
TENSORBOARD_PATH="tensorboard/v3-train-lr-fixed.$SLURM_JOB_ID"

source europa_data.sh

MERGES=/scratch/europa-tokenizer/merges.txt
VOCAB=/scratch/europa-tokenizer/vocab.json

NLAYERS=80
NHIDDEN=8192
NHEADS=64
FFN_HIDDEN_SIZE=28672
SEQ_LEN=5120

MICRO_BATCH_SIZE=1
GLOBAL_BATCH_SIZE=1024

PP_SIZE=8
TP_SIZE=8
VPP_SIZE=2

TOTAL_TOKENS=3_000_000_000_000
TOTAL_TOKENS=${TOTAL_TOKENS//_}    # digits alone, for arithmetic
TRAIN_SAMPLES=$((TOTAL_TOKENS/SEQ_LEN))
LR_DECAY_SAMPLES=$TRAIN_SAMPLES
LR_WARMUP_SAMPLES=$((2000*GLOBAL_BATCH_SIZE))
NUM_QUERY_GROUPS=8

OPTIMIZER_ARGS=" \
    --optimizer adam \
    --adam-beta1 0.9 \
    --lr $LEARNING_RATE \
    --min-lr $MIN_LR \
    --lr-decay-samples $LR_DECAY_SAMPLES \
    --lr-warmup-samples $LR_WARMUP_SAMPLES \
    --clip-grad 1.0 \
    --use-distributed-optimizer"

INIT_METHOD_STD=0.007

GPT_ARGS=" \
    --num-layers $NLAYERS \
    --hidden-size $NHIDDEN \
    --num-attention-heads $NHEADS \
    --ffn-hidden-size $FFN_HIDDEN_SIZE \
    --seq-length $SEQ_LEN \
    --max-position-embeddings $SEQ_LEN \
    --micro-batch-size $MICRO_BATCH_SIZE \
    --global-batch-size $GLOBAL_BATCH_SIZE \
    --train-samples $TRAIN_SAMPLES \
    --tokenizer-type GPT2BPETokenizer \
    --vocab-file $VOCAB \
    --merge-file $MERGES \
    --bf16 \
    --disable-bias-linear \
    --init-method-std $INIT_METHOD_STD \
    --make-vocab-size-divisible-by 128 \
    --no-gradient-accumulation-fusion \
    --normalization RMSNorm \
    --seed 42 \
    --untie-embeddings-and-output-weights \
    --use-flash-attn \
    --swiglu \
    --attention-dropout 0 \
    --hidden-dropout 0 \
    --no-query-key-layer-scaling \
    --attention-softmax-in-fp32 \
    --accumulate-allreduce-grads-in-fp32 \
    --use-rotary-position-embeddings \
    --no-bias-dropout-fusion \
    --no-masked-softmax-fusion \
    --group-query-attention \
    --num-query-groups $NUM_QUERY_GROUPS \
    --recompute-activations \
    $OPTIMIZER_ARGS \
    "

OUTPUT_ARGS=" \
    --save $CHECKPOINT_PATH \
    --load $CHECKPOINT_PATH \
    --tensorboard-dir $TENSORBOARD_PATH \
    --log-timers-to-tensorboard \
    "
PARALLEL_ARGS="\
    --tensor-model-parallel-size $TP_SIZE \
    --pipeline-model-parallel-size $PP_SIZE \
    --sequence-parallel \
"

if (( VPP_SIZE > 1)); then
    PARALLEL_ARGS="$PARALLEL_ARGS \
    --num-layers-per-virtual-pipeline-stage $VPP_SIZE"
fi

CMD=" \
    pretrain_gpt.py \
    $GPT_ARGS \
    $PARALLEL_ARGS \
    $OUTPUT_ARGS \
    --train-data-path $TRAIN_DATA \
    --valid-data-path $VALIDATION_DATA \
    --dataloader-type single \
    --num-workers 0 \
    "

echo $CMD

c="fe"
BIND_MASK_1="0x${c}000000000000,0x${c}00000000000000,0x${c}0000,0x${c}000000"
BIND_MASK="$BIND_MASK_1"

if [ ! -d "$wd"/cray-deps ] ; then
  rm -rf "$wd"/cray-deps
  mkdir "$wd"/cray-deps
fi

srun \
    --label \
    --cpu-bind=mask_cpu:$BIND_MASK \
    singularity exec \
    -B "$SING_BIND" \
    -B "$PWD" \
    "$CONTAINER" \
    ./launch.sh \
    $CMD

echo "END $SLURM_JOBID: $(date)"
