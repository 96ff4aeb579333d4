"""What the operator remembers of the living requests: little enough that thousands fit in memory.

Nothing is decided from it. It answers three questions: which requests are there (metrics), which depend on a
ConfigMap (re-projection), and is this event news or the echo of our own write.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from projection_operator.api.names import Key
from projection_operator.api.spec import Request, parse_request


@dataclass(frozen=True, kw_only=True, slots=True)
class Remembered:
    """One living request."""

    resource_version: str
    """Version as last seen."""
    config_maps: frozenset[str]
    """ConfigMaps of its namespace that its answer depends on."""
    mode: str
    """`spec.profiling.mode`."""
    figures: Mapping[str, Any]
    """The short fields of its status."""


_FIGURES = ("model", "verdict", "hardware", "throughput", "conditions", "completionTime")


class Store:
    """The living requests by key."""

    def __init__(self) -> None:
        """Empty."""
        self._requests: dict[Key, Remembered] = {}

    def __len__(self) -> int:
        """How many requests live."""
        return len(self._requests)

    def put(self, body: Mapping[str, Any]) -> bool:
        """Remember an object as the API server shows it; False when this or a later version is known already."""
        request = parse_request(body)
        known = self._requests.get(request.key)
        if known is not None and not _is_later(request.resource_version, known.resource_version):
            return False
        self._requests[request.key] = _remembered(request)
        return True

    def remove(self, key: Key) -> None:
        """Forget an object that is gone."""
        self._requests.pop(key, None)

    def items(self) -> Iterator[tuple[Key, Remembered]]:
        """All of them, from a copy: scrapes may interleave with changes."""
        return iter(sorted(self._requests.items()))

    def keys(self) -> frozenset[Key]:
        """All keys."""
        return frozenset(self._requests)

    def depending_on(self, config_map: Key) -> list[Key]:
        """Requests whose answer depends on a ConfigMap."""
        return [
            key
            for key, request in self._requests.items()
            if key.namespace == config_map.namespace and config_map.name in request.config_maps
        ]


def _is_later(version: str, known: str) -> bool:
    """Whether a resource version comes after a known one.

    Versions of one kind are decimal numbers that grow (Kubernetes documentation, "API concepts", "Resource version
    strings"); where they are not, any other version counts as later.
    """
    if version.isdecimal() and known.isdecimal():
        return int(version) > int(known)
    return version != known


def _remembered(request: Request) -> Remembered:
    figures = {name: request.status[name] for name in _FIGURES if name in request.status}
    memory = request.status.get("memory") or {}
    figures["memory"] = {name: memory[name] for name in ("perDevice", "components") if name in memory}
    return Remembered(
        resource_version=request.resource_version,
        config_maps=request.config_maps,
        mode=request.profiling_mode,
        figures=figures,
    )
