"""The host's time to start work is the sum of what it does for it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from projector.catalog import Device, device, host_costs
from projector.costs.host import HostWork
from projector.job import (
    Attention,
    DecoderLayer,
    DenseMLP,
    ExpertBackend,
    ExpertDispatch,
    LatentAttention,
    LowPrecision,
    MixtureOfExperts,
    ModelArchitecture,
    Precision,
    Software,
    Target,
)
from projector.layers import shapes_of
from projector.layers.decoder import shaped_layer
from projector.operations import ElementWise, Gemm, GroupedGemm, Operation, Work
from projector.parallelism import resolve
from tests.performance.jobs import a_job

MI300X, H100, GB200 = device("MI300X"), device("H100-SXM-80GB"), device("GB200")
MICRO = 1e-6
KERNEL = ElementWise(name="norm", bytes_read=1, bytes_written=1)

GQA = Attention(heads=32, key_value_heads=8, head_dim=128)
NORMED = replace(GQA, query_key_norm=True)
MLA = LatentAttention(
    heads=128,
    query_lora_rank=1536,
    key_value_lora_rank=512,
    query_key_nope_dim=128,
    query_key_rope_dim=64,
    value_dim=128,
)
DENSE = DenseMLP(ffn=14336)
PLAIN = MixtureOfExperts(experts=64, top_k=8, expert_ffn=2048)
BALANCED = replace(PLAIN, router_balance_bias=True)
GROUPED_BALANCED = replace(BALANCED, expert_groups=8)
LOOP = {"expert_backend": ExpertBackend.GROUPED_LOOP}
FUSED = {"permute_fusion": True}
ALL, DEEP, HYBRID = ExpertDispatch.ALL_TO_ALL, ExpertDispatch.DEEPEP, ExpertDispatch.HYBRIDEP


def operations(mixer: Any, block: Any, low: LowPrecision | None = None, **software: Any) -> tuple[Operation, ...]:  # noqa: ANN401 - blocks and fields by keyword
    """A layer on eight devices, eight experts on each."""
    layer = DecoderLayer(mixer=mixer, feed_forward=block)
    model = ModelArchitecture(name="one layer", hidden=4096, layers=(layer,), vocabulary=32000)
    experts = 8 if isinstance(block, MixtureOfExperts) else 1
    job = a_job(model, batch=64, software=Software(**software), expert=experts)
    job = replace(job, precision=Precision(low_precision=low, delayed_scaling=low is LowPrecision.FP8))
    layout = resolve(job, Target(device=H100.name, nodes=1, devices_per_node=8))
    return shaped_layer(layer, shapes_of(job, layout))


def a_host(part: Device, software: Software) -> HostWork:
    return HostWork(host_costs(part.host_platform), part, software)


def works(operation: Operation, *, backward: bool) -> Sequence[Work]:
    return (*operation.backward_input, *operation.backward_weight) if backward else operation.forward


class Module(NamedTuple):
    """A module of the study of host time: what runs, which operations are its, and its microseconds on x86."""

    mixer: Attention | LatentAttention
    block: DenseMLP | MixtureOfExperts
    begin: tuple[str, ...]
    microseconds: tuple[float, float]
    software: dict[str, Any]
    low: LowPrecision | None = None


ATTENTION, FEED_FORWARD = ("input_layernorm", "self_attention"), ("pre_mlp_layernorm", "mlp")
ROUTER, DISPATCHER, EXPERTS = ("mlp.router",), ("mlp.dispatch", "mlp.combine"), ("mlp.experts",)
MODULES = {
    "GQA block": Module(GQA, DENSE, ATTENTION, (296, 303), {}),
    "GQA block, QK norm, MXFP8": Module(NORMED, DENSE, ATTENTION, (459, 548), {}, LowPrecision.MXFP8),
    "MLA, unfused rotary": Module(MLA, DENSE, ATTENTION, (713, 732), {"rotary_fusion": False}),
    "MLA, fused rotary": Module(MLA, DENSE, ATTENTION, (524, 645), {}),
    "MLA, fused rotary, MXFP8": Module(MLA, DENSE, ATTENTION, (794, 1019), {}, LowPrecision.MXFP8),
    "MLP": Module(GQA, DENSE, FEED_FORWARD, (134, 204), {}),
    "router of DeepSeek-V3": Module(GQA, GROUPED_BALANCED, ROUTER, (450, 200), {}),
    "all-to-all, unfused": Module(GQA, PLAIN, DISPATCHER, (677, 307), {}),
    "all-to-all, fused": Module(GQA, PLAIN, DISPATCHER, (416, 195), FUSED),
    "DeepEP, unfused": Module(GQA, PLAIN, DISPATCHER, (727, 235), {"expert_dispatch": DEEP}),
    "DeepEP, fused": Module(GQA, PLAIN, DISPATCHER, (350, 202), {"expert_dispatch": DEEP, **FUSED}),
    "HybridEP": Module(GQA, PLAIN, DISPATCHER, (265, 164), {"expert_dispatch": HYBRID}),
    "all-gather": Module(GQA, PLAIN, DISPATCHER, (362, 194), {"expert_dispatch": ExpertDispatch.ALL_GATHER}),
    "experts, grouped": Module(GQA, PLAIN, EXPERTS, (368, 810), LOOP),
    "experts, grouped, MXFP8": Module(GQA, PLAIN, EXPERTS, (908, 1620), LOOP, LowPrecision.MXFP8),
    "experts, one kernel": Module(
        GQA, PLAIN, EXPERTS, (94, 122), {"expert_backend": ExpertBackend.GROUPED_FUSED, "stacked_experts": True}
    ),
    "experts, one by one": Module(GQA, PLAIN, EXPERTS, (802, 1429), {"expert_backend": ExpertBackend.SEQUENTIAL}),
}


@pytest.mark.parametrize("module", MODULES.values(), ids=MODULES)
def test_modules_take_the_microseconds_of_the_study(module: Module) -> None:
    """Sums over counts read in Megatron-LM and Transformer Engine, with the same priors: within a sixth."""
    host = a_host(H100, Software(**module.software))
    layer = operations(module.mixer, module.block, module.low, **module.software)
    for backward, want in zip((False, True), module.microseconds, strict=True):
        total = 0.0
        for operation in layer:
            if not operation.name.startswith(module.begin):
                continue
            total += host.operation_seconds(operation, backward=backward)
            for work in works(operation, backward=backward):
                waits = work.readbacks if isinstance(work, ElementWise) else 0
                total += host.seconds(work, backward=backward) + waits * host.readback_seconds
        assert total / MICRO == pytest.approx(want, rel=1 / 6)


COUNTED = {
    "router, softmax": (PLAIN, ROUTER, {}, (25, 12), 0),
    "router of DeepSeek-V2": (replace(PLAIN, expert_groups=8), ROUTER, {}, (40, 18), 0),
    "router of DeepSeek-V3": (GROUPED_BALANCED, ROUTER, {}, (52, 30), 0),
    "router, fused": (GROUPED_BALANCED, ROUTER, {"router_fusion": True}, (20, 11), 0),
    "all-to-all": (PLAIN, DISPATCHER, {}, (27, 13), 3),
    "DeepEP": (PLAIN, DISPATCHER, {"expert_dispatch": DEEP}, (52, 15), 5),
    "HybridEP": (PLAIN, DISPATCHER, {"expert_dispatch": HYBRID}, (11, 4), 0),
}


@pytest.mark.parametrize(("block", "begin", "software", "kernels", "waits"), COUNTED.values(), ids=COUNTED)
def test_launches_are_those_that_were_counted(
    block: MixtureOfExperts, begin: tuple[str, ...], software: dict[str, Any], kernels: tuple[int, int], waits: int
) -> None:
    """A dispatch counter on torch modules of Megatron-LM's form; fused ones read in source."""
    mine = [each for each in operations(GQA, block, **software) if each.name.startswith(begin)]
    for backward, want in zip((False, True), kernels, strict=True):
        started = [work for operation in mine for work in works(operation, backward=backward)]
        assert (
            sum(work.kernels if isinstance(work, ElementWise) else isinstance(work, Gemm) for work in started) == want
        )
    readbacks = [work.readbacks for each in mine for work in each.forward if isinstance(work, ElementWise)]
    assert sum(readbacks) == waits


CASTS = {
    "delayed scaling": (LowPrecision.FP8, True, (1, 1)),
    "current scaling": (LowPrecision.FP8, False, (3, 3)),
    "blocks": (LowPrecision.FP8_BLOCK, False, (2, 2)),
    "MXFP8": (LowPrecision.MXFP8, False, (3, 5)),
}


@pytest.mark.parametrize(("low", "delayed", "more"), CASTS.values(), ids=CASTS)
def test_low_precision_adds_launches_to_each_linear_layer(
    low: LowPrecision,
    delayed: bool,  # noqa: FBT001 - a case of the table
    more: tuple[int, int],
) -> None:
    """Read in Transformer Engine 2.x."""
    job = a_job(batch=64)
    job = replace(job, precision=Precision(low_precision=low, delayed_scaling=delayed))
    layout = resolve(job, Target(device=H100.name, nodes=1, devices_per_node=8))
    layer = shaped_layer(job.model.layers[0], shapes_of(job, layout))
    linear = next(operation for operation in layer if operation.name == "self_attention.linear_proj")
    added = [
        sum(work.kernels for work in works(linear, backward=backward) if isinstance(work, ElementWise))
        for backward in (False, True)
    ]
    assert tuple(added) == more


@pytest.mark.parametrize(("version", "kernels"), [(None, 24), ("2.7", 24), ("2.8", 3), ("2.14.1", 3)])
def test_eight_experts_are_quantised_together_from_transformer_engine_2_8_on(version: str | None, kernels: int) -> None:
    layer = operations(GQA, PLAIN, LowPrecision.MXFP8, transformer_engine=version, **LOOP)
    first = next(operation for operation in layer if operation.name == "mlp.experts.linear_fc1")
    cast = next(work for work in first.forward if isinstance(work, ElementWise))
    assert cast.kernels == kernels


def test_kernels_are_started_one_by_one() -> None:
    host = a_host(H100, Software())
    one, many = (host.seconds(replace(KERNEL, kernels=kernels), backward=False) for kernels in (1, 25))
    assert many == pytest.approx(25 * one)


def test_a_loop_over_experts_asks_hipblaslt_each_time_and_one_kernel_does_not() -> None:
    """ROCm/hipBLASLt pull request 1754: 115 us of heuristic query a call."""
    loop, fused = (GroupedGemm(groups=8, m=1, n=1, k=1, fused=each) for each in (False, True))
    amd, nvidia, one = (
        a_host(part, Software()).seconds(work, backward=False)
        for work, part in ((loop, MI300X), (loop, H100), (fused, MI300X))
    )
    assert amd - one > 8 * 115e-6
    assert one < nvidia < amd


STATES = {
    "processes bound to their cores": ({"processes_bound": True}, KERNEL, 0.8),
    "a stated factor": ({"host_factor": 0.5}, KERNEL, 0.5),
    "both": ({"host_factor": 0.5, "processes_bound": True}, KERNEL, 0.4),
    "kernels under another Transformer Engine": ({"transformer_engine": "2.16"}, KERNEL, 1.0),
}


@pytest.mark.parametrize(("changes", "work", "times"), STATES.values(), ids=STATES)
def test_the_state_of_the_software_scales_the_host(changes: dict[str, Any], work: Work, times: float) -> None:
    changed, usual = (a_host(H100, each).seconds(work, backward=False) for each in (Software(**changes), Software()))
    assert changed == pytest.approx(times * usual)


@pytest.mark.parametrize(
    ("version", "times"), [(None, 1.0), ("2.13", 1.0), ("2.14", 0.6), ("2.15.dev0", 0.6), ("2.16", 0.45), ("3.0", 0.45)]
)
def test_later_versions_of_transformer_engine_have_less_python(version: str | None, times: float) -> None:
    linear = next(each for each in operations(GQA, DENSE) if each.name == "self_attention.linear_proj")
    seconds = a_host(H100, Software(transformer_engine=version)).operation_seconds(linear, backward=False)
    assert seconds / MICRO == pytest.approx(10 + times * 35)


def test_a_graph_launch_takes_what_was_measured_on_gb200() -> None:
    """meta-pytorch/tritonbench pull request 1017: 44 us."""
    assert a_host(GB200, Software()).graph_seconds / MICRO == pytest.approx(44, rel=1e-3)
