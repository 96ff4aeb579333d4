"""What rows of fine-tuning with adapters do not print: adapters' sizes and layouts, from their sources' own files."""

import re
from collections.abc import Mapping
from typing import Any

from projector.job import LowRankAdapters
from tests.accuracy.rows import Row

MLPERF_LAYOUTS: Mapping[tuple[str, int], Mapping[str, Any]] = {
    ("H100-SXM-80GB", 64): {"tp": 4, "pp": 1, "cp": 2, "sp": True},
    ("H100-SXM-80GB", 128): {"tp": 4, "pp": 1, "cp": 2, "sp": True},
    ("H200", 8): {"tp": 1, "pp": 1, "cp": 2},
    ("H200", 16): {"tp": 2, "pp": 1, "cp": 1, "sp": True},
}
"""Layouts of llama2_70b_lora by GPU and count: mlcommons/training_results_v5.1 4da2d1cd, Cisco's and Krai's
`llama2_70b_lora/implementations/*/config*_{8x8x1xtp4pp1cp2,16x8x1xtp4pp1cp2,H200_1x8x2xtp1pp1cp2,H200_2x8x1xtp2pp1cp1}.sh`.
The others keep TP and PP at 1 and divide by context what the batch leaves over (`MI325X_2x8x1.sh`,
`GB200_2x4x2xtp1pp1cp2_fp4.sh`, and the names of v5.0's `GB200_36x4x1xtp1pp1cp8.sh`)."""
MLPERF_CONTEXT_COMMUNICATION = "a2a"
"""`cp_comm_type` of the submissions' conf/megatron_gpt_peft_tuning_config.yaml."""
MLPERF_DROPOUT = 0.1
"""`adapter_dropout` of the same file, in front of the first matrix."""
NEMO_RANKS = (8, 16)
"""Ranks of NeMo 2's finetune_recipe: of its 8B models, and of the larger ones (nemo/collections/llm/recipes)."""
NEMO_SMALL_HIDDEN = 4096
"""Width of the 8B models."""
NEMO_TARGETS = ("linear_qkv",)
"""Targets of the recipes' performance_mode, which NVIDIA/dgxc-benchmarking 8f5cbb37 llama3/finetuning sets."""
WORDS = {"attention": ("linear_qkv", "linear_proj")}
"""Targets by the words of a row's `task`, as NeMo means them."""


def fine_tunes_adapters(row: Row) -> bool:
    """Whether the row's run trains adapters beside frozen weights."""
    return "lora" in str(row.train.get("task", "")).lower()


def _submission(row: Row) -> bool:
    return row.source.startswith("mlperf")


def adapters(row: Row) -> LowRankAdapters | None:
    """The run's adapters: as `task` prints them, else those of the framework's recipe; None where it has none."""
    if not fine_tunes_adapters(row):
        return None
    task = str(row.train["task"])
    rank = re.search(r"rank (\d+)", task)
    small = row.model.get("hidden", 0) <= NEMO_SMALL_HIDDEN
    printed = tuple(name for word, names in WORDS.items() if word in task for name in names)
    return LowRankAdapters(
        rank=int(rank[1]) if rank else NEMO_RANKS[not small],
        targets=printed or NEMO_TARGETS,
        dropout=MLPERF_DROPOUT if _submission(row) else 0.0,
        all_to_all=_submission(row),
    )


def layout(row: Row) -> Mapping[str, Any]:
    """The row's layout columns, completed from the submission's configuration where it prints none."""
    if "tp" in row.parallel or not (fine_tunes_adapters(row) and _submission(row)) or row.devices is None:
        return row.parallel
    sequences = int(row.train.get("gbs", row.devices))
    rest = {"tp": 1, "pp": 1, "cp": max(1, row.devices // sequences)}
    return {
        "cp_comm": MLPERF_CONTEXT_COMMUNICATION,
        **MLPERF_LAYOUTS.get((row.hardware, row.devices), rest),
    }


def overlaps_tensor_parallel(row: Row) -> bool:
    """NeMo's recipes overlap it, but for those of adapters (`tp_comm_overlap=False`); the submissions do again.

    So do those of Megatron-Bridge, but for NVFP4 (scripts/performance/configs/llama/llama31_llm_pretrain.py, 0013c9a8).
    """
    if row.framework.startswith("Megatron-Bridge"):
        return row.train.get("precision") != "nvfp4"
    return row.framework.startswith("NeMo") and (not fine_tunes_adapters(row) or _submission(row))
