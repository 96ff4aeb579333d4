"""Recomputation removes what the framework removes, and nothing else."""

import pytest

from projector import catalog
from projector.job import Parallelism, Recompute, RecomputeGranularity, RecomputeMethod, Software
from projector.memory import project_memory
from projector.parallelism import resolve
from projector.projection import MemoryLevel, StageMemory
from tests.layers.builders import DENSE, MOE, job, mixtral, model, target

FULL, SELECTIVE = RecomputeGranularity.FULL, RecomputeGranularity.SELECTIVE
BLOCK, UNIFORM = RecomputeMethod.BLOCK, RecomputeMethod.UNIFORM
INPUT = 2 * 4096 * 8192
"""Bytes of a layer's input."""


def first_stage(recompute: Recompute, *, software: Software | None = None, pipeline: int = 1) -> StageMemory:
    layout = Parallelism(pipeline=pipeline)
    asked = job(model((DENSE,) * 16), layout=layout, recompute=recompute, software=software or Software())
    return project_memory(asked, resolve(asked, target()), catalog.device("B200")).stages[0]


def allocated(recompute: Recompute, *, pipeline: int = 1) -> int:
    return first_stage(recompute, pipeline=pipeline).level_bytes(MemoryLevel.ALLOCATED)


def saved(stage: StageMemory) -> int:
    """Bytes kept for backward passes at the peak."""
    return sum(part.size_bytes for part in stage.components if part.name.startswith("saved activations"))


NOTHING = Recompute()


def test_block_with_no_layers_recomputes_nothing() -> None:
    assert allocated(Recompute(granularity=FULL, method=BLOCK, layers=0)) == allocated(NOTHING)
    assert allocated(Recompute(granularity=FULL, layers=0)) == allocated(NOTHING)


def test_every_recomputed_layer_keeps_only_its_input() -> None:
    """Between blocks of 8 and 12 layers lie 4 layers' activations, less 4 inputs."""
    norms, attention = 4 * INPUT + 2 * 4 * 4096, 2 * 4096 * (2 * 8192 + 2 * 1024) + 4 * 4096 * 64
    layer = norms + attention + 6 * 4096 * 28672
    eight, twelve = (allocated(Recompute(granularity=FULL, method=BLOCK, layers=count)) for count in (8, 12))
    assert eight - twelve == 4 * (layer - INPUT)


def test_block_counts_per_model_chunk() -> None:
    """The first layers of every stage, not of the model (Megatron-LM transformer_block.py)."""
    four = Recompute(granularity=FULL, method=BLOCK, layers=4)
    everything = Recompute(granularity=FULL, method=UNIFORM, layers=1)
    assert allocated(four, pipeline=4) == allocated(everything, pipeline=4)


def test_listed_layers_are_those_that_are_recomputed() -> None:
    listed = Recompute(granularity=FULL, layer_ids=(0, 1, 2, 3))
    assert allocated(listed) == allocated(Recompute(granularity=FULL, method=BLOCK, layers=4))


def test_larger_uniform_groups_keep_fewer_inputs_and_a_larger_working_set() -> None:
    one, four = (allocated(Recompute(granularity=FULL, method=UNIFORM, layers=count)) for count in (1, 4))
    assert four > one
    assert four - one < 4 * 6 * 4096 * 28672


@pytest.mark.parametrize("flash", [True, False])
def test_core_attention_drops_scores_and_keeps_queries_keys_and_values(flash: bool) -> None:  # noqa: FBT001 - a case
    software = Software(flash_attention=flash)
    selective = Recompute(granularity=SELECTIVE, modules=("core_attn",))
    plain, less = (saved(first_stage(each, software=software)) for each in (NOTHING, selective))
    assert plain - less == 16 * (4 * 4096 * 64 if flash else 2 * 64 * 4096**2)


def test_mlp_drops_what_the_mlp_keeps() -> None:
    plain = allocated(NOTHING)
    selective = allocated(Recompute(granularity=SELECTIVE, modules=("mlp",)))
    mlp = INPUT + 6 * 4096 * 28672
    assert plain - selective == 16 * mlp


def test_the_expert_activation_and_the_whole_expert_block() -> None:
    def at(*modules: str) -> int:
        recompute = Recompute(granularity=SELECTIVE, modules=modules) if modules else NOTHING
        software = Software(expert_capacity_factor=1.0)
        asked = job(mixtral(8), layout=Parallelism(expert=8), recompute=recompute, software=software)
        return saved(project_memory(asked, resolve(asked, target()), catalog.device("B200")).stages[0])

    rows = 2 * 4096
    assert MOE in mixtral(8).layers
    assert at() - at("moe_act") == 8 * 2 * rows * 16384
    assert at() - at("moe") > 8 * rows * (6 * 16384 + 2 * 6144)
