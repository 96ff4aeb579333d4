"""Allocated memory of published runs, with nothing fitted to them.

MooreThreads/SimuMax 4dcaae51 docs/b200: maximum over ranks of torch's peak allocated on 8x B200, Megatron-LM 23e00ed0
with Transformer Engine 2.11. NVIDIA/Megatron-LM d98e8a64 functional tests.
"""

from dataclasses import replace

import pytest

from projector import catalog
from projector.job import (
    Attention,
    AttentionBackend,
    CrossEntropy,
    DecoderLayer,
    DenseMLP,
    ModelArchitecture,
    NormKind,
    Parallelism,
    PositionKind,
    Software,
)
from projector.memory import project_memory
from projector.parallelism import resolve
from projector.projection import MemoryLevel
from tests.layers.builders import DENSE, job, model, target

GIB = 2**30
LLAMA_405B = DecoderLayer(
    mixer=Attention(heads=128, key_value_heads=16, head_dim=128), feed_forward=DenseMLP(ffn=53248)
)
SEVENTY = model((DENSE,) * 12, vocabulary=128257)
FOUR_HUNDRED = model((LLAMA_405B,) * 4, hidden=16384, vocabulary=128257)
"""Both with the one entry that Megatron-LM's null tokenizer adds."""
SOFTWARE = Software(cross_entropy=CrossEntropy.TRANSFORMER_ENGINE, attention_backend=AttentionBackend.CUDNN)

RUNS = {
    "70B 12L PP2": (SEVENTY, Parallelism(pipeline=2), 4096, 66.55),
    "70B 12L TP2": (SEVENTY, Parallelism(tensor=2), 4096, 60.68),
    "70B 12L TP4": (SEVENTY, Parallelism(tensor=4), 4096, 39.07),
    "70B 12L TP8": (SEVENTY, Parallelism(tensor=8), 4096, 28.29),
    "405B 4L PP2, the last stage is the fullest": (FOUR_HUNDRED, Parallelism(pipeline=2), 4096, 87.08),
    "405B 4L TP4": (FOUR_HUNDRED, Parallelism(tensor=4), 4096, 52.89),
    "70B 12L TP2 CP4 32k": (SEVENTY, Parallelism(tensor=2, context=4), 32768, 68.43),
    "70B 12L CP8 32k: context parallelism divides no weights": (SEVENTY, Parallelism(context=8), 32768, 104.51),
    "70B 12L TP2 CP4 131k": (SEVENTY, Parallelism(tensor=2, context=4), 131072, 112.67),
    "405B 4L CP8 32k": (FOUR_HUNDRED, Parallelism(context=8), 32768, 139.22),
}


@pytest.mark.parametrize("micro_batches", [4, 32])
@pytest.mark.parametrize(("architecture", "layout", "sequence", "measured"), RUNS.values(), ids=RUNS)
def test_peak_allocated_is_met_to_a_thousandth_for_any_number_of_micro_batches(
    architecture: ModelArchitecture,
    layout: Parallelism,
    sequence: int,
    measured: float,
    micro_batches: int,
) -> None:
    data = 8 // (layout.tensor * layout.pipeline * layout.context)
    asked = job(
        architecture,
        global_=micro_batches * data,
        sequence=sequence,
        layout=replace(layout, context_communication="a2a"),
        software=SOFTWARE,
    )
    memory = project_memory(asked, resolve(asked, target()), catalog.device("B200"))
    allocated = max(stage.level_bytes(MemoryLevel.ALLOCATED) for stage in memory.stages) / GIB
    assert allocated == pytest.approx(measured, rel=1e-3)


def test_state_of_a_7b_model_under_the_distributed_optimizer() -> None:
    """gpt3_7b_tp4_pp1_memory_speed: 19.24 GiB after the step, 54.2 at the peak on A100 and GB200, 53.2 on H100."""
    layer = DecoderLayer(
        mixer=Attention(heads=32, key_value_heads=8, head_dim=128, bias_qkv=True, bias_output=True),
        feed_forward=DenseMLP(ffn=16384, gated=False, bias=True),
    )
    architecture = model(
        (layer,) * 32,
        hidden=4096,
        vocabulary=131073,
        norm=NormKind.LAYER,
        position=PositionKind.LEARNED,
        max_position=8192,
    )
    asked = job(
        architecture,
        micro=2,
        global_=8,
        sequence=8192,
        layout=Parallelism(tensor=4, sequence_parallel=False),
        software=Software(gradient_accumulation_fusion=False, hidden_dropout=0.1),
    )
    memory = project_memory(asked, resolve(asked, target()), catalog.device("H100"))
    assert memory.worst.level_bytes(MemoryLevel.PERSISTENT) / GIB == pytest.approx(19.24, rel=0.02)
    assert memory.worst.level_bytes(MemoryLevel.ALLOCATED) / GIB == pytest.approx(53.2, rel=0.15)
