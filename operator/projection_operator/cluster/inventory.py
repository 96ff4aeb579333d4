"""Which GPUs the nodes say that they have (labels of AMD's node labeller, ROCm/k8s-device-plugin)."""

import math
import time
from collections.abc import Callable, Mapping

from projection_operator.cluster.client import ApiClient, Forbidden
from projection_operator.cluster.resources import NODES

PRODUCT_LABELS = ("amd.com/gpu.product-name", "beta.amd.com/gpu.product-name")
"""Present and former spelling. A node with different GPUs has `LABEL.PRODUCT=COUNT` instead."""

KEPT_SECONDS = 30.0
"""How long a look at the nodes serves further requests."""
KEPT_SELECTORS = 64
"""For how many selectors a look is kept."""


class Inventory:
    """Looks at the nodes, at most once in a while for each selector."""

    def __init__(self, client: ApiClient, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is read yet; `clock` gives seconds."""
        self._client = client
        self._clock = clock
        self._kept: dict[str, tuple[float, frozenset[str] | None]] = {}

    async def products(self, selector: Mapping[str, str]) -> frozenset[str] | None:
        """Product names over all nodes that carry the labels; None when nodes may not be listed."""
        labels = ",".join(f"{name}={value}" for name, value in sorted(selector.items()))
        read, products = self._kept.get(labels, (-math.inf, None))
        if self._clock() - read < KEPT_SECONDS:
            return products
        products = await self._read(labels)
        self._kept.pop(labels, None)
        self._kept[labels] = (self._clock(), products)
        while len(self._kept) > KEPT_SELECTORS:
            del self._kept[next(iter(self._kept))]
        return products

    async def _read(self, labels: str) -> frozenset[str] | None:
        try:
            nodes = [node async for node in self._client.list_metadata(NODES, None, labels=labels)]
        except Forbidden:
            return None
        return frozenset(product for node in nodes for product in products_of(node["metadata"].get("labels") or {}))


def products_of(labels: Mapping[str, str]) -> frozenset[str]:
    """Product names in the labels of one node, an empty set for a node without GPUs."""
    for label in PRODUCT_LABELS:
        if label in labels:
            return frozenset({labels[label]})
        counted = frozenset(name.removeprefix(f"{label}.") for name in labels if name.startswith(f"{label}."))
        if counted:
            return counted
    return frozenset()
