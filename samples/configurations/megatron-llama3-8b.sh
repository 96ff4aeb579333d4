#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
# Llama 3 8B with Megatron-LM, as people launch it under Slurm; `projector` reads it and executes nothing.
set -euo pipefail

NODES=${SLURM_JOB_NUM_NODES:-4}
GPUS_PER_NODE=8
TP_SIZE=${TP_SIZE:-2}
SEQ_LEN=8192
GLOBAL_BATCH=$((NODES * GPUS_PER_NODE * 4))

DISTRIBUTED_ARGS=(
    --nproc_per_node "$GPUS_PER_NODE"
    --nnodes "$NODES"
    --rdzv_endpoint "$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n1):29500"
)
MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length $SEQ_LEN
    --max-position-embeddings $SEQ_LEN
    --position-embedding-type rope
    --normalization RMSNorm
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --tokenizer-type HuggingFaceTokenizer
    --tokenizer-model meta-llama/Meta-Llama-3-8B
)
TRAINING_ARGS=(
    --micro-batch-size 2
    --global-batch-size $GLOBAL_BATCH
    --bf16
    --tensor-model-parallel-size $TP_SIZE
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
    --lr 3.0e-4
    --train-iters 500000
)
if [ "$TP_SIZE" -gt 1 ]; then
    TRAINING_ARGS+=(--sequence-parallel)
fi

srun torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \
    "${MODEL_ARGS[@]}" \
    "${TRAINING_ARGS[@]}" \
    --data-path "$DATA_PATH" \
    --save /checkpoints/llama3-8b
