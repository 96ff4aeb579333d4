"""Memory of mixture-of-experts jobs against formulas that are derived here, tensor by tensor, from the frameworks.

The closed form is that of Megatron-LM 23e00ed0 with Transformer Engine 2.11 and a padded capacity, one line a tensor,
written without the engine's operations.
"""

from dataclasses import replace
from math import ceil, sqrt
from typing import Any

import pytest

from projector import catalog
from projector.errors import ConfigurationError
from projector.job import (
    Batch,
    CrossEntropy,
    DecoderLayer,
    DenseMLP,
    Dialect,
    ExpertBackend,
    ExpertDispatch,
    LatentAttention,
    MixtureOfExperts,
    ModelArchitecture,
    Parallelism,
    Software,
    Target,
    TrainingJob,
)
from projector.layers import layer_operations
from projector.memory import project_memory, routing_assumptions
from projector.operations import Operation
from projector.parallelism import resolve
from projector.projection import MemoryLevel, MemoryProjection, StageMemory

MIB = 2**20
B200 = catalog.device("B200")
MLA = LatentAttention(
    heads=128,
    query_lora_rank=1536,
    key_value_lora_rank=512,
    query_key_nope_dim=128,
    query_key_rope_dim=64,
    value_dim=128,
)
V2 = ModelArchitecture(
    name="deepseek-v2 of 4 layers",
    hidden=5120,
    layers=(
        DecoderLayer(mixer=MLA, feed_forward=DenseMLP(ffn=12288)),
        *(
            DecoderLayer(
                mixer=MLA, feed_forward=MixtureOfExperts(experts=160, top_k=6, expert_ffn=1536, shared_ffn=3072)
            ),
        )
        * 3,
    ),
    vocabulary=102401,
)
V3 = ModelArchitecture(
    name="deepseek-v3 of 4 layers",
    hidden=7168,
    layers=(
        DecoderLayer(mixer=MLA, feed_forward=DenseMLP(ffn=18432)),
        *(
            DecoderLayer(
                mixer=MLA, feed_forward=MixtureOfExperts(experts=256, top_k=8, expert_ffn=2048, shared_ffn=2048)
            ),
        )
        * 3,
    ),
    vocabulary=129281,
)
PADDED = Software(cross_entropy=CrossEntropy.TRANSFORMER_ENGINE, permute_fusion=True, expert_capacity_factor=1.0)
SEQUENCE = 4096


def experts_of(model: ModelArchitecture) -> MixtureOfExperts:
    (block,) = model.expert_blocks
    return block


def asked(
    model: ModelArchitecture, *, tensor: int = 1, expert: int = 8, micro: int = 1, software: Software = PADDED
) -> TrainingJob:
    return TrainingJob(
        model=model,
        parallelism=Parallelism(tensor=tensor, expert=expert, expert_tensor=1, sequence_parallel=tensor > 1),
        batch=Batch(micro=micro, global_=32, sequence_length=SEQUENCE),
        software=software,
    )


def projected(job: TrainingJob, *, nodes: int = 1, **changes: Any) -> MemoryProjection:  # noqa: ANN401 - any argument
    return project_memory(job, resolve(job, Target(device="B200", nodes=nodes, devices_per_node=8)), B200, **changes)


def closed_form(model: ModelArchitecture, tensor: int, expert: int, micro: int) -> float:
    """Peak allocated bytes of a device, on eight devices without pipeline parallelism."""
    moe, t = experts_of(model), tensor
    h, s = model.hidden, SEQUENCE * micro
    l = s // t  # noqa: E741 - the symbol of the formulas
    dense = model.layers[0].feed_forward
    assert isinstance(dense, DenseMLP)
    f, fe, fs, e = dense.ffn // t, moe.expert_ffn, moe.shared_ffn // t, moe.experts
    v = ceil(model.vocabulary / (128 * t)) * 128
    heads = MLA.heads // t
    qk, vd, ql, kvl = 192, 128, 1536, 512
    shapes = {
        "q down": (ql, h), "q up": (heads * qk, ql), "kv down": (kvl + 64, h), "kv up": (heads * (128 + vd), kvl),
        "out": (h, heads * vd), "fc1": (2 * f, h), "fc2": (h, f), "shared 1": (2 * fs, h), "shared 2": (h, fs),
        "expert 1": (2 * fe, h), "expert 2": (h, fe), "head": (v, h),
    }  # fmt: skip
    sizes = {name: a * b for name, (a, b) in shapes.items()}
    attention = sum(sizes[name] for name in ("q down", "q up", "kv down", "kv up", "out")) + ql + kvl + 2 * h
    others = 2 * sizes["head"] + h + 4 * attention + sizes["fc1"] + sizes["fc2"]
    others += 3 * (sizes["shared 1"] + sizes["shared 2"] + e * h)
    routed = 3 * e // expert * (sizes["expert 1"] + sizes["expert 2"])
    persistent = 6 * (others + routed) + 12 * others * t / 8 + 12 * routed / (8 // expert)
    persistent += 2 * sum(a * b for a, b in set(shapes.values()))
    persistent += 5 * (32 * MIB + 1024) + 2 * 8.125 * MIB + 4 * SEQUENCE * 64 + (2 * s * h if t > 1 else 0)
    mla = 4 * l * h + 4 * l * ql + 4 * l * kvl + 4 * s * heads * qk + 4 * s * heads * vd + 4 * s * heads
    rows = e * ceil(l * moe.top_k / e)
    mlp = 4 * l * h + 6 * s * f
    expert_layer = 4 * l * h + 2 * rows * h + 6 * rows * fe + 4 * rows + 4 * l * (2 * e + 1) + 12 * l * e + 6 * s * fs
    saved = persistent + 4 * mla + mlp + 3 * expert_layer
    last_experts = 4 * (2 * rows * h) + 4 * l * h
    head = 4 * l * h + 2 * s * v + 2 * s * h + 2 * l * h
    return saved + max(last_experts, head)


@pytest.mark.parametrize("model", [V2, V3], ids=lambda model: model.name)
@pytest.mark.parametrize(("tensor", "expert", "micro"), [(1, 8, 1), (1, 8, 2), (2, 8, 1), (1, 4, 1), (4, 8, 2)])
def test_deepseek_layers_with_padded_experts_take_what_the_closed_form_says(
    model: ModelArchitecture, tensor: int, expert: int, micro: int
) -> None:
    stage = projected(asked(model, tensor=tensor, expert=expert, micro=micro)).worst
    expected = closed_form(model, tensor, expert, micro)
    assert stage.level_bytes(MemoryLevel.ALLOCATED) == pytest.approx(expected, rel=1e-4)


def operations(
    software: Software,
    *,
    experts: int = 8,
    top_k: int = 2,
    shared: int = 0,
    gated: bool = True,
    **layout: Any,  # noqa: ANN401
) -> dict[str, Operation]:
    """A layer with experts of h = 4096 and width 14336 for 4096 tokens on a device, by names of its operations."""
    block = MixtureOfExperts(experts=experts, top_k=top_k, expert_ffn=14336, shared_ffn=shared, gated=gated)
    layer = DecoderLayer(mixer=None, feed_forward=block)
    model = ModelArchitecture(name="experts", hidden=H, layers=(layer,), vocabulary=32000)
    job = TrainingJob(
        model=model,
        parallelism=Parallelism(**layout),
        batch=Batch(micro=1, global_=64, sequence_length=L),
        software=software,
    )
    found = layer_operations(layer, job, resolve(job, Target(device="B200", nodes=1, devices_per_node=8)))
    return {operation.name.removeprefix("mlp."): operation for operation in found}


L, H = 4096, 4096
ROW = 2 * H
FREE = Software()
UNIQUE = L * 8 * (1 - 7 * 6 / (8 * 7))
"""Tokens that arrive where each goes once to every one of eight devices that hold one of its two experts."""


@pytest.mark.parametrize(
    ("software", "layout", "experts", "forward"),
    [
        pytest.param(
            FREE, {"expert": 4}, 8, ROW * (4 * 2 * L + L), id="all-to-all: permuted, arrived, output, unsorted"
        ),
        pytest.param(FREE, {"expert": 8}, 8, ROW * (3 * 2 * L + L), id="one local expert needs no sorting"),
        pytest.param(FREE, {"expert": 1}, 8, ROW * (3 * 2 * L + L), id="without expert parallelism nothing arrives"),
        pytest.param(
            replace(FREE, expert_dispatch=ExpertDispatch.ALL_GATHER),
            {"expert": 8},
            8,
            ROW * (2 * L + 8 * L + L),
            id="all-gather: output, and its sum for all gathered tokens",
        ),
        pytest.param(
            replace(FREE, expert_dispatch=ExpertDispatch.ALL_GATHER, router_in_fp32=True),
            {"expert": 8},
            8,
            ROW * (8 * L + 2 * 8 * L + L),
            id="all-gather with an fp32 router: the sum again, twice as wide",
        ),
        pytest.param(
            replace(FREE, expert_dispatch=ExpertDispatch.DEEPEP),
            {"expert": 8},
            8,
            ROW * (2 * round(UNIQUE) + 2 * L + L),
            id="DeepEP: a token once per device, output, and its sum",
        ),
    ],
)
def test_what_is_alive_while_outputs_travel_back(
    software: Software, layout: dict[str, Any], experts: int, forward: int
) -> None:
    assert operations(software, experts=experts, **layout)["combine"].scratch_forward_bytes == forward


def test_a_shared_experts_output_waits_until_the_routed_ones_are_back() -> None:
    alone, beside = (operations(FREE, expert=8, shared=shared)["combine"] for shared in (0, 4096))
    assert beside.scratch_forward_bytes - alone.scratch_forward_bytes == ROW * L


@pytest.mark.parametrize(
    ("software", "kept"),
    [
        pytest.param(replace(FREE, permute_fusion=True), 4 * L * (2 * 8 + 1) + 4 * 2 * L, id="fused: a map of experts"),
        pytest.param(FREE, 8 * 2 * L + 8 * L + 4 * 2 * L, id="unfused: indices and a mask"),
        pytest.param(
            replace(FREE, expert_dispatch=ExpertDispatch.ALL_GATHER),
            8 * 2 * L + 8 * L + 4 * 2 * L,
            id="all-gather: a mask of gathered tokens and the local expert",
        ),
    ],
)
def test_what_the_permutation_keeps(software: Software, kept: int) -> None:
    assert sum(tensor.size_bytes for tensor in operations(software, expert=8)["dispatch"].saves) == kept


def test_experts_without_a_gate_keep_their_activation_before_it_is_weighted() -> None:
    """Transformer Engine fuses SwiGLU with the weights alone (megatron-core 0.16.1 experts.py `bias_act_func`)."""
    gated, plain = (operations(FREE, expert=8, gated=gated)["experts.activation"] for gated in (True, False))
    width = 2 * 2 * L * 14336
    assert sum(tensor.size_bytes for tensor in gated.saves) == 2 * width
    assert sum(tensor.size_bytes for tensor in plain.saves) == 2 * width


@pytest.mark.parametrize("gated", [True, False])
def test_probabilities_after_the_experts_keep_what_came_back(gated: bool) -> None:  # noqa: FBT001 - a case
    """`unpermute(probs=...)` of megatron-core 0.11.0; from 0.12 on the product lies inside the experts."""
    found = operations(replace(FREE, probabilities_after_experts=True), expert=8, gated=gated)
    assert [tensor.size_bytes for tensor in found["combine"].saves] == [ROW * 2 * L]
    assert [tensor.name for tensor in found["experts.activation"].saves] == ["input"]


def test_a_router_in_fp32_keeps_wider_probabilities() -> None:
    narrow, wide = (operations(replace(FREE, router_in_fp32=wide), expert=8)["router"].saves for wide in (False, True))
    assert wide[0].size_bytes - narrow[0].size_bytes == 2 * L * 8


@pytest.mark.parametrize(
    ("factor", "padded", "rows"),
    [(1.25, True, 8 * ceil(L * 2 * 1.25 / 8)), (1.25, False, 2 * L), (0.5, False, L)],
    ids=["padded to the capacity", "what arrives when it is balanced", "what the capacity lets through"],
)
def test_rows_under_a_capacity(factor: float, padded: bool, rows: int) -> None:  # noqa: FBT001 - a case
    software = replace(FREE, expert_capacity_factor=factor, expert_capacity_padded=padded)
    (kept,) = operations(software, expert=8)["experts.linear_fc1"].saves
    assert kept.size_bytes == ROW * rows


def persistent(software: Software) -> dict[str, int]:
    job = asked(V2, software=software)
    return {part.name: part.size_bytes for part in projected(job).worst.components}


def test_the_all_gather_dispatcher_keeps_its_buffer() -> None:
    """`use_global_buffer` of Megatron-LM: the tokens of all eight devices, found in its tests' persistent bytes."""
    gathers = replace(PADDED, expert_dispatch=ExpertDispatch.ALL_GATHER)
    assert persistent(gathers)["gather buffer"] == 2 * 5120 * 8 * SEQUENCE
    assert "gather buffer" not in persistent(PADDED)


def test_only_grouped_experts_open_more_workspaces() -> None:
    grouped, sequential = (
        persistent(replace(PADDED, expert_backend=backend))["workspaces"]
        for backend in (ExpertBackend.GROUPED_LOOP, ExpertBackend.SEQUENTIAL)
    )
    assert grouped - sequential == 4 * (32 * MIB + 1024)


NATURAL = replace(PADDED, expert_capacity_factor=None)


def ends(stage: StageMemory) -> tuple[int, int, int]:
    lower, upper = stage.interval_bytes(MemoryLevel.ALLOCATED)
    return lower, stage.level_bytes(MemoryLevel.ALLOCATED), upper


def test_a_stated_imbalance_narrows_the_interval_to_it_and_nothing_is_assumed() -> None:
    free = projected(asked(V2, software=NATURAL))
    assert free.worst.routing_imbalance is not None
    least, usual, most = free.worst.routing_imbalance
    assert 1.0 == least < usual < most
    assert len(routing_assumptions(asked(V2, software=NATURAL), free)) == 1
    for factor, at in ((1.0, 0), (most, 2)):
        job = asked(V2, software=replace(NATURAL, routing_imbalance=factor))
        stated = projected(job)
        assert routing_assumptions(job, stated) == ()
        assert {each.name for each in stated.worst.uncertainties}.isdisjoint({"routing to experts"})
        size = ends(stated.worst)[1]
        assert ends(free.worst)[0] < size if at == 0 else size < ends(free.worst)[2]


@pytest.mark.parametrize(
    "software",
    [PADDED, replace(NATURAL, force_load_balancing=True)],
    ids=["padded capacity", "forced balance"],
)
def test_what_the_router_does_not_decide_needs_no_imbalance(software: Software) -> None:
    memory = projected(asked(V2, software=software))
    assert memory.worst.routing_imbalance is None
    assert all(each.name != "routing to experts" for each in memory.worst.uncertainties)


def test_expert_activations_scale_with_the_stated_imbalance() -> None:
    def kept(factor: float) -> int:
        job = asked(V2, software=replace(NATURAL, routing_imbalance=factor))
        return sum(part.size_bytes for part in projected(job).worst.components if part.name.endswith(": experts"))

    assert kept(4.0) == pytest.approx(4 * kept(1.0), rel=1e-3)


@pytest.mark.parametrize("factor", [0.5, 8.5])
def test_an_imbalance_that_cannot_be_is_refused(factor: float) -> None:
    with pytest.raises(ConfigurationError, match="routing_imbalance") as caught:
        projected(asked(V2, software=replace(NATURAL, routing_imbalance=factor)))
    assert "from 1 to 8" in str(caught.value)


def test_a_collapsed_routers_deviation_is_that_of_drawing_experts_without_replacement() -> None:
    """The hypergeometric variance, and its mean over the three passes that are in memory."""
    stage = projected(asked(V2, software=NATURAL)).worst
    assert stage.routing_imbalance is not None
    deviation = sqrt(7 / 6 * (160 - 6) / (160 - 1) / 3)
    assert stage.routing_imbalance == pytest.approx((1.0, 1 + 0.6 * deviation, 1 + 1.25 * deviation), rel=0.01)


def test_more_passes_in_memory_even_out_what_routing_may_do() -> None:
    deep = replace(V2, layers=(*V2.layers, *V2.layers[1:] * 4))
    few, many = (projected(asked(model, software=NATURAL), nodes=1).worst for model in (V2, deep))
    assert few.routing_imbalance is not None
    assert many.routing_imbalance is not None
    assert many.routing_imbalance[2] < few.routing_imbalance[2]


@pytest.mark.parametrize(
    ("stage", "arrived", "rows"),
    [(1, round(UNIQUE), 2 * L), (2, 8 * L, 2 * L), (3, 8 * L, 2 * 8 * L)],
    ids=["what arrives", "a buffer for all tokens of all ranks", "and rows for all of their visits"],
)
def test_stages_without_host_synchronisation_hold_what_may_arrive(stage: int, arrived: int, rows: int) -> None:
    """`num_worst_tokens` and `permute_max_token_num` of AMD-AGI/Primus primus_turbo.py; the work is as before."""
    software = replace(
        FREE,
        dialect=Dialect.PRIMUS_TURBO,
        expert_dispatch=ExpertDispatch.DEEPEP,
        permute_fusion=True,
        sync_free_stage=stage,
    )
    found = operations(software, expert=8)
    (kept,) = found["experts.linear_fc1"].saves
    assert kept.size_bytes == ROW * rows
    assert found["combine"].scratch_forward_bytes == ROW * (2 * arrived + rows + L)
    assert found["experts.linear_fc1"].forward == operations(FREE, expert=8)["experts.linear_fc1"].forward
