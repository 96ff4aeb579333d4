"""Real pods on a real kubelet, with GPUs handed out by a device plugin."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.clusters import CHECKOUT
from tests.kubelet.image import NAME as IMAGE
from tests.kubelet.node import NODE
from tests.kubelet.sandbox import control_group, left_groups

GPU = "amd.com/gpu"
END_SECONDS = 60.0

RESTRICTED: Mapping[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": 1000,
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""The strictest Pod Security level."""


def apply_job(cluster: ControlPlane, namespace: str, name: str, gpus: int, part: str = "devices") -> None:
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "args": [part],
        "securityContext": RESTRICTED,
        "resources": {"limits": {GPU: str(gpus)}},
    }
    pod = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": namespace}}
    cluster.apply(job | {"spec": {"backoffLimit": 0, "template": {"spec": pod}}})


def the_pod(cluster: ControlPlane, namespace: str) -> dict[str, Any]:
    (pod,) = cluster.get("pods", f"--namespace={namespace}")["items"]
    return dict(pod)


@pytest.mark.parametrize("gpus", [1, 3, 8])
def test_a_job_sees_its_gpus_and_no_others(node_cluster: ControlPlane, namespace: str, gpus: int) -> None:
    here = f"--namespace={namespace}"
    node_cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    apply_job(node_cluster, namespace, "devices", gpus)
    node_cluster.wait("condition=Complete", here, "job/devices")
    pod = the_pod(node_cluster, namespace)
    assert pod["spec"]["nodeName"] == NODE
    kfd, *devices = pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"].splitlines()
    assert kfd == "/dev/kfd"
    assert len(set(devices)) == gpus
    assert set(devices) <= {f"/dev/dri/renderD{128 + index}" for index in range(8)}
    assert node_cluster.kubectl("logs", here, "job/devices").splitlines() == [kfd, *devices]


def test_a_job_that_wants_more_gpus_than_the_node_has_waits(node_cluster: ControlPlane, namespace: str) -> None:
    here = f"--namespace={namespace}"
    apply_job(node_cluster, namespace, "greedy", 9)
    node_cluster.wait("jsonpath={.status.active}=1", here, "job/greedy")
    name = the_pod(node_cluster, namespace)["metadata"]["name"]
    node_cluster.wait("condition=PodScheduled=false", here, f"pod/{name}")
    (condition,) = the_pod(node_cluster, namespace)["status"]["conditions"]
    assert f"Insufficient {GPU}" in condition["message"]


def test_a_program_that_fails_fails_its_job_with_its_exit_code(node_cluster: ControlPlane, namespace: str) -> None:
    apply_job(node_cluster, namespace, "broken", 1, part="no-such-part")
    node_cluster.wait("condition=Failed", f"--namespace={namespace}", "job/broken")
    terminated = the_pod(node_cluster, namespace)["status"]["containerStatuses"][0]["state"]["terminated"]
    assert terminated["exitCode"] == 1
    assert 'unknown part "no-such-part"' in node_cluster.kubectl("logs", f"--namespace={namespace}", "job/broken")


def test_the_machines_settings_are_left_alone(node_cluster: ControlPlane) -> None:
    assert node_cluster.get(f"node/{NODE}")
    outside = {line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()}
    assert not any("kubelet" in path or "containerd" in path or path.startswith("/proc/sys") for path in outside)
    links = subprocess.run(["ip", "-oneline", "link"], capture_output=True, text=True, check=True).stdout
    assert "outside@" not in links


def heed_interrupts() -> None:
    # A shell starts background jobs with SIGINT ignored, and that is inherited.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_nothing_is_left_behind_when_the_owner_is_hit_by(number: signal.Signals, node_cluster: ControlPlane) -> None:
    script = (
        "import sys\n"
        "from tests.kubelet.sandbox import running_node\n"
        "with running_node(lambda line: None) as cluster:\n"
        "    print(cluster.folder, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        preexec_fn=heed_interrupts,  # noqa: PLW1509 - only a system call
    ) as owner:
        assert owner.stdout is not None
        folder = Path(owner.stdout.readline().strip())
        assert folder != node_cluster.folder
        # Process 1 of the namespace; the kernel reports its end only after everything inside has ended.
        unshare = _child_of(owner.pid)
        inside = os.pidfd_open(_child_of(unshare))
        os.kill(owner.pid, number)
        assert select.select([inside], [], [], END_SECONDS)[0], "the node does not end"
        os.close(inside)
    assert not folder.exists()
    # Nobody is left to remove control groups after SIGKILL; the next start does.
    assert bool(left_groups()) == (number is signal.SIGKILL)
    with control_group():
        assert left_groups() == []


def _child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
