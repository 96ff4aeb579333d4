"""Attention, element-wise work and the optimizer step follow the work that they do."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.catalog import device
from projector.costs import optimizer_step_seconds
from projector.costs.gemm import AnalyticalGemm
from projector.costs.kernels import attention_seconds, elementwise_seconds
from projector.errors import NotAvailable
from projector.operations import AttentionKernel, ElementWise

MI300X = device("MI300X")
DENSE = AnalyticalGemm(MI300X)
BASE = AttentionKernel(
    batch=1, heads=32, key_value_heads=8, query_length=8192, key_length=8192, query_key_dim=128, value_dim=128
)


def seconds(work: AttentionKernel) -> float:
    return attention_seconds(work, MI300X, DENSE)


@pytest.mark.parametrize(
    ("change", "low", "high"),
    [
        ({"causal": False}, 1.9, 2.1),
        ({"backward": True}, 2.5, 3.3),
        ({"window": 1024}, 0.2, 0.3),
        ({"chunk": 1024}, 0.12, 0.16),
        ({"chunk": 16384}, 1.0, 1.0),
        ({"packed": 1024}, 0.12, 0.16),
        ({"packed": 1024, "window": 512}, 0.09, 0.12),
        ({"heads": 64}, 1.8, 2.1),
        ({"query_length": 4096, "key_length": 4096}, 0.2, 0.35),
        ({"query_length": 2048}, 0.2, 0.4),
        ({"query_key_dim": 64, "value_dim": 64}, 0.5, 0.9),
        ({"query_key_dim": 192}, 1.25, 1.6),
        ({"flash": False}, 1.5, 6.0),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_change_of_shape_changes_attention_by_its_work(change: dict[str, Any], low: float, high: float) -> None:
    assert low <= seconds(replace(BASE, **change)) / seconds(BASE) <= high


@given(st.integers(1, 16))
def test_context_parallelism_divides_attention_by_its_degree_not_by_the_square(degree: int) -> None:
    part = seconds(replace(BASE, batch=16, query_length=8192 // degree))
    assert part == pytest.approx(seconds(replace(BASE, batch=16)) / degree, rel=0.2)


@given(st.integers(0, 7), st.sampled_from([None, 128, 1024, 8192]), st.sampled_from([None, 128, 1024, 8192]))
def test_every_device_of_context_parallelism_attends_to_its_share(
    power: int, window: int | None, chunk: int | None
) -> None:
    whole = replace(BASE, window=window, chunk=chunk)
    part = replace(whole, query_length=BASE.query_length // 2**power)
    assert part.attended_pairs == pytest.approx(whole.attended_pairs / 2**power)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("window", "chunk", "packed"), [(None, 4, None), (None, None, 8), (3, None, None), (3, None, 8)]
)
def test_attended_pairs_are_those_of_the_mask(
    window: int | None, chunk: int | None, packed: int | None, *, causal: bool
) -> None:
    """Counted one by one over 16 tokens; half of the diagonal counts where halving the square decides."""
    length, part = 16, chunk or packed or 16
    pairs = [
        1.0 if key < query or window else 0.5
        for query in range(length)
        for key in range(length)
        if key // part == query // part and (not window or query - key < window) and key <= query
    ]
    whole = 2 * sum(pairs) if window is None else None
    work = replace(
        BASE, query_length=length, key_length=length, window=window, chunk=chunk, packed=packed, causal=causal
    )
    if causal:
        assert work.attended_pairs == pytest.approx(sum(pairs))
    elif whole is not None:
        assert work.attended_pairs == pytest.approx(whole)


@given(st.integers(0, 2**34), st.integers(0, 2**34), st.integers(1, 50))
def test_element_wise_work_never_beats_the_memory(read: int, written: int, kernels: int) -> None:
    work = ElementWise(name="copy", bytes_read=read, bytes_written=written, kernels=kernels)
    assert MI300X.memory_bandwidth_bytes_per_second is not None
    assert elementwise_seconds(work, MI300X) > (read + written) / MI300X.memory_bandwidth_bytes_per_second


@pytest.mark.parametrize(("heads", "copies"), [(8, 38), (64, 5), (304, 1)])
def test_a_fixed_order_of_additions_passes_a_copy_of_the_gradients_for_each_workgroup(heads: int, copies: int) -> None:
    """304 compute units over the heads of one sequence (flash-attention `mha_bwd`); each copy is zeroed and read."""
    free = replace(BASE, backward=True, heads=heads, backend="flash")
    more = seconds(replace(free, deterministic=True)) - seconds(free)
    assert MI300X.elementwise_bytes_per_second is not None
    wanted = 8 * (copies - 1) * heads * 8192 * 128 / MI300X.elementwise_bytes_per_second
    assert more == pytest.approx(wanted, abs=1e-9)
    assert seconds(replace(free, deterministic=True, backward=False)) == seconds(replace(free, backward=False))


def test_a_leaner_optimizer_state_updates_faster() -> None:
    assert optimizer_step_seconds(1e9, 8, MI300X) < optimizer_step_seconds(1e9, 12, MI300X)


def test_a_device_without_a_figure_is_refused_with_its_name() -> None:
    bare = replace(MI300X, attention_forward_tflops=None)
    with pytest.raises(NotAvailable, match="MI300X needs its attention_forward_tflops"):
        attention_seconds(BASE, bare, DENSE)


def test_narrow_heads_reach_less() -> None:
    """Azure/AI-benchmarking-guide: FlashAttention-2 forward on MI300X at head width 64, 329 TFLOP/s."""
    narrow = replace(BASE, batch=8, query_key_dim=64, value_dim=64)
    assert narrow.flops / seconds(narrow) / 1e12 == pytest.approx(329, rel=0.15)
