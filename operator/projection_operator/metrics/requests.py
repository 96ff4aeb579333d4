"""Series of the living requests, made from the statuses at each scrape: a request that is gone leaves none behind.

All are keyed by namespace and name; what they are about stands once, in `projection_request_info`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from projection_operator.api.conditions import ConditionStatus, ConditionType, condition_of, moment_of
from projection_operator.api.names import Key
from projection_operator.api.quantity import bytes_of
from projection_operator.store import Remembered, Store

IDENTITY = ("namespace", "name")
UNKNOWN = "unknown"
"""Label value for what is not known yet."""

Sample = tuple[tuple[str, ...], float]
"""Values of the labels beyond the identity, and the value of the series."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Family:
    """One metric."""

    name: str
    """Name with its unit."""
    help: str
    """One line for people."""
    labels: tuple[str, ...] = ()
    """Labels beyond namespace and name."""
    samples: Callable[[Remembered], Iterator[Sample]]
    """Its series for one request."""


def _info(request: Remembered) -> Iterator[Sample]:
    device = request.figures.get("hardware", {}).get("device", UNKNOWN)
    yield (request.figures.get("model", UNKNOWN), device, request.mode), 1.0


def _condition(kind: ConditionType) -> Callable[[Remembered], Iterator[Sample]]:
    def samples(request: Remembered) -> Iterator[Sample]:
        status = condition_of(request.figures, kind).get("status", ConditionStatus.UNKNOWN)
        if status != ConditionStatus.UNKNOWN:
            yield (), float(status == ConditionStatus.TRUE)

    return samples


def _number(*path: str, scale: float = 1.0) -> Callable[[Remembered], Iterator[Sample]]:
    def samples(request: Remembered) -> Iterator[Sample]:
        value = _at(request.figures, path)
        if value is not None:
            yield (), value * scale

    return samples


def _bytes(*path: str) -> Callable[[Remembered], Iterator[Sample]]:
    def samples(request: Remembered) -> Iterator[Sample]:
        text = _at(request.figures, path)
        if text is not None:
            yield (), float(bytes_of(text))

    return samples


def _components(request: Remembered) -> Iterator[Sample]:
    for part in request.figures["memory"].get("components", ()):
        yield (part["name"],), float(bytes_of(part["size"]))


def _verdict(request: Remembered) -> Iterator[Sample]:
    if "verdict" in request.figures:
        yield (request.figures["verdict"],), 1.0


def _throughput(request: Remembered) -> Iterator[Sample]:
    rate = _at(request.figures, ("throughput", "tokensPerSecondPerDevice"))
    devices = _at(request.figures, ("hardware", "devices"))
    if rate is not None and devices is not None:
        yield (), float(rate * devices)


def _completion(request: Remembered) -> Iterator[Sample]:
    if "completionTime" in request.figures:
        yield (), moment_of(request.figures["completionTime"]).timestamp()


def _at(figures: Mapping[str, Any], path: tuple[str, ...]) -> Any:  # noqa: ANN401 - a leaf of a JSON document
    value: Any = figures
    for step in path:
        value = value.get(step) if isinstance(value, Mapping) else None
    return value


FAMILIES = (
    Family(
        name="projection_request_info",
        help="A living ProjectionRequest; always 1.",
        labels=("model", "gpu_product", "mode"),
        samples=_info,
    ),
    Family(
        name="projection_accepted",
        help="Whether the request could be read and its layout is possible (1) or not (0); absent while not known.",
        samples=_condition(ConditionType.ACCEPTED),
    ),
    Family(
        name="projection_completed",
        help="Whether the answer is in the status (1) or not (0); absent while not known.",
        samples=_condition(ConditionType.COMPLETED),
    ),
    Family(
        name="projection_completion_timestamp_seconds",
        help="When the request was completed, seconds since 1970.",
        samples=_completion,
    ),
    Family(
        name="projection_fits",
        help="Whether the job fits in the memory of each GPU (1) or not (0); absent when it is not certain.",
        samples=_condition(ConditionType.FITS),
    ),
    Family(
        name="projection_verdict",
        help="The verdict on memory, as a label; always 1.",
        labels=("verdict",),
        samples=_verdict,
    ),
    Family(
        name="projection_devices",
        help="GPUs that the answer is for.",
        samples=_number("hardware", "devices"),
    ),
    Family(
        name="projection_memory_bytes",
        help="Expected memory of the fullest GPU by component.",
        labels=("component",),
        samples=_components,
    ),
    Family(
        name="projection_memory_lower_bytes",
        help="Lower end of the interval of the fullest GPU's memory.",
        samples=_bytes("memory", "perDevice", "lowerBound"),
    ),
    Family(
        name="projection_memory_upper_bytes",
        help="Upper end of the interval of the fullest GPU's memory.",
        samples=_bytes("memory", "perDevice", "upperBound"),
    ),
    Family(
        name="projection_memory_available_bytes",
        help="Memory that a job can use on one GPU.",
        samples=_bytes("memory", "perDevice", "available"),
    ),
    Family(
        name="projection_throughput_tokens_per_second",
        help="Projected training throughput of the whole job.",
        samples=_throughput,
    ),
    Family(
        name="projection_iteration_seconds",
        help="Projected time of one training iteration.",
        samples=_number("throughput", "iterationTimeMilliseconds", scale=1e-3),
    ),
    Family(
        name="projection_model_flops_utilization_ratio",
        help="Projected model FLOPs over the peak of the GPUs, 0-1.",
        samples=_number("throughput", "modelFlopsUtilizationPercent", scale=1e-2),
    ),
)
"""Every metric about requests. The names are an interface: dashboards and alerts use them."""


class RequestCollector(Collector):
    """Yields the families for the requests that live at the moment of the scrape."""

    def __init__(self, store: Store) -> None:
        """`store` holds the living requests."""
        self._store = store

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All series."""
        living: list[tuple[Key, Remembered]] = list(self._store.items())
        for family in FAMILIES:
            metric = GaugeMetricFamily(family.name, family.help, labels=(*IDENTITY, *family.labels))
            for key, request in living:
                for labels, value in family.samples(request):
                    metric.add_metric((key.namespace, key.name, *labels), value)
            yield metric
