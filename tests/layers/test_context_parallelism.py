"""What context parallelism holds beside a device's own tensors, against torch's own ring and sizes counted by hand."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor.experimental._context_parallel import _attention as ring
from torch.testing._internal.distributed.fake_pg import FakeStore

from projector.job import Dialect, Parallelism, Software
from projector.layers.context import Passing, keeps_own_output, passing
from projector.layers.shapes import Shapes, shapes_of
from projector.parallelism import resolve
from tests.layers.builders import job, target
from tests.memory.live_bytes import LiveBytes

MIB = 2**20
HEADS, TOKENS, WIDTH = 32, 256, 64
TITAN = Software(dialect=Dialect.TORCHTITAN, gradient_accumulation_fusion=False)


def shapes(degree: int, communication: str, software: Software | None = None) -> Shapes:
    layout = Parallelism(context=degree, context_communication=communication)
    described = job(layout=layout, software=software or Software())
    return shapes_of(described, resolve(described, target()))


class OneDevice(LiveBytes):
    """Live bytes without the wrapper that stands for a tensor still on its way and has no memory of its own."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        if "_wrap_tensor" in str(func):
            return func(*args, **(kwargs or {}))
        return super().__torch_dispatch__(func, types, args, kwargs)


def _attention(query: torch.Tensor, *_: torch.Tensor, **__: object) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty_like(query), torch.empty(query.shape[:-1])


def _gradients(*, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **_: object) -> tuple[torch.Tensor, ...]:
    return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)


def _peaks(rank: int, degree: int, tensors: Sequence[torch.Tensor]) -> tuple[int, int]:
    """Bytes at the peak of both passes on one rank of a group whose collectives do nothing."""
    dist.init_process_group("fake", rank=rank, world_size=degree, store=FakeStore())
    everyone = dist.group.WORLD
    query, key, value = tensors
    gradient = torch.zeros_like(query)
    try:
        with OneDevice(tensors) as forward:
            output, statistics = ring._templated_ring_attention(  # noqa: SLF001 - torch's own
                everyone, 2, _attention, query, key, value, is_causal=True
            )
        with OneDevice([*tensors, output, statistics, gradient]) as backward:
            ring._templated_ring_attention_backward(  # noqa: SLF001 - torch's own
                everyone, 2, _gradients, gradient, "grad_out", query, key, value, output, statistics, is_causal=True
            )
    finally:
        dist.destroy_process_group()
    return forward.peak, backward.peak


@pytest.mark.parametrize("degree", [2, 4, 8])
@pytest.mark.parametrize("groups", [1, 8, 32], ids="{} query heads a key head".format)
@pytest.mark.parametrize("method", ["all_gather", "p2p"])
def test_torch_holds_as_much_in_a_ring(method: str, groups: int, degree: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gathers = method == "all_gather"
    rotation = ring._RotateMethod.ALL_GATHER if gathers else ring._RotateMethod.ALL_TO_ALL  # noqa: SLF001
    monkeypatch.setattr(ring._cp_options, "rotate_method", rotation)  # noqa: SLF001 - as `set_rotate_method` does
    query = torch.zeros(1, HEADS, TOKENS, WIDTH, dtype=torch.bfloat16)
    key, value = torch.zeros(2, 1, HEADS // groups, TOKENS, WIDTH, dtype=torch.bfloat16)
    sizes = {"query": query.nbytes, "key": key.nbytes, "value": key.nbytes, "output": query.nbytes}
    found = passing(**sizes, shapes=shapes(degree, method, TITAN))
    ranks = [_peaks(rank, degree, (query, key, value)) for rank in (0, degree - 1)]
    forward, backward = (max(peaks) for peaks in zip(*ranks, strict=True))
    statistics = 4 * query.nbytes // WIDTH * 2
    assert sum(found.forward) + query.nbytes == pytest.approx(forward, abs=statistics)
    assert sum(found.backward) + query.nbytes + 2 * key.nbytes == pytest.approx(backward, abs=statistics)


@pytest.mark.parametrize(
    ("communication", "forward", "backward"),
    [
        # Four pairs of 8 + 8 and four outputs of 64; two buffers of two pairs and the queries' gradient of a step.
        pytest.param("p2p", 4 * 16 + 4 * 64, 4 * 16 + 64, id="ring"),
        # Keys of all ranks and values twice; all pairs, their gradients, those of 4.5 of 4 ranks' keys seen, queries'.
        pytest.param("all_gather", 32 + 2 * 32, 64 + 64 + 72 + 64, id="all-gather"),
        pytest.param("a2a", 0, 0, id="exchange of heads"),
    ],
)
def test_transformer_engine_holds_keys_values_and_partial_outputs(
    communication: str, forward: int, backward: int
) -> None:
    """Counted by hand from TransformerEngine's context_parallel.py, in MiB."""
    sizes = {"query": 64 * MIB, "key": 8 * MIB, "value": 8 * MIB, "output": 64 * MIB}
    found = passing(**sizes, shapes=shapes(4, communication))
    assert (sum(found.forward), sum(found.backward)) == (forward * MIB, backward * MIB)


def test_one_rank_holds_nothing_more() -> None:
    assert passing(query=8, key=8, value=8, output=8, shapes=shapes(1, "p2p")) == Passing()


@pytest.mark.parametrize(
    ("communication", "software", "keeps"),
    [
        ("p2p", None, False),
        ("all_gather", None, True),
        ("a2a", None, True),
        ("all_gather", TITAN, False),
    ],
)
def test_the_kernels_output_is_kept_where_another_tensor_is_handed_on(
    communication: str, software: Software | None, *, keeps: bool
) -> None:
    assert keeps_own_output(shapes(4, communication, software)) is keeps
