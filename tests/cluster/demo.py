"""`python -m tests.cluster.demo`: the whole product once, on a real control plane, with its output to read.

Uses the cluster of `PROJECTION_TEST_KUBECONFIG` when that is set; there the kind, the service account and its rights
stay when it ends. A control plane of its own is stopped and leaves nothing.
"""

import contextlib
import os
import secrets
import sys
import time
from collections.abc import Iterator
from typing import Any

from tests.cluster.controlplane import ControlPlane, ControlPlaneError, UnavailableError, cluster_for_tests
from tests.cluster.controlplane.plane import GIVEN_CLUSTER
from tests.cluster.operator_process import (
    ACCOUNT,
    DEFINITION,
    ROOT,
    RULES,
    SYSTEM_NAMESPACE,
    OperatorProcess,
    account,
    install,
    running_operator,
)

SAMPLE = ROOT / "samples" / "projectionrequest.yaml"
NAME = "llama3.1-70b-mi300x"


def say(line: str) -> None:
    """One line of progress."""
    print(f"==> {line}", flush=True)


def main() -> int:
    """Run the demonstration; 2 when this machine lacks something, 1 when something failed."""
    try:
        say("looking for a control plane: a given one, downloaded binaries, or a build from Go modules")
        with cluster_for_tests(say) as plane:
            say(f"the API server answers at {plane.url}")
            show(plane)
    except UnavailableError as error:
        print(error, file=sys.stderr)
        return 2
    except (ControlPlaneError, AssertionError) as error:
        print(f"failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    say("stopped everything that was started")
    if os.environ.get(GIVEN_CLUSTER):
        say(f"the given cluster keeps the definition, the operator's rights and namespace {SYSTEM_NAMESPACE}")
    return 0


def show(plane: ControlPlane) -> None:
    """Install, ask, print the answer, clean up."""
    say(f"applying {DEFINITION.relative_to(ROOT)}: the cluster learns the kind ProjectionRequest")
    install(plane)
    say(f"giving service account {SYSTEM_NAMESPACE}/{ACCOUNT} the rights of {RULES.relative_to(ROOT)}, and no others")
    kubeconfig = account(plane)
    say("starting the operator as that service account")
    with scratch_namespace(plane) as namespace, running_operator(kubeconfig) as operator:
        here = f"--namespace={namespace}"
        say(f"kubectl apply -f {SAMPLE.relative_to(ROOT)}: will Llama 3.1 70B train on 64 MI300X, and how fast?")
        started = time.monotonic()
        plane.kubectl("apply", here, "-f", str(SAMPLE))
        say(f"kubectl wait --for=condition=Completed projreq/{NAME}")
        plane.wait("condition=Completed", here, f"projreq/{NAME}")
        say(f"answered {time.monotonic() - started:.2f} s after kubectl apply began")
        say("kubectl get projreq -o wide")
        print(plane.kubectl("get", "projreq", here, "--output=wide"))
        say("the status of the request")
        print_status(plane.get("projreq", NAME, here)["status"])
        print_metrics(operator, namespace)


@contextlib.contextmanager
def scratch_namespace(plane: ControlPlane) -> Iterator[str]:
    """A namespace for the length of the block."""
    name = f"demo-{secrets.token_hex(3)}"
    plane.kubectl("create", "namespace", name)
    try:
        yield name
    finally:
        plane.kubectl("delete", "namespace", name, "--wait=false")


def print_status(status: dict[str, Any]) -> None:
    """The status for people."""
    for item in status["conditions"]:
        print(f"  {item['type']}={item['status']} ({item['reason']}): {item['message']}")
    memory, throughput = status["memory"], status["throughput"]
    print("  memory of the fullest GPU:")
    for name, size in memory["perDevice"].items():
        print(f"    {name:<44}{size:>12}")
    print("  made of:")
    for part in memory["components"]:
        print(f"    {part['name']:<44}{part['size']:>12}")
    print("  throughput:")
    for name, figure in throughput.items():
        lines = figure if isinstance(figure, list) else []
        print(f"    {name:<44}{'' if lines else figure:>12}")
        for line in lines:
            print(f"      {line}")
    for line in status.get("assumed", []):
        print(f"  assumed: {line}")
    for item in status.get("unmodelled", []):
        print(f"  not modelled: {item['what']} ({item['where']}): {item['effect']}")
    print(f"  report with all tables: ConfigMap {status['reportRef']['name']}\n")


def print_metrics(operator: OperatorProcess, namespace: str) -> None:
    """The series of the request, as Prometheus would scrape them."""
    say(f"{operator.address}/metrics, the series of this request")
    for series, value in operator.series(namespace, NAME).items():
        print(f"  {series} {value:.12g}")
    print()


if __name__ == "__main__":
    sys.exit(main())
