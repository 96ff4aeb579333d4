"""A backward beside the forward of another micro batch holds parts of one layer of it."""

from dataclasses import replace

from projector.job import Target
from projector.layers import layer_operations
from projector.memory.footprint import Footprint, before_experts, beside_forward, joined, layer_footprint
from projector.parallelism import resolve
from projector.projection import MemoryLevel
from tests.memory.test_expert_memory import PADDED, V2, asked, projected


def halves() -> tuple[Footprint, Footprint]:
    """A layer with experts, and its half in front of them."""
    job = asked(V2)
    layout = resolve(job, Target(device="B200", nodes=1, devices_per_node=8))
    operations = layer_operations(job.model.layers[-1], job, layout)
    return layer_footprint(operations, frozenset()), layer_footprint(before_experts(operations), frozenset())


def allocated(*, overlap: bool, expert: int) -> int:
    software = replace(PADDED, overlap_expert_parallel=overlap)
    memory = projected(asked(V2, software=software, expert=expert))
    return memory.worst.level_bytes(MemoryLevel.ALLOCATED)


def test_the_experts_backward_stands_on_the_others_attention() -> None:
    layer, attention = halves()
    assert 0 < attention.saved < layer.saved
    chunk = joined([(3, layer)])
    rise = beside_forward(chunk, chunk, [layer], [attention]).backward.size_bytes - chunk.backward.size_bytes
    assert attention.saved <= rise < layer.forward.size_bytes


def test_a_head_that_stands_higher_decides_as_before() -> None:
    layer, attention = halves()
    high = replace(layer, backward=replace(layer.backward, size_bytes=100 * layer.saved))
    whole = joined([(3, layer), (1, high)])
    assert beside_forward(whole, joined([(3, layer)]), [layer], [attention]) is whole


def test_the_whole_answer_rises_by_less_than_a_layer() -> None:
    rise = allocated(overlap=True, expert=8) - allocated(overlap=False, expert=8)
    assert 0 <= rise <= halves()[0].forward.size_bytes


def test_without_expert_parallelism_nothing_rises() -> None:
    assert allocated(overlap=True, expert=1) == allocated(overlap=False, expert=1)
