# Excerpt: yanring/Megatron-MoE-ModelZoo e8650517 best_practice/deepseek-v3/run_deepseek_v3_h100.sh
export CLUSTER=${CLUSTER:-}
export MEGATRON_PATH=${MEGATRON_PATH:-}
export MODEL=${MODEL:-DeepSeek-V3}
export MBS=${MBS:-1}
export SEQ_LEN=${SEQ_LEN:-4096}
export MOE_GROUPED_GEMM=${MOE_GROUPED_GEMM:-true}
export PRETRAIN=${PRETRAIN:-0}

A2A_OVERLAP=1 PP=8 VPP=4 TP=2 EP=64 NNODES=128 GBS=8192 PR=fp8 bash sbatch_benchmarking.sh \
    --recompute-granularity selective \
    --recompute-modules mla_up_proj mlp \
    --mtp-num-layers 1 --mtp-loss-scaling-factor 0.1 \
    --pipeline-model-parallel-layout "Et|(tt|)*30mL"
