"""The control plane is a real one, and nothing of it stays behind."""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane import (
    ControlPlane,
    ControlPlaneError,
    cluster_for_tests,
    folders,
    running_control_plane,
)
from tests.cluster.controlplane.binaries import REQUIRED, Binaries, find_binaries
from tests.cluster.controlplane.clusters import CHECKOUT
from tests.cluster.controlplane.components import ADDRESS, reserved_port
from tests.cluster.controlplane.folders import is_running, make_folder, sweep, taken
from tests.cluster.controlplane.plane import GIVEN_CLUSTER, KubectlError

OLDEST_MINOR = 34
GPU = "amd.com/gpu"
COMMAND = [sys.executable, "-m", "tests.cluster.controlplane"]
END_SECONDS = 30.0


@pytest.fixture(scope="module")
def binaries(control_plane: ControlPlane) -> Binaries:
    """Give the programs for a control plane of the test's own."""
    if os.environ.get(GIVEN_CLUSTER):
        pytest.skip(f"{GIVEN_CLUSTER} is set: no control plane is started on this machine")
    assert control_plane.url
    return find_binaries(print)


def container(**requests: str) -> dict[str, Any]:
    return {"name": "main", "image": "none", "resources": {"limits": requests}}


@pytest.fixture
def gpu_node(control_plane: ControlPlane, namespace: str) -> Iterator[str]:
    """Give the name of a node that claims to have eight GPUs; no kubelet stands behind it."""
    name = f"node-{namespace}"
    control_plane.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"test": namespace}}})
    quantities = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "it says so"}
    status = {"status": {"capacity": quantities, "allocatable": quantities, "conditions": [ready]}}
    control_plane.kubectl(
        "patch", "node", name, "--subresource=status", "--type=merge", f"--patch={json.dumps(status)}"
    )
    yield name
    control_plane.kubectl("delete", "node", name, "--wait=false")


def test_the_api_server_is_at_least_as_new_as_the_oldest_supported(control_plane: ControlPlane) -> None:
    version = json.loads(control_plane.kubectl("version", "--output=json"))["serverVersion"]
    assert version["major"] == "1"
    assert int(version["minor"].rstrip("+")) >= OLDEST_MINOR


def test_a_job_gets_a_pod_from_the_controller_manager(control_plane: ControlPlane, namespace: str) -> None:
    template = {"spec": {"restartPolicy": "Never", "nodeSelector": {"no": "such-node"}, "containers": [container()]}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "one", "namespace": namespace}}
    control_plane.apply(job | {"spec": {"template": template}})
    control_plane.wait("jsonpath={.status.active}=1", f"--namespace={namespace}", "job/one")
    (pod,) = control_plane.get("pods", f"--namespace={namespace}")["items"]
    assert [(owner["kind"], owner["name"]) for owner in pod["metadata"]["ownerReferences"]] == [("Job", "one")]


def test_the_scheduler_hands_out_gpus_until_there_are_none(
    control_plane: ControlPlane, namespace: str, gpu_node: str
) -> None:
    for name in ("first", "second"):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}}
        control_plane.apply(
            pod | {"spec": {"nodeSelector": {"test": namespace}, "containers": [container(**{GPU: "5"})]}}
        )
        if name == "first":
            control_plane.wait(f"jsonpath={{.spec.nodeName}}={gpu_node}", f"--namespace={namespace}", "pod/first")
    control_plane.wait("condition=PodScheduled=false", f"--namespace={namespace}", "pod/second")
    second = control_plane.get("pod/second", f"--namespace={namespace}")
    assert f"Insufficient {GPU}" in second["status"]["conditions"][0]["message"]


def test_a_service_account_may_do_what_its_role_allows_and_nothing_else(
    control_plane: ControlPlane, namespace: str
) -> None:
    account = control_plane.kubeconfig_for_service_account(namespace, "default")
    who = json.loads(control_plane.kubectl("auth", "whoami", "--output=json", kubeconfig=account))
    assert who["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:default"

    with pytest.raises(KubectlError, match="Forbidden"):
        control_plane.kubectl("get", "pods", f"--namespace={namespace}", kubeconfig=account)

    here = f"--namespace={namespace}"
    control_plane.kubectl("create", "role", "reader", "--verb=list", "--resource=pods", here)
    control_plane.kubectl(
        "create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={namespace}:default", here
    )
    control_plane.kubectl("get", "pods", here, kubeconfig=account)
    for refused in (["get", "pods", "--namespace=default"], ["get", "configmaps", here]):
        with pytest.raises(KubectlError, match="Forbidden"):
            control_plane.kubectl(*refused, kubeconfig=account)


def test_a_service_account_that_does_not_exist_gets_no_kubeconfig(control_plane: ControlPlane, namespace: str) -> None:
    with pytest.raises(KubectlError, match='serviceaccounts "nobody" not found'):
        control_plane.kubeconfig_for_service_account(namespace, "nobody")


def test_two_control_planes_run_at_once_and_do_not_know_each_other(
    control_plane: ControlPlane, namespace: str, binaries: Binaries
) -> None:
    with running_control_plane(binaries) as second:
        assert second.url != control_plane.url
        with pytest.raises(KubectlError, match="NotFound"):
            second.get("namespace", namespace)
        control_plane.get("namespace", namespace)


def test_the_users_own_cluster_is_never_used(
    control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".kube").mkdir()
    for name in (".kube/config", ".kube/kuberc", "kubeconfig"):
        (tmp_path / name).write_text("garbage: [")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setenv("KUBERC", str(tmp_path / ".kube" / "kuberc"))
    assert control_plane.get("namespace", "default")["metadata"]["name"] == "default"


def test_a_given_kubeconfig_is_used_and_nothing_is_started(control_plane: ControlPlane, namespace: str) -> None:
    with cluster_for_tests(print, {GIVEN_CLUSTER: str(control_plane.kubeconfig)}) as plane:
        assert plane.url == control_plane.url
        plane.get("namespace", namespace)
        assert processes_of(plane.folder) == []


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "No such file"),
        ("garbage: [", "no usable current context"),
        ("current-context: gone\ncontexts: []\nclusters: []", "no usable current context"),
    ],
)
def test_a_given_kubeconfig_that_is_none_is_named(tmp_path: Path, content: str | None, complaint: str) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    with (
        pytest.raises(ControlPlaneError, match=f"{path}.*{complaint}"),
        cluster_for_tests(print, {GIVEN_CLUSTER: str(path)}),
    ):
        pass


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("#!/bin/sh\necho out of luck\nexit 3\n", r"etcd ended with 3[^$]*out of luck"),
        (None, r"etcd ended with 127[^$]*No such file"),
    ],
    ids=["it fails", "it is missing"],
)
def test_a_component_that_does_not_start_is_named_with_the_end_of_its_log(
    script: str | None, complaint: str, binaries: Binaries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs, scratch = tmp_path / "programs", tmp_path / "scratch"
    programs.mkdir()
    scratch.mkdir()
    monkeypatch.setattr(folders, "MEMORY_FOLDER", scratch)
    for program in REQUIRED[1:]:
        (programs / program).symlink_to(binaries.path(program))
    if script:
        (programs / "etcd").write_text(script)
        (programs / "etcd").chmod(0o755)
    with (
        pytest.raises(ControlPlaneError, match=complaint),
        running_control_plane(Binaries(folder=programs, source="test")),
    ):
        pass
    assert list(scratch.iterdir()) == []


def test_a_component_that_dies_later_is_named_at_the_end(binaries: Binaries) -> None:
    with contextlib.ExitStack() as stack:
        plane = stack.enter_context(running_control_plane(binaries))
        (scheduler,) = [pid for pid, command in processes_of(plane.folder) if "/kube-scheduler" in command]
        with watched([scheduler]) as wait:
            os.kill(scheduler, signal.SIGKILL)
            wait()
        with pytest.raises(ControlPlaneError, match="kube-scheduler ended with -9"):
            stack.close()


def test_a_reserved_port_is_given_to_nobody_else() -> None:
    with reserved_port() as first, reserved_port() as second:
        assert first != second
        probe = f"import socket; socket.socket().bind(('{ADDRESS}', {first}))"
        taken = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
        assert "Address already in use" in taken.stderr


def heed_interrupts() -> None:
    # A shell starts background jobs with SIGINT ignored, and that is inherited.
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextlib.contextmanager
def command_with_control_plane() -> Iterator[tuple[subprocess.Popen[str], Path, int]]:
    """Start `run` with a command that waits; give the process, its control plane's folder and the command's pid."""
    script = 'echo "$KUBECONFIG $$"; exec sleep 600'
    process = subprocess.Popen(
        [*COMMAND, "run", "--", "sh", "-c", script],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={name: value for name, value in os.environ.items() if name != GIVEN_CLUSTER},
        preexec_fn=heed_interrupts,  # noqa: PLW1509 - only a system call
    )
    with process:
        assert process.stdout is not None
        kubeconfig, pid = process.stdout.readline().split()
        try:
            yield process, Path(kubeconfig).parent, int(pid)
        finally:
            process.kill()


def processes_of(folder: Path) -> list[tuple[int, str]]:
    """Return process id and command line of every process that names `folder`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            if str(folder) in command:
                found.append((int(entry.name), command))
    return found


@contextlib.contextmanager
def watched(pids: list[int]) -> Iterator[Any]:
    """Give a function that waits until all of `pids`, alive now, have ended."""
    descriptors = [os.pidfd_open(pid) for pid in pids]

    def wait() -> None:
        for descriptor in descriptors:
            assert select.select([descriptor], [], [], END_SECONDS)[0], "a process does not end"

    try:
        yield wait
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
def test_nothing_is_left_behind_when_the_owner_is_hit_by(number: signal.Signals, binaries: Binaries) -> None:
    assert binaries
    with command_with_control_plane() as (process, folder, command_pid):
        # Ctrl-C in a terminal reaches the command as well.
        targets = [process.pid, command_pid] if number is signal.SIGINT else [process.pid]
        running = processes_of(folder)
        names = {Path(command.split()[0]).name for _, command in running}
        assert names >= {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
        with watched([*(pid for pid, _ in running), command_pid]) as wait:
            for target in targets:
                os.kill(target, number)
            wait()
        assert not folder.exists()
        assert processes_of(folder) == []


def test_components_die_with_a_killed_supervisor_and_the_folder_is_swept(binaries: Binaries) -> None:
    assert binaries
    with command_with_control_plane() as (_, folder, _pid):
        running = processes_of(folder)
        (supervisor,) = [pid for pid, command in running if "supervisor.py" in command]
        sweep()
        assert is_running(folder)
        with watched([pid for pid, _ in running]) as wait:
            os.kill(supervisor, signal.SIGKILL)
            wait()
        sweep()
        assert not folder.exists()


def test_a_folder_that_is_just_being_made_is_not_swept() -> None:
    folder = make_folder()
    try:
        sweep()
        assert folder.exists()
        (folder / "lock").touch()
        sweep()
        assert folder.exists()
        with taken(folder):
            sweep()
            assert folder.exists()
        sweep()
        assert not folder.exists()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_what_up_leaves_running_is_listed_usable_and_stopped_by_down(binaries: Binaries) -> None:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != GIVEN_CLUSTER}
        return subprocess.run(
            [*COMMAND, *arguments], cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=True
        )

    kubeconfig = Path(call("up").stdout.removeprefix("export KUBECONFIG=").strip())
    folder = kubeconfig.parent
    name = folder.name.rpartition("-")[2]
    with watched([pid for pid, _ in processes_of(folder)]) as wait:
        assert str(kubeconfig) in call("status").stdout
        subprocess.run([binaries.path("kubectl"), f"--kubeconfig={kubeconfig}", "get", "--raw=/readyz"], check=True)
        assert f"stopped control plane {name}" in call("down", name).stderr
        wait()
    assert not folder.exists()
    assert str(kubeconfig) not in call("status").stdout


def test_down_names_what_runs_when_it_does_not_know_the_name() -> None:
    done = subprocess.run([*COMMAND, "down", "no-such"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("no control plane is named no-such; running: ")
