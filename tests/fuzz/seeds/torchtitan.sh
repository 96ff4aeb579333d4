#!/bin/bash
#SBATCH --job-name=titan
#SBATCH --nodes=4
#SBATCH --ntasks=4
#SBATCH --gpus-per-task=8
NGPU=${NGPU:-"8"}
MODULE=${MODULE:-"deepseek_v3"}
CONFIG=${CONFIG:-"deepseek_v3_16b"}
EXTRA="--training.local-batch-size 4 --parallelism.pipeline_parallel_degree=2"
if [ "$NGPU" -ge 8 ]; then
  EXTRA="$EXTRA --parallelism.expert_parallel_degree 8"
fi
srun torchrun --nnodes $SLURM_NNODES --nproc_per_node ${NGPU} --rdzv_endpoint "$(hostname):29500" \
  -m torchtitan.train --module ${MODULE} --config ${CONFIG} $EXTRA \
  --activation_checkpoint.mode selective --activation_checkpoint.selective_ac_option op \
  --compile.enable --debug.no-deterministic --metrics.log_freq=10 "$@"
