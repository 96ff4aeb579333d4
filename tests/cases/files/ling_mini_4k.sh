#!/bin/bash
# Excerpt: inclusionAI/Ling-V2 af8837e6 examples/pretrain/run_pretrain_4k.sh
set -ex

JOB_DIR="pretrain_4k"
DATA_PATH="processed_data_text_document"
MEGATRON_PATH="Megatron-LM-core_v0.13.0"

mkdir -p ${JOB_DIR}
CHECKPOINT_PATH=${JOB_DIR}

if [[ $RANK -eq 0 ]]; then
    cp -r ${0} ${JOB_DIR}
fi

GPUS_PER_NODE=$(nvidia-smi -L | wc -l)
WORLD_SIZE=${WORLD_SIZE:-1}
NODE_RANK=${RANK:-0}
MASTER_ADDR=${MASTER_ADDR:-127.0.0.1}
RANDOM_PORT=$[$RANDOM + 20000]
MASTER_PORT=${MASTER_PORT:-$RANDOM_PORT}
GPU_NUM=$((${GPUS_PER_NODE}*${WORLD_SIZE}))
LAUNCHER=" \
    torchrun \
    --nproc_per_node ${GPUS_PER_NODE} \
    --nnodes ${WORLD_SIZE} \
    --node_rank ${NODE_RANK} \
    --master_addr ${MASTER_ADDR} \
    --master_port ${MASTER_PORT} \
    "

LOG_PATH="${JOB_DIR}/log_${NODE_RANK}.txt"

DEVICE_MODEL=$(nvidia-smi -i 0 -q | grep "Product Name" | awk -F: '{ print $2 }')
if [[ $DEVICE_MODEL == NVIDIA* ]]; then
    DEVICE_MODEL=${DEVICE_MODEL#"NVIDIA"}
fi

MOE_ARGS=(
    --moe-enable-deepep
    --expert-model-parallel-size 8
    --expert-tensor-parallel-size 1
    --moe-grouped-gemm
    --moe-token-dispatcher-type flex
    --moe-router-dtype fp32
    --num-experts 256
    --moe-ffn-hidden-size 512
    --moe-shared-expert-intermediate-size 512
    --moe-router-score-function sigmoid
    --moe-router-topk 8
    --moe-router-enable-expert-bias
    --moe-router-num-groups 8
    --moe-router-group-topk 4
    --moe-layer-freq [0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]
    --bias-zero-mean-update
)

MPT_ARGS=(
    --mtp-num-layers 1
    --mtp-loss-scaling-factor 0.1
)

GPT_MODEL_ARGS=(
    --num-layers 20
    --hidden-size 2048
    --ffn-hidden-size 5120
    --num-attention-heads 16
    --num-query-groups 4
    --group-query-attention
    --qk-layernorm
    --use-flash-attn
    --max-position-embeddings 4096
    --vocab-size 157184
    --make-vocab-size-divisible-by 128
    --position-embedding-type "rope"
    --rotary-percent 0.5
    --swiglu
    --untie-embeddings-and-output-weights
    --normalization "RMSNorm"
    --norm-epsilon "1e-06"
    --disable-bias-linear
    --transformer-impl "transformer_engine"
    --attention-dropout 0
    --hidden-dropout 0
)

TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 128
    --seq-length 4096
    --train-iters 2000

    --bf16
    --fp8-param-gather
    --fp8-recipe "blockwise"
    --fp8-format "e4m3"

    --optimizer "adamw-bnb-8bit"
    --lr "3.0e-5"
    --seed 42
)

MODEL_PARALLEL_ARGS=(
    --pipeline-model-parallel-size 1
    --tensor-model-parallel-size 1
    --sequence-parallel
    --use-distributed-optimizer
    --recompute-granularity selective
    --recompute-modules moe

    --overlap-param-gather
    --overlap-grad-reduce
)

DATA_ARGS=(
    --data-path ${DATA_PATH}
    --tokenizer-type "BailingTokenizer"
    --tokenizer-model `dirname $(readlink -f "${BASH_SOURCE[0]}")`/../../resource/tokenizer/config_pretrain
    --split 999,1,0
    --no-create-attention-mask-in-dataloader
)

EVAL_AND_LOGGING_ARGS=(
    --save $CHECKPOINT_PATH
    --log-interval 1
)

KERNEL_ARGS=(
    --attention-backend auto
    --no-masked-softmax-fusion
    --attention-softmax-in-fp32
    --cross-entropy-loss-fusion
)

CMD="${LAUNCHER} ${MEGATRON_PATH}/pretrain_gpt.py \
    ${MOE_ARGS[@]} \
    ${GPT_MODEL_ARGS[@]} \
    ${TRAINING_ARGS[@]} \
    ${MODEL_PARALLEL_ARGS[@]} \
    ${DATA_ARGS[@]} \
    ${EVAL_AND_LOGGING_ARGS[@]} \
    ${KERNEL_ARGS[@]} \
    ${MPT_ARGS[@]} \
    ${PROFILING_ARGS[@]} \
"

echo ${CMD}
PYTHONPATH=${MEGATRON_PATH}:$PYTHONPATH ${CMD} 2>&1 | tee ${LOG_PATH}
