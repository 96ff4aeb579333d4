"""Nothing that happens to the operator or its connection loses an answer or tells it twice."""

import statistics
import subprocess
import threading
import time
from typing import Self

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.interruptible import relayed
from tests.cluster.operator_process import (
    DEFINITION,
    OperatorProcess,
    account,
    eventually,
    install,
    running_operator,
)
from tests.cluster.requests_for_tests import (
    SAMPLE,
    Json,
    condition,
    events,
    exists,
    get,
    reports,
    request,
    wait_completed,
    wait_refused,
)

MIB = 1 << 20


pytestmark = pytest.mark.usefixtures("installed")


def distinct(count: int, namespace: str) -> list[Json]:
    """As many different questions."""
    return [
        request(f"request-{number}", namespace, batch={"global": 192 * (number + 1), "sequenceLength": 8192})
        for number in range(count)
    ]


def names(bodies: list[Json]) -> list[str]:
    return [body["metadata"]["name"] for body in bodies]


def test_kills_at_any_moment_lose_nothing_and_repeat_nothing(control_plane: ControlPlane, namespace: str) -> None:
    bodies = distinct(16, namespace)
    kubeconfig = account(control_plane)
    control_plane.apply(*bodies)
    for survived in (1, 3, 6, 10):
        with OperatorProcess(kubeconfig) as operator:
            eventually(lambda: len(reports(control_plane, namespace)) >= survived, what=f"{survived} reports")  # noqa: B023 - called in this round
            assert operator.process.poll() is None
    with running_operator(kubeconfig):
        wait_completed(control_plane, namespace, *names(bodies))
        owners = [report["metadata"]["ownerReferences"][0]["name"] for report in reports(control_plane, namespace)]
        assert sorted(owners) == sorted(names(bodies))
        told = [
            (event["reason"], event.get("series"))
            for name in names(bodies)
            for event in events(control_plane, namespace, name)
        ]
        assert told == [("Projected", None)] * len(bodies)


def test_a_restart_answers_nothing_again(control_plane: ControlPlane, namespace: str) -> None:
    kubeconfig = account(control_plane)
    control_plane.apply(request("once", namespace))
    with running_operator(kubeconfig):
        wait_completed(control_plane, namespace, "once")
    before = get(control_plane, namespace, "once")
    with running_operator(kubeconfig) as operator:
        eventually(lambda: operator.series(namespace, "once"), what="the series of the request after the restart")
        control_plane.apply(request("next", namespace))
        wait_completed(control_plane, namespace, "next")
    assert get(control_plane, namespace, "once") == before


def test_what_happened_while_nobody_watched_is_caught_up_with(control_plane: ControlPlane, namespace: str) -> None:
    kubeconfig = account(control_plane)
    control_plane.apply(request("expiring", namespace, ttlSecondsAfterFinished=1))
    control_plane.apply(request("deleted", namespace))
    with running_operator(kubeconfig):
        wait_completed(control_plane, namespace, "deleted")
        eventually(lambda: len(reports(control_plane, namespace)) >= 1, what="a report")
    control_plane.kubectl("delete", "projreq", "deleted", f"--namespace={namespace}")
    control_plane.apply(request("created", namespace))
    with running_operator(kubeconfig) as operator:
        wait_completed(control_plane, namespace, "created")
        eventually(lambda: not exists(control_plane, namespace, "expiring"), what="the expired request to go")
        assert not operator.series(namespace, "deleted")


CUT_OFF_STREAM = ("asyncio", "an error occurred during closing of asynchronous generator")
"""Logger and beginning of what is said when the end cuts off a stream of kopf; nothing else may go wrong."""


def test_sigterm_ends_it_cleanly(control_plane: ControlPlane) -> None:
    def watching() -> bool:
        return any(line["message"].startswith("Starting the watch-stream for projectionreq") for line in operator.log)

    with running_operator(account(control_plane), "--log-level=debug") as operator:
        # Before, kopf looks for the kinds it serves, and says many things when that is cut off.
        eventually(watching, what="the watch to begin")
        assert operator.stop() == 0
        wrong = [line for line in operator.log if line["level"] in {"raw", "error", "critical"}]
        logger, words = CUT_OFF_STREAM
        assert not [line for line in wrong if line.get("logger") != logger or not line["message"].startswith(words)]


def test_a_deaf_watch_fails_the_health_check_and_the_operator_answers_all_the_same(
    control_plane: ControlPlane, namespace: str
) -> None:
    with (
        relayed(account(control_plane), control_plane.url) as (relay, kubeconfig),
        running_operator(kubeconfig, "--probe-seconds=0.2", "--deaf-seconds=1") as operator,
    ):
        control_plane.apply(request("heard", namespace))
        wait_completed(control_plane, namespace, "heard")
        assert operator.get("/healthz") == (200, "ok\n")
        relay.silence()
        control_plane.apply(request("unheard", namespace))
        wait_completed(control_plane, namespace, "unheard")
        eventually(lambda: operator.get("/healthz")[0] == 503, what="/healthz to notice")
        assert "the watch has missed changes" in operator.get("/healthz")[1]
        assert "projection_watch_lag_seconds 0.0" not in operator.get("/metrics")[1]


def test_an_outage_of_the_api_server_is_survived(control_plane: ControlPlane, namespace: str) -> None:
    with (
        relayed(account(control_plane), control_plane.url) as (relay, kubeconfig),
        running_operator(kubeconfig, "--probe-seconds=0.2") as operator,
    ):
        relay.refuse(refusing=True)
        control_plane.apply(request("meanwhile", namespace))
        operator.wait_for_log("The API server does not answer lists, going on")
        relay.refuse(refusing=False)
        wait_completed(control_plane, namespace, "meanwhile")
        assert operator.process.poll() is None
        eventually(lambda: operator.get("/healthz")[0] == 200, what="the watch to be back")


def test_requests_that_are_deleted_while_they_are_answered_are_no_trouble(
    control_plane: ControlPlane, namespace: str
) -> None:
    with running_operator(account(control_plane)) as operator:
        for body in distinct(8, namespace):
            body["metadata"]["name"] = "fleeting"
            control_plane.apply(body)
            eventually(lambda: operator.lines("Status written", reason="Pending"), what="the first visit")
            control_plane.kubectl("delete", "projreq", "fleeting", f"--namespace={namespace}")
        control_plane.apply(request("lasting", namespace))
        wait_completed(control_plane, namespace, "lasting")
        eventually(lambda: len(reports(control_plane, namespace)) == 1, what="the other reports to be collected")
        assert {line["level"] for line in operator.log} == {"info"}
        assert "projection_reconcile_errors_total 0.0" in operator.get("/metrics")[1]


def test_the_definition_may_go_and_come_back(control_plane: ControlPlane, namespace: str) -> None:
    with running_operator(account(control_plane), "--probe-seconds=0.2") as operator:
        control_plane.apply(request("before", namespace))
        wait_completed(control_plane, namespace, "before")
        control_plane.kubectl("delete", "-f", str(DEFINITION))
        operator.wait_for_log("The CustomResourceDefinition of ProjectionRequest is missing, waiting for it")
        assert not operator.series(namespace, "before")
        install(control_plane)
        control_plane.apply(request("after", namespace))
        wait_completed(control_plane, namespace, "after")
        operator.wait_until_ready()
        assert operator.stop() == 0


def test_a_question_beyond_all_bounds_is_refused_and_the_next_is_answered(
    control_plane: ControlPlane, namespace: str
) -> None:
    overrides = {
        "num_layers": "4096",
        "pipeline_model_parallel_size": "16",
        "virtual_pipeline_model_parallel_size": "256",
        "use_torch_fsdp2": "false",
        "use_distributed_optimizer": "true",
    }
    named = [{"name": name, "value": value} for name, value in overrides.items()]
    training = {"inline": SAMPLE, "overrides": named}
    with running_operator(account(control_plane), "--engine-seconds=2") as operator:
        control_plane.apply(
            request("monster", namespace, training=training, batch={"global": 576}), request("modest", namespace)
        )
        wait_refused(control_plane, namespace, "monster")
        wait_completed(control_plane, namespace, "modest")
        assert condition(get(control_plane, namespace, "monster"), "Accepted")["reason"] == "ProjectionTooCostly"
        assert operator.process.poll() is None
        assert operator.resident_bytes() < 200 * 10**6


def test_a_hundred_requests_at_once_are_all_answered(control_plane: ControlPlane, namespace: str) -> None:
    bodies = distinct(100, namespace)
    with running_operator(account(control_plane)) as operator, Stopwatch(control_plane, namespace) as watch:
        started = time.monotonic()
        control_plane.apply(*bodies)
        eventually(lambda: len(watch.completed) == len(bodies), what="all answers", seconds=300)
        print(
            f"100 requests at once: all answered in {time.monotonic() - started:.1f} s, "
            f"p50 from creation to Completed {statistics.median(watch.waits()):.2f} s, "
            f"operator {operator.resident_bytes() / MIB:.0f} MiB resident"
        )
        assert operator.resident_bytes() < 200 * 10**6
        assert len(reports(control_plane, namespace)) == len(bodies)
        assert operator.lines("Failed, trying again later") == []


def test_requests_one_after_the_other_are_answered_at_once(control_plane: ControlPlane, namespace: str) -> None:
    bodies = distinct(10, namespace)
    with running_operator(account(control_plane)), Stopwatch(control_plane, namespace) as watch:
        for body in bodies:
            control_plane.apply(body)
            wait_completed(control_plane, namespace, body["metadata"]["name"])
        eventually(lambda: len(watch.completed) == len(bodies), what="all answers")
        print(f"one request at a time: p50 from creation to Completed {statistics.median(watch.waits()):.2f} s")
        assert len(watch.waits()) == len(bodies)


class Stopwatch:
    """Watches requests with kubectl and notes when each appears and when it is completed."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        line = '{.metadata.name} {.status.conditions[?(@.type=="Completed")].status}{"\\n"}'
        self._process = subprocess.Popen(
            [
                plane.kubectl_path,
                f"--kubeconfig={plane.kubeconfig}",
                "get",
                "projreq",
                f"--namespace={namespace}",
                "--watch",
                f"--output=jsonpath={line}",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.created: dict[str, float] = {}
        self.completed: dict[str, float] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._reader.join()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def waits(self) -> list[float]:
        """Seconds from the first sight of a request to its completion."""
        return [moment - self.created[name] for name, moment in self.completed.items()]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, _, status = line.rstrip("\n").partition(" ")
            self.created.setdefault(name, time.monotonic())
            if status == "True":
                self.completed.setdefault(name, time.monotonic())
