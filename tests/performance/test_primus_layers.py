"""Every layer that can be compared with Primus's simulation is explained by a group, and lies in the group's range."""

from functools import cache

import pytest

from tests.config.primus_tree import REFERENCE, ROOT, needs_reference, needs_tree
from tests.performance.primus_layers import Group, LayerRow, group_of, groups, rows

LEAST_ROWS = 100


@cache
def compared() -> tuple[LayerRow, ...]:
    return tuple(rows(REFERENCE, ROOT))


@needs_tree
@needs_reference
def test_every_row_has_a_reason_and_lies_in_its_range() -> None:
    assert len(compared()) >= LEAST_ROWS
    for row in compared():
        group = group_of(row)
        assert group is not None, row
        low, high = group.forward
        assert low <= row.ratio.forward <= high, row
        low, high = group.backward
        assert low <= row.ratio.backward <= high, row


@needs_tree
@needs_reference
@pytest.mark.parametrize("group", groups(), ids=lambda group: group.title)
def test_every_group_has_rows(group: Group) -> None:
    assert any(group_of(row) == group for row in compared())


@needs_tree
@needs_reference
def test_plain_dense_layers_on_mi355x_agree_within_a_fifth_on_average() -> None:
    dense = [row for row in compared() if group_of(row) == groups()[-1]]
    mean = sum(row.ratio.forward for row in dense) / len(dense)
    assert 1 / 1.2 <= mean <= 1.2


@pytest.mark.parametrize("group", groups(), ids=lambda group: group.title)
def test_every_group_says_why(group: Group) -> None:
    assert len(group.because.split()) >= 20
    assert 0 < group.forward[0] < group.forward[1]
    assert 0 < group.backward[0] < group.backward[1]
