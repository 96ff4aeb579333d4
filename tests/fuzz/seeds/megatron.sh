#!/bin/bash
#SBATCH --job-name=pretrain
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
set -euo pipefail
export CUDA_DEVICE_MAX_CONNECTIONS=1
NNODES=${SLURM_JOB_NUM_NODES:-4}
GPUS_PER_NODE=8
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
TP_SIZE=2; PP_SIZE="4" VPP_SIZE=2
SEQ_LEN=4_096
GBS=$((WORLD_SIZE / TP_SIZE / PP_SIZE * 16))
if [ "$TP_SIZE" -gt 1 ]; then
  SP="--sequence-parallel"
else
  SP=""
fi
DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes "$NNODES" # as Slurm gives them
    --master_addr $(hostname)
)
MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096 --ffn-hidden-size=14336
    --num-attention-heads 32
    --group-query-attention --num-query-groups 8
    --seq-length $SEQ_LEN
    --max-position-embeddings ${MAX_POSITIONS:=4096}
    --position-embedding-type rope
    --normalization 'RMSNorm' --swiglu
    --untie-embeddings-and-output-weights
    --disable-bias-linear
)
MODEL_ARGS+=( --vocab-size 128256 --tokenizer-type NullTokenizer )
for extra in --bf16 --use-distributed-optimizer; do
  EXTRA="${EXTRA:-} $extra"
done
CMD="pretrain_gpt.py ${MODEL_ARGS[@]} \
    --tensor-model-parallel-size ${TP_SIZE} \
    --pipeline-model-parallel-size ${PP_SIZE} \
    --num-layers-per-virtual-pipeline-stage $VPP_SIZE \
    --micro-batch-size 1 --global-batch-size $GBS $SP $EXTRA"
cat <<EOT > settings.txt
tensor $TP_SIZE
EOT
case "$PP_SIZE" in
  1) echo none ;;
  *) echo several ;;
esac
srun bash -c "torchrun ${DISTRIBUTED_ARGS[*]} $CMD" 2>&1 | tee log.txt
