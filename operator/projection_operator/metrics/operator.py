"""Series about the operator's own health, named after controller-runtime's."""

import platform
from collections.abc import Callable
from importlib import metadata

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector

from projection_operator.metrics.requests import RequestCollector
from projection_operator.store import Store
from projection_operator.version import version

RESULTS = ("changed", "unchanged", "gone", "error")
"""How the work on one key can end."""

SECONDS_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class OperatorMetrics:
    """The registry and what the operator counts."""

    def __init__(self, store: Store, *, queue_depth: Callable[[], float], watch_lag: Callable[[], float]) -> None:
        """The two functions are asked at each scrape."""
        self.registry = CollectorRegistry()
        self.registry.register(RequestCollector(store))
        ProcessCollector(registry=self.registry)
        build = Info("projection_operator_build", "What is running.", registry=self.registry)
        build.info(
            {
                "version": version(),
                "kopf_version": metadata.version("kopf"),
                "python_version": platform.python_version(),
            }
        )
        self.reconciled = Counter(
            "projection_reconcile", "Times that a request was looked at.", ("result",), registry=self.registry
        )
        for result in RESULTS:
            self.reconciled.labels(result)
        self.errors = Counter(
            "projection_reconcile_errors", "Times that looking at a request failed.", registry=self.registry
        )
        self.seconds = Histogram(
            "projection_reconcile_time_seconds",
            "Time of one look at a request, the engine's run included.",
            buckets=SECONDS_BUCKETS,
            registry=self.registry,
        )
        depth = Gauge("projection_workqueue_depth", "Requests that wait to be looked at.", registry=self.registry)
        depth.set_function(queue_depth)
        lag = Gauge(
            "projection_watch_lag_seconds",
            "Age of the oldest object that lists show and the watch has not delivered.",
            registry=self.registry,
        )
        lag.set_function(watch_lag)
