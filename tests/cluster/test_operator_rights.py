"""The operator works under the rights of the chart, uses all of them, and in a namespace needs none beyond it."""

import re
from typing import Any

import pytest
import yaml

from tests.cluster.controlplane import ControlPlane
from tests.cluster.operator_process import RULES, OperatorProcess, account, eventually, running_operator
from tests.cluster.requests_for_tests import (
    SAMPLE,
    condition,
    config_map,
    events,
    get,
    request,
    wait_completed,
    wait_gone,
    wait_refused,
)

Right = tuple[str, str, str]

POOL = {"name": "example.com/pool", "value": "projection-test"}
"""A label of the nodes of these tests only."""


pytestmark = pytest.mark.usefixtures("installed")


def node(name: str, product: str) -> dict[str, Any]:
    labels = {POOL["name"]: POOL["value"], "amd.com/gpu.product-name": product}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}


def without_device(name: str, namespace: str) -> dict[str, Any]:
    """A request that leaves the GPU to the labels of the nodes of these tests."""
    profiling = {"podTemplate": {"nodeSelector": [POOL]}}
    return request(name, namespace, target={"nodes": 8}, profiling=profiling)


def granted() -> set[Right]:
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    return {
        (group, resource, verb)
        for rule in rules["namespaced"] + rules["cluster"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(operator: OperatorProcess) -> set[Right]:
    """What the log says was called; kopf lists and then watches each kind that it streams.

    Server-side apply of an object that is not there yet is checked for `create` as well as `patch` (Kubernetes
    documentation, "Server-Side Apply", "API implementation").
    """
    calls = {(line["group"], line["resource"], line["verb"]) for line in operator.lines("API call")}
    if ("", "configmaps", "patch") in calls:
        calls.add(("", "configmaps", "create"))
    groups = {"configmaps": "", "projectionrequests": "projection.dev"}
    for line in list(operator.log):
        streamed = re.match(r"Starting the watch-stream for (\w+)\.", line["message"])
        if streamed:
            calls |= {(groups[streamed[1]], streamed[1], verb) for verb in ("list", "watch")}
    return calls


def test_every_right_is_used_and_none_is_missing(control_plane: ControlPlane, namespace: str) -> None:
    reference = {"configMapRef": {"name": "training", "key": "job.yaml"}}
    with running_operator(account(control_plane), "--log-level=debug") as operator:
        control_plane.apply(request("brief", namespace, ttlSecondsAfterFinished=0), without_device("nodes", namespace))
        wait_gone(control_plane, namespace, "brief")
        wait_refused(control_plane, namespace, "nodes")
        control_plane.apply(request("counted", namespace, training=reference))
        for _ in range(2):
            wait_refused(control_plane, namespace, "counted")
            control_plane.apply(config_map("training", namespace, {"job.yaml": SAMPLE}))
            wait_completed(control_plane, namespace, "counted")
            control_plane.kubectl("delete", "configmap", "training", f"--namespace={namespace}")
        eventually(lambda: granted() <= used(operator), what="every right to be used")
        assert used(operator) == granted()
        # Requests of other tests may be in namespaces that are being deleted, where nothing can be written any more.
        ours = [line for line in operator.log if line.get("request", namespace).startswith(namespace)]
        # A time stamp may well hold 403.
        told = [str({field: value for field, value in line.items() if field != "time"}) for line in ours]
        assert not [text for text in told if re.search(r"\b403\b|orbidden", text)]


def test_nodes_that_agree_decide_the_device_and_nodes_that_differ_do_not(
    control_plane: ControlPlane, namespace: str
) -> None:
    nodes = [node(f"{namespace}-1", "AMD_Instinct_MI300X_OAM"), node(f"{namespace}-2", "AMD_Instinct_MI325X_OAM")]
    kubeconfig = account(control_plane)
    try:
        control_plane.apply(nodes[0], without_device("agreed", namespace))
        with running_operator(kubeconfig):
            wait_completed(control_plane, namespace, "agreed")
        hardware = get(control_plane, namespace, "agreed")["status"]["hardware"]
        assert hardware == {"device": "MI300X", "devices": 64, "nodes": 8, "source": "NodeLabels"}
        control_plane.apply(nodes[1], without_device("disputed", namespace))
        with running_operator(kubeconfig):
            wait_refused(control_plane, namespace, "disputed")
        refused = condition(get(control_plane, namespace, "disputed"), "Accepted")
        assert refused["reason"] == "DeviceUnknown"
        assert "MI300X, MI325X" in refused["message"]
    finally:
        control_plane.kubectl("delete", "node", "--ignore-not-found", *(body["metadata"]["name"] for body in nodes))


def test_in_one_namespace_it_needs_no_right_over_the_cluster(control_plane: ControlPlane, namespace: str) -> None:
    elsewhere = f"{namespace}-elsewhere"
    control_plane.kubectl("create", "namespace", elsewhere)
    kubeconfig = account(control_plane, f"only-{namespace}", only_in=(namespace,))
    try:
        with running_operator(kubeconfig, f"--namespace={namespace}") as operator:
            control_plane.apply(
                request("here", namespace, ttlSecondsAfterFinished=3600),
                request("there", elsewhere),
                without_device("unnamed", namespace),
                config_map("training", namespace, {"job.yaml": SAMPLE}),
                request("mapped", namespace, training={"configMapRef": {"name": "training", "key": "job.yaml"}}),
            )
            wait_completed(control_plane, namespace, "here", "mapped")
            wait_refused(control_plane, namespace, "unnamed")
            message = condition(get(control_plane, namespace, "unnamed"), "Accepted")["message"]
            assert "may not read the labels of nodes" in message
            assert "status" not in get(control_plane, elsewhere, "there")
            assert events(control_plane, namespace, "here")
            assert not [line for line in operator.log if line["level"] in {"warning", "error", "critical", "raw"}]
    finally:
        control_plane.kubectl("delete", "namespace", elsewhere, "--wait=false")


def test_two_namespaces_are_served_side_by_side(control_plane: ControlPlane, namespace: str) -> None:
    second = f"{namespace}-second"
    control_plane.kubectl("create", "namespace", second)
    kubeconfig = account(control_plane, f"two-{namespace}", only_in=(namespace, second))
    try:
        with running_operator(kubeconfig, f"--namespace={namespace}", f"--namespace={second}") as operator:
            control_plane.apply(request("one", namespace), request("two", second))
            wait_completed(control_plane, namespace, "one")
            wait_completed(control_plane, second, "two")
            assert operator.series(second, "two")
    finally:
        control_plane.kubectl("delete", "namespace", second, "--wait=false")
