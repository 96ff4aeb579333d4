"""A merge patch turns one status into another, as RFC 7386 has it applied."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from projection_operator.cluster.mergepatch import merge_patch

LEAVES = st.one_of(st.booleans(), st.integers(), st.text(max_size=5), st.lists(st.integers(), max_size=3))
DOCUMENTS = st.recursive(
    st.dictionaries(st.sampled_from("abcd"), LEAVES, max_size=4),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), st.one_of(LEAVES, inner), max_size=4),
    max_leaves=12,
)


def applied(target: Any, patch: Any) -> Any:  # noqa: ANN401 - the algorithm of the RFC works on any JSON
    """RFC 7386, section 2, word for word."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = applied(result.get(name), value)
    return result


@settings(deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_the_patch_leads_from_old_to_new(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert applied(old, merge_patch(old, new)) == new


@settings(deadline=None)
@given(DOCUMENTS)
def test_nothing_is_written_where_nothing_differs(document: dict[str, Any]) -> None:
    assert merge_patch(document, document) == {}
