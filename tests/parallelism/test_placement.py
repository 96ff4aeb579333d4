"""Where groups lie, beside groups that are enumerated from coordinates of every rank."""

from collections import Counter
from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projector.job import Target
from projector.operations import Group
from projector.parallelism import Layout, Placement, resolve
from tests.performance.jobs import LLAMA_8B, MIXTRAL, a_job, gpt, project

DEGREE = st.sampled_from([1, 2, 3, 4, 8])


def groups(sizes: dict[str, int], members: tuple[str, ...]) -> list[list[int]]:
    """Ranks that differ in the coordinates of `members` alone, the first dimension being the fastest."""
    names = list(sizes)
    found: dict[tuple[int, ...], list[int]] = {}
    strides = {name: prod(list(sizes.values())[:index]) for index, name in enumerate(names)}
    for where in product(*(range(sizes[name]) for name in names)):
        coordinates = dict(zip(names, where, strict=True))
        rank = sum(coordinates[name] * strides[name] for name in names)
        found.setdefault(tuple(coordinates[name] for name in names if name not in members), []).append(rank)
    return [sorted(ranks) for ranks in found.values()]


def widest(found: list[list[int]], per_node: int) -> tuple[int, int, int]:
    """Size, nodes and most ranks on one, of the group that spreads most."""
    counts = [Counter(rank // per_node for rank in group) for group in found]
    worst = max(counts, key=lambda nodes: (len(nodes), -max(nodes.values())))
    return sum(worst.values()), len(worst), max(worst.values())


def placed(layout: Layout, group: Group) -> tuple[int, int, int]:
    found: Placement = layout.placement(group)
    return found.size, found.nodes, found.ranks_per_node


@given(
    before=st.booleans(),
    tensor=DEGREE,
    context=st.sampled_from([1, 2, 4]),
    pipeline=st.sampled_from([1, 2, 4]),
    per_node=st.sampled_from([4, 8]),
    data=DEGREE,
)
def test_dense_groups_are_those_of_megatrons_numbering(
    *, before: bool, tensor: int, context: int, pipeline: int, per_node: int, data: int
) -> None:
    world = tensor * context * pipeline * data
    if world % per_node or LLAMA_8B.layers[0].mixer.heads % tensor or 32 % pipeline:  # type: ignore[union-attr]
        return
    job = a_job(
        gpt(32, 4096, 32, 51200),
        tensor=tensor,
        context=context,
        pipeline=pipeline,
        batch=data * 16,
        pipeline_before_data=before,
    )
    layout = resolve(job, Target(device="MI300X", nodes=world // per_node, devices_per_node=per_node))
    last = {"pp": pipeline, "dp": data} if before else {"dp": data, "pp": pipeline}
    sizes = {"tp": tensor, "cp": context, **last}
    stages = groups(sizes, ("pp",))
    expected = {
        Group.TENSOR: groups(sizes, ("tp",)),
        Group.CONTEXT: groups(sizes, ("cp",)),
        Group.DATA: groups(sizes, ("cp", "dp")),
        Group.PIPELINE: stages,
    }
    if pipeline > 1:
        expected[Group.EMBEDDING] = [[group[0], group[-1]] for group in stages]
    for group, found in expected.items():
        assert placed(layout, group) == widest(found, per_node), group
    for rank in range(pipeline):
        pairs = {(group[rank], group[(rank + 1) % pipeline]) for group in stages}
        assert set(layout.following(rank)) == pairs


@given(
    before=st.booleans(),
    expert_tensor=st.sampled_from([1, 2, 4]),
    pipeline=st.sampled_from([1, 2, 4]),
    expert=st.sampled_from([1, 2, 4, 8]),
    copies=DEGREE,
)
def test_groups_of_experts_are_those_of_megatrons_numbering(
    *, before: bool, expert_tensor: int, pipeline: int, expert: int, copies: int
) -> None:
    world = expert_tensor * pipeline * expert * copies
    if world % 8:
        return
    job = a_job(
        MIXTRAL,
        tensor=expert_tensor,
        expert_tensor=expert_tensor,
        pipeline=pipeline,
        expert=expert,
        batch=world * 4,
        pipeline_before_data=before,
    )
    layout = resolve(job, Target(device="MI300X", nodes=world // 8, devices_per_node=8))
    last = {"pp": pipeline, "dp": copies} if before else {"dp": copies, "pp": pipeline}
    sizes = {"tp": expert_tensor, "ep": expert, **last}
    for group, members in {
        Group.EXPERT_TENSOR: ("tp",),
        Group.EXPERT: ("ep",),
        Group.EXPERT_DATA: ("dp",),
    }.items():
        assert placed(layout, group) == widest(groups(sizes, members), 8), group


@pytest.mark.parametrize(("every", "ranks", "nodes"), [(1, 8, 1), (8, 4, 4), (2, 4, 1)])
def test_a_part_of_a_group_lies_where_its_ranks_do(every: int, ranks: int, nodes: int) -> None:
    layout = resolve(a_job(), Target(device="MI300X", nodes=4, devices_per_node=8))
    assert layout.placement(Group.DATA, ranks=ranks, every=every).nodes == nodes


def test_stages_in_one_node_exchange_over_its_links_and_reduce_over_the_network() -> None:
    """Four stages of tensor-parallel pairs fill a node where they come before data parallelism."""
    apart, together = (
        project(a_job(tensor=2, pipeline=4, pipeline_before_data=before), nodes=4) for before in (False, True)
    )
    steps = [{step.name: step.seconds for step in each.waterfall} for each in (apart, together)]
    sends, reduces = "exposed pipeline-parallel communication", "exposed data-parallel communication"
    assert steps[1][sends] < steps[0][sends]
    assert steps[1][reduces] > steps[0][reduces]
