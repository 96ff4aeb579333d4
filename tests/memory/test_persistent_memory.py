"""State that stays on a device is divided over the ranks that hold the same weights."""

from dataclasses import replace

import pytest

from projector import catalog
from projector.job import Optimizer, Parallelism, Precision, Sharding, Software, TrainingJob
from projector.memory import count_parameters, project_memory
from projector.parallelism import resolve
from projector.projection import StageMemory
from tests.layers.builders import DENSE, MOE, job, mixtral, model, target

DEVICE = catalog.device("MI300X")
SMALL = model((DENSE,) * 8, vocabulary=128 * 1000)


def parts(asked: TrainingJob, nodes: int = 1) -> dict[str, int]:
    memory = project_memory(asked, resolve(asked, target(nodes=nodes)), DEVICE)
    return {part.name: part.size_bytes for part in memory.stages[0].components}


def parameters(asked: TrainingJob) -> int:
    return count_parameters(asked, resolve(asked, target())).per_device_max


@pytest.mark.parametrize(
    ("sharding", "weights", "gradients", "state"),
    [
        (Sharding.NONE, 2, 4, 12),
        (Sharding.OPTIMIZER, 2, 4, 12 / 8),
        (Sharding.GRADIENTS, 2, 4 / 8, 12 / 8),
        (Sharding.PARAMETERS, 2 / 8, 4 / 8, 12 / 8),
    ],
)
def test_each_sharding_divides_what_zero_says(
    sharding: Sharding, weights: float, gradients: float, state: float
) -> None:
    """ArXiv 1910.02054, section 3: stages 0 to 3 over 8 ranks."""
    asked = job(SMALL, layout=Parallelism(sharding=sharding))
    held, count = parts(asked), parameters(asked)
    assert [held["weights"], held["gradients"], held["optimizer state"]] == [
        round(count * each) for each in (weights, gradients, state)
    ]


def test_context_parallelism_divides_optimizer_state_and_not_weights() -> None:
    plain, divided = (
        parts(job(SMALL, layout=Parallelism(context=context, sequence_parallel=False))) for context in (1, 4)
    )
    assert [plain[name] for name in ("weights", "gradients", "optimizer state")] == [
        divided[name] for name in ("weights", "gradients", "optimizer state")
    ]


def test_tensor_parallelism_divides_matrices_and_repeats_norms() -> None:
    asked = job(SMALL, layout=Parallelism(tensor=8))
    norms = (2 * 8 + 1) * 8192
    whole = parameters(job(SMALL))
    assert parts(asked)["weights"] == 2 * ((whole - norms) // 8 + norms)


def test_experts_are_divided_over_their_own_copies() -> None:
    """32 GPUs with PP 4 and EP 8 leave one copy of each expert: its optimizer state is not divided."""
    asked = job(mixtral(), micro=2, global_=128, layout=Parallelism(pipeline=4, expert=8))
    state = parts(asked, nodes=4)["optimizer state"]
    experts = 14 * 3 * 6144 * 16384
    dense = count_parameters(asked, resolve(asked, target(nodes=4))).per_device_max - experts
    assert state == pytest.approx(12 * experts + 12 * dense / 8, rel=1e-6)


def test_precision_of_every_tensor_is_read() -> None:
    lean = Precision(gradient_bytes=2, first_moment_bytes=2, second_moment_bytes=2)
    asked = job(SMALL, precision=lean)
    held, count = parts(asked), parameters(asked)
    assert held["gradients"] == 2 * count
    assert held["optimizer state"] == count


def test_offloaded_state_leaves_the_device() -> None:
    plain, half = (parts(job(SMALL, optimizer=Optimizer(offload_fraction=share))) for share in (0.0, 0.5))
    assert half["optimizer state"] * 2 == plain["optimizer state"]


def test_first_middle_and_last_stage_hold_different_weights() -> None:
    asked = job(SMALL, layout=Parallelism(pipeline=4, last_stage_layers=1, first_stage_layers=3))
    stages = project_memory(asked, resolve(asked, target()), DEVICE).stages
    layer, table = 855_654_400, 128 * 1000 * 8192
    assert [stage.parameters for stage in stages] == [3 * layer + table, 2 * layer, 2 * layer, layer + table + 8192]


def test_tied_embeddings_cost_one_table_on_one_stage_and_two_across_stages() -> None:
    tied = replace(SMALL, tied_embeddings=True)
    table = 128 * 1000 * 8192
    together = parameters(job(SMALL)) - parameters(job(tied))
    assert together == table
    asked = job(tied, layout=Parallelism(pipeline=2))
    counts = count_parameters(asked, resolve(asked, target()))
    stages: tuple[StageMemory, ...] = project_memory(asked, resolve(asked, target()), DEVICE).stages
    assert sum(stage.parameters for stage in stages) == counts.total + table


def test_unfused_weight_gradients_need_no_placeholders_and_a_whole_gradient_at_the_head() -> None:
    fused, unfused = (
        project_memory(
            asked := job(SMALL, software=Software(gradient_accumulation_fusion=fusion)),
            resolve(asked, target()),
            catalog.device("B200"),
        ).stages[0]
        for fusion in (True, False)
    )
    names = [{part.name for part in stage.components} for stage in (fused, unfused)]
    assert "weight-gradient placeholders" in names[0]
    assert "weight-gradient placeholders" not in names[1]


def test_an_expert_layer_on_one_node_of_h100_does_not_fit_because_its_state_is_whole() -> None:
    """Qwen3-30B-A3B on 8x H100 80 GB with EP 8 (NVIDIA/Megatron-LM issue 2762): 18 bytes a parameter of experts."""
    moe = replace(MOE.feed_forward, experts=128, top_k=8, expert_ffn=768)  # type: ignore[type-var]
    layer = replace(MOE, mixer=replace(DENSE.mixer, heads=32, key_value_heads=4), feed_forward=moe)  # type: ignore[type-var]
    asked = job(model((layer,) * 48, hidden=2048, vocabulary=151936), layout=Parallelism(expert=8))
    memory = project_memory(asked, resolve(asked, target()), catalog.device("H100"))
    assert memory.verdict == "DoesNotFit"
    four = project_memory(asked, resolve(asked, target(nodes=4)), catalog.device("H100"))
    assert four.worst.device_bytes < memory.worst.device_bytes * 0.7


def test_full_sharding_holds_root_and_two_layers_whole() -> None:
    """Megatron-FSDP adds 6 V h for the root, of which 2 V h are the head's gradient, and two layers."""
    held = parts(job(SMALL, layout=Parallelism(sharding=Sharding.PARAMETERS)))
    table, layer, norm = 128 * 1000 * 8192, 855_654_400, 8192
    assert held["gathered weights"] == 2 * (2 * table + norm + 2 * layer)
    assert held["gradients before reduction"] == 2 * (table + norm + layer)
    assert "gathered weights" not in parts(job(SMALL))


def test_caches_that_are_no_parameters_are_counted() -> None:
    """Megatron's fp32 rotary table; Transformer Engine's workspace and, with experts on NVIDIA, four more."""
    assert parts(job(SMALL))["rotary table"] == 4 * 4096 * 128
    b200 = catalog.device("B200")
    assert b200.framework_workspace_bytes is not None
    layout = Parallelism(pipeline=2, expert=4)
    held = [
        {
            part.name: part.size_bytes
            for part in project_memory(asked, resolve(asked, target()), b200).stages[0].components
        }
        for asked in (job(SMALL, layout=Parallelism(pipeline=2)), job(mixtral(8), layout=layout))
    ]
    assert held[0]["workspaces"] == b200.framework_workspace_bytes
    assert held[1]["workspaces"] == 5 * b200.framework_workspace_bytes
