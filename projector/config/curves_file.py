"""Reading the measured curves of collectives of a calibration file (docs/calibration.md)."""

from collections.abc import Mapping
from itertools import pairwise

from projector.catalog import CollectiveTimes
from projector.config.figures import GIGA, MICRO, number, width
from projector.config.nearest import nearest
from projector.errors import ConfigurationError, shown

SECTION = "collectives"
COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "all2all": "all_to_all",
    "send_recv": "send_recv",
}
"""Names of collectives in files, by `CollectiveKind`."""
_TIMES, _RATES = "bytes_and_us", "bytes_and_bus_gb_per_s"
_KEYS = ("collective", "ranks", "nodes", _TIMES, _RATES, "source")
_LARGEST_MESSAGE = 2**50
"""More bytes than any message has."""


def read_curves(entries: Mapping[str, object], place: str) -> tuple[CollectiveTimes, ...]:
    """Times of collectives by message size.

    Raises `ConfigurationError` that names the key, its value and what would be right.
    """
    here = f"{place}: {SECTION}"
    listed = entries.get(SECTION, [])
    if not isinstance(listed, list):
        raise ConfigurationError(shown(listed), place=here, expected=f"expected a list of maps of {', '.join(_KEYS)}")
    found = tuple(_curve(entry, f"{here}[{index}]") for index, entry in enumerate(listed))
    for index, curve in enumerate(found):
        if curve[:3] in [earlier[:3] for earlier in found[:index]]:
            what = f"a second curve of {curve.collective} over {curve.ranks} ranks on {curve.nodes} nodes"
            raise ConfigurationError(what, place=f"{here}[{index}]", expected="one curve for each group")
    return found


def _curve(entry: object, place: str) -> CollectiveTimes:
    if not isinstance(entry, Mapping):
        raise ConfigurationError(f"{shown(entry)} is not a map", place=place, expected=f"keys {', '.join(_KEYS)}")
    for key in entry:
        if key not in _KEYS:
            raise ConfigurationError("is not a known key", place=f"{place}.{key}", expected=nearest(key, _KEYS))
    name = entry.get("collective")
    if not isinstance(name, str) or name not in COLLECTIVES:
        expected = f"expected one of {', '.join(dict.fromkeys(COLLECTIVES.values()))}"
        raise ConfigurationError(shown(name), place=f"{place}.collective", expected=expected)
    kind = COLLECTIVES[name]
    pair = {"ranks": 2, **entry} if kind == "send_recv" else entry
    ranks, nodes = width(pair, "ranks", place, least=2), width(entry, "nodes", place)
    if ranks % nodes or (kind == "send_recv" and ranks != 2):  # noqa: PLR2004 - a send has two ends
        expected = "2 for send_recv" if kind == "send_recv" else "as many ranks on each of the nodes"
        raise ConfigurationError(f"{ranks} on {nodes} nodes", place=f"{place}.ranks", expected=f"expected {expected}")
    return CollectiveTimes(kind, ranks, nodes, _seconds(entry, kind, ranks, place))


def _seconds(entry: Mapping[str, object], kind: str, ranks: int, place: str) -> tuple[tuple[int, float], ...]:
    """Times of messages, from times or from bus bandwidth as nccl-tests and rccl-tests print it."""
    if (_TIMES in entry) is (_RATES in entry):
        raise ConfigurationError("needs one of its two forms", place=place, expected=f"{_TIMES} or {_RATES}")
    key = _TIMES if _TIMES in entry else _RATES
    rows, here = entry[key], f"{place}.{key}"
    if not isinstance(rows, list) or not rows:
        raise ConfigurationError(shown(rows), place=here, expected="expected a list of pairs")
    share = {"all_reduce": 2 * (ranks - 1) / ranks, "send_recv": 1.0}.get(kind, (ranks - 1) / ranks)
    found = []
    for index, row in enumerate(rows):
        at = f"{here}[{index}]"
        if not isinstance(row, list) or len(row) != 2:  # noqa: PLR2004 - a pair
            raise ConfigurationError(shown(row), place=at, expected="expected two values, bytes and a figure")
        pair = {"bytes": row[0], "figure": row[1]}
        size, figure = width(pair, "bytes", at, most=_LARGEST_MESSAGE), number(pair, "figure", at)
        found.append((size, figure * MICRO if key == _TIMES else share * size / (figure * GIGA)))
    if any(after[0] <= before[0] for before, after in pairwise(found)):
        raise ConfigurationError(shown([size for size, _ in found]), place=here, expected="expected ascending bytes")
    return tuple(found)
