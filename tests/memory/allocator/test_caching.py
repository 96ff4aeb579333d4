"""The caching allocator's rules, and what must hold for any sequence of allocations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.memory.allocator.caching import CachingAllocator

MIB = 2**20


@pytest.mark.parametrize(
    ("size", "reserved"),
    [
        pytest.param(1, 2 * MIB, id="one byte takes a small segment"),
        pytest.param(MIB, 2 * MIB, id="a mebibyte is small"),
        pytest.param(MIB + 1, 20 * MIB, id="more is large and takes 20 MiB"),
        pytest.param(10 * MIB - 512, 20 * MIB, id="below 10 MiB too"),
        pytest.param(10 * MIB, 10 * MIB, id="from 10 MiB on a segment of its own"),
        pytest.param(11 * MIB + 512, 12 * MIB, id="rounded up to 2 MiB"),
    ],
)
def test_a_first_allocation_reserves_by_its_size_class(size: int, reserved: int) -> None:
    allocator = CachingAllocator()
    allocator.allocate(size)
    assert allocator.reserved_bytes == reserved


@pytest.mark.parametrize(
    ("size", "reserved"),
    [
        pytest.param(MIB, 2 * MIB, id="small pages are 2 MiB"),
        pytest.param(21 * MIB, 40 * MIB, id="large ones 20 MiB"),
    ],
)
def test_an_expandable_segment_grows_by_pages(size: int, reserved: int) -> None:
    allocator = CachingAllocator(expandable=True)
    allocator.allocate(size)
    assert allocator.reserved_bytes == reserved


def test_an_expandable_segment_grows_from_its_free_end() -> None:
    allocator = CachingAllocator(expandable=True)
    allocator.free(allocator.allocate(40 * MIB))
    allocator.allocate(60 * MIB)
    assert allocator.reserved_bytes == 60 * MIB


def test_segments_of_their_own_do_not_join() -> None:
    allocator = CachingAllocator()
    for block in [allocator.allocate(40 * MIB) for _ in range(2)]:
        allocator.free(block)
    allocator.allocate(60 * MIB)
    assert allocator.reserved_bytes == 140 * MIB


@pytest.mark.parametrize(
    ("freed", "size", "reserved"),
    [
        pytest.param(100, 99, 100, id="a block below the limit is split and given"),
        pytest.param(200, 100, 300, id="a smaller request gets none beyond it"),
        pytest.param(200, 190, 200, id="a request beyond it gets one with little to spare"),
        pytest.param(200, 180, 380, id="and none with 20 MiB to spare"),
    ],
)
def test_blocks_beyond_the_split_limit_are_kept_for_requests_beyond_it(freed: int, size: int, reserved: int) -> None:
    allocator = CachingAllocator(maximum_split_bytes=128 * MIB)
    allocator.free(allocator.allocate(freed * MIB))
    allocator.allocate(size * MIB)
    assert allocator.reserved_bytes == reserved * MIB


def test_a_block_beyond_the_split_limit_stays_whole() -> None:
    allocator = CachingAllocator(maximum_split_bytes=128 * MIB)
    allocator.free(allocator.allocate(200 * MIB))
    allocator.allocate(190 * MIB)
    allocator.allocate(5 * MIB)
    assert allocator.reserved_bytes == 220 * MIB
    assert allocator.allocated_bytes == 205 * MIB


def test_the_smallest_block_that_fits_is_taken() -> None:
    allocator = CachingAllocator()
    large, small = allocator.allocate(100 * MIB), allocator.allocate(50 * MIB)
    allocator.free(large)
    allocator.free(small)
    allocator.allocate(50 * MIB)
    allocator.allocate(100 * MIB)
    assert allocator.reserved_bytes == 150 * MIB


def test_a_rest_of_up_to_a_mebibyte_stays_with_its_block_and_counts_as_allocated() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(12 * MIB))
    allocator.allocate(11 * MIB)
    assert allocator.allocated_bytes == 12 * MIB


def test_a_larger_rest_is_split_off_and_serves_another_tensor() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(24 * MIB))
    allocator.allocate(12 * MIB)
    allocator.allocate(12 * MIB)
    assert allocator.reserved_bytes == 24 * MIB


def test_free_neighbours_of_a_segment_join() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(30 * MIB))
    parts = [allocator.allocate(10 * MIB) for _ in range(3)]
    for part in (parts[0], parts[2], parts[1]):
        allocator.free(part)
    allocator.allocate(30 * MIB)
    assert allocator.reserved_bytes == 30 * MIB


def test_streams_do_not_share_blocks() -> None:
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(32 * MIB, stream=0))
    allocator.allocate(32 * MIB, stream=1)
    assert allocator.reserved_bytes == 64 * MIB


SIZES = st.integers(min_value=1, max_value=300 * MIB)
SCRIPTS = st.lists(st.tuples(SIZES, st.integers(min_value=0, max_value=1), st.integers(min_value=0)), max_size=60)
"""Bytes to allocate, on which stream, and which living tensor to free afterwards, if any."""
LIMITS = st.sampled_from((None, 20 * MIB, 64 * MIB))
"""From how many bytes on blocks are not split."""


def _play(script: list[tuple[int, int, int]], allocator: CachingAllocator) -> int:
    """Play a script to its end, when nothing lives; the most bytes that were asked for at a time."""
    living: list[tuple[int, object]] = []
    most = 0
    for size, stream, number in script:
        living.append((size, allocator.allocate(size, stream)))
        most = max(most, sum(each for each, _ in living))
        if number % 3 and living:
            allocator.free(living.pop(number % len(living))[1])  # type: ignore[arg-type]
    while living:
        allocator.free(living.pop()[1])  # type: ignore[arg-type]
    return most


@given(script=SCRIPTS, expandable=st.booleans(), limit=LIMITS)
def test_what_is_reserved_holds_what_is_allocated_and_nothing_is_lost(
    script: list[tuple[int, int, int]],
    *,
    expandable: bool,
    limit: int | None,
) -> None:
    allocator = CachingAllocator(expandable=expandable, maximum_split_bytes=limit)
    asked = _play(script, allocator)
    assert asked <= allocator.peak_allocated_bytes <= allocator.reserved_bytes
    assert allocator.allocated_bytes == 0


@given(script=SCRIPTS, expandable=st.booleans())
def test_from_some_repetition_on_a_script_reserves_nothing_more(
    script: list[tuple[int, int, int]],
    *,
    expandable: bool,
) -> None:
    allocator = CachingAllocator(expandable=expandable)
    for _ in range(8):
        _play(script, allocator)
    before = allocator.reserved_bytes
    _play(script, allocator)
    assert allocator.reserved_bytes == before
