"""TorchTitan files: excerpts of published ones, with the keys that decide, and small ones made up of values."""

import json
from typing import Any

from projector.config import LoadedConfiguration, parse_overrides, read

DEEPSEEK_16B_JUNE_2025 = """
# pytorch/torchtitan 881f0ca4 torchtitan/models/deepseek_v3/train_configs/deepseek_v3_16b.toml
[job]
dump_folder = "./outputs"
print_args = false

[profiling]
enable_profiling = false

[metrics]
log_freq = 10

[model]
name = "deepseek_v3"
flavor = "16B"
tokenizer_path = "./assets/tokenizer/DeepSeek-V3"
# converters = ["float8"]

[optimizer]
name = "AdamW"
lr = 2.2e-4

[lr_scheduler]
min_lr_factor = 0.1

[training]
local_batch_size = 8
seq_len = 4096
steps = 1000
compile = false
dataset = "c4"

[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
fsdp_reshard_after_forward = "default" # default / never / always
tensor_parallel_degree = 1
enable_async_tensor_parallel = false
expert_parallel_degree = 1
pipeline_parallel_degree = 1
pipeline_parallel_schedule = "Interleaved1F1B"

[checkpoint]
enable_checkpoint = false

[activation_checkpoint]
mode = "full"  # ["none", "selective", "full"]

[float8]
enable_fsdp_float8_all_gather = false
filter_fqns = ["output", "router.gate"]
moe_fqns = ["experts"]
"""
DEEPSEEK_16B_AUGUST_2025 = DEEPSEEK_16B_JUNE_2025.replace(
    'tokenizer_path = "./assets/tokenizer/DeepSeek-V3"', 'tokenizer_path = "./assets/hf/deepseek-moe-16b-base/"'
).replace(
    'pipeline_parallel_schedule = "Interleaved1F1B"',
    'pipeline_parallel_schedule = "Interleaved1F1B"\nexpert_tensor_parallel_degree = 1',
)
"""pytorch/torchtitan 00f785af, the same file."""
DEEPSEEK_16B_LATE_2025 = (
    DEEPSEEK_16B_AUGUST_2025.replace("tokenizer_path", "hf_assets_path")
    .replace("compile = false\n", "")
    .replace("print_args", "print_config")
    .replace("enable_checkpoint", "enable")
    .replace("[float8]\nenable_fsdp", "[compile]\nenable = false\n\n[quantize.linear.float8]\nenable_fsdp")
    .replace('moe_fqns = ["experts"]', '[quantize.grouped_mm.float8]\nfqns = ["experts"]')
)
"""The same file in the words of late 2025: `hf_assets_path`, `[compile]`, `[quantize.*]`, `checkpoint.enable`."""
LLAMA_405B_2024 = """
# pytorch/torchtitan 057f64d5 train_configs/llama3_405b.toml
[model]
name = "llama3"
flavor = "405B"
norm_type = "rmsnorm"
tokenizer_path = "./torchtitan/datasets/tokenizer/original/tokenizer.model"

[optimizer]
name = "AdamW"
lr = 0.8e-4 # WIP right now.

[training]
batch_size = 1
seq_len = 8192
warmup_steps = 600  # lr scheduler warm up, normally 20% of the train steps
data_parallel_degree = -1
tensor_parallel_degree = 8  # 8-way TP
enable_float8_linear = false
compile = false
dataset = "c4"

[experimental]
pipeline_parallel_degree = 1

[checkpoint]
enable_checkpoint = false
interval_type = "steps"

[activation_checkpoint]
mode = 'full' # ['none', 'selective', 'full']
"""
LLAMA_405B_2025 = """
# pytorch/torchtitan 01424cb2 torchtitan/models/llama3/train_configs/llama3_405b.toml
[model]
name = "llama3"
flavor = "405B"
tokenizer_path = "./assets/tokenizer/original/tokenizer.model"
converters = "float8"

[training]
batch_size = 2
seq_len = 8192
compile = true

[parallelism]
data_parallel_replicate_degree = 1
data_parallel_shard_degree = -1
tensor_parallel_degree = 8  # 8-way TP
enable_async_tensor_parallel = true
pipeline_parallel_degree = 1
context_parallel_degree = 1

[activation_checkpoint]
mode = 'full' # ['none', 'selective', 'full']

[float8]
enable_fsdp_float8_all_gather = true
precompute_float8_dynamic_scale_for_fsdp = true
filter_fqns = "output"
"""
DEBUG_3D_2024 = """
# pytorch/torchtitan 2822647d train_configs/debug_model_3d.toml
[model]
name = "llama3"
flavor = "debugmodel"

[training]
batch_size = 8
seq_len = 2048
data_parallel_degree = -1
tensor_parallel_degree = 2

[experimental]
pipeline_parallel_degree = 2
pipeline_parallel_split_points="layers.4"
pipeline_parallel_schedule="1f1b"

[activation_checkpoint]
mode = 'selective'  # ['none', 'selective', 'full']
selective_ac_option = '2'
"""
KIMI_K2_OF_A_FORK = """
# NousResearch/torchtitan c9449dd7 exp_16n_ep128_cp16_lbs8_local.toml
[model]
name = "deepseek_v3"
flavor = "kimi_k2"

[optimizer]
name = "AdamW"
lr = 2.2e-4
state_dtype = "bfloat16"

[training]
dtype = "bfloat16"
local_batch_size = 8
seq_len = 32768
enable_cpu_offload = true
clear_cache_between_steps = true
skip_optimizer_step = false
aggressive_memory_mode = "maximum"
aggressive_memory_verbose = true

[parallelism]
data_parallel_shard_degree = -1
expert_parallel_degree = 128
context_parallel_degree = 16

[activation_checkpoint]
mode = "full"

[compile]
enable = true
components = ["loss"]

[debug]
moe_force_load_balance = true
"""


def text(**sections: dict[str, Any]) -> str:
    """A resolved configuration of Llama 3.1 8B with these values, as JSON."""
    model = {"name": "llama3", "flavor": "8B", **sections.pop("model", {})}
    return json.dumps({"model": model, "training": {}, "parallelism": {}, **sections})


def load(content: str, *arguments: str) -> LoadedConfiguration:
    """Read a text with overrides as typed on a command line."""
    return read(content, name="run", overrides=parse_overrides(arguments))
