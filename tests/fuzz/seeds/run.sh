#!/bin/bash
#SBATCH --nodes=8
#SBATCH --gpus-per-node=8
source runtime.conf
export TP=${TP:-2} PP=4
MODEL_ARGS="--sequence-parallel --overlap-grad-reduce"
torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES pretrain_gpt.py ${MODEL_ARGS} --use-distributed-optimizer
