"""Namespaces in which a kubelet can do as it likes: own mounts, network and processes.

Nothing it does reaches the machine, except control groups, which are removed here.
"""

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.controlplane.binaries import Binaries, find_binaries
from tests.cluster.controlplane.build import go_build
from tests.cluster.controlplane.cache import Say, cache_folder, filled_atomically, locked
from tests.cluster.controlplane.clusters import CHECKOUT
from tests.cluster.controlplane.errors import ControlPlaneError, UnavailableError
from tests.cluster.controlplane.plane import ControlPlane
from tests.cluster.controlplane.versions import digest_of, platform_name
from tests.kubelet import node

STUB_SOURCE = Path(__file__).parent / "stub"
NAMESPACES = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
PROGRAMS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
}
"""Program -> Debian package that has it."""

CGROUPS = Path("/sys/fs/cgroup")
CGROUP_PREFIX = "projection-node-"
STOP_SECONDS = 30.0


def require_node_programs() -> None:
    """Raise UnavailableError, with what to do, unless a kubelet can run on this machine."""
    if os.geteuid() != 0:
        raise UnavailableError("a kubelet needs root: run `sudo make test-kubelet`")
    missing = sorted({package for program, package in PROGRAMS.items() if shutil.which(program) is None})
    if node.network_plugins() is None:
        missing.append("containernetworking-plugins")
    if missing:
        raise UnavailableError(f"a kubelet needs the packages {', '.join(missing)}: apt-get install them")
    done = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UnavailableError(f"a kubelet needs namespaces of its own, and they are refused: {done.stderr.strip()}")


def stub_path(say: Say) -> Path:
    """Return the stub program, building it once into the cache."""
    folder = cache_folder() / "kubelet-stub" / f"{platform_name()}-{digest_of(STUB_SOURCE)}"
    with locked(folder.parent, say):
        if not folder.is_dir():
            with filled_atomically(folder) as scratch:
                go_build(STUB_SOURCE, scratch / "stub", "", say)
    return folder / "stub"


@contextmanager
def running_node(say: Say) -> Iterator[ControlPlane]:
    """Run a control plane with one node of eight GPUs for the length of the block.

    Raises:
        UnavailableError: this machine lacks something.
        ControlPlaneError: it did not start; the message shows the logs.
    """
    require_node_programs()
    binaries, stub = find_binaries(say), stub_path(say)
    if not os.access(binaries.path("kubelet"), os.X_OK):
        raise UnavailableError(f"{binaries.folder} ({binaries.source}) has no kubelet")
    with control_group() as cgroup, _inside(binaries, stub, cgroup) as plane:
        yield plane


@contextmanager
def _inside(binaries: Binaries, stub: Path, cgroup: str) -> Iterator[ControlPlane]:
    program = [sys.executable, "-m", "tests.kubelet.inside", str(binaries.folder), str(stub), cgroup]
    process = subprocess.Popen(
        ["unshare", *NAMESPACES, *program],
        cwd=CHECKOUT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Ctrl-C reaches the owner only; the end of standard input stops the cluster in good order.
        start_new_session=True,
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise ControlPlaneError(f"the node did not start (exit code {process.wait()}); see its output above")
            yield _from_outside(json.loads(line), binaries, process.pid)
        finally:
            process.stdin.close()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                # unshare heeds no other signal; the kernel ends what is inside with it.
                process.kill()


def _from_outside(places: dict[str, str], binaries: Binaries, unshare_pid: int) -> ControlPlane:
    """Return the cluster with a kubectl that enters its network."""
    folder = Path(places["folder"])
    kubectl = folder / "kubectl"
    child = Path(f"/proc/{unshare_pid}/task/{unshare_pid}/children").read_text().split()[0]
    kubectl.write_text(f'#!/bin/sh\nexec nsenter --net=/proc/{child}/ns/net {binaries.path("kubectl")} "$@"\n')
    kubectl.chmod(0o755)
    return ControlPlane(
        url=places["url"],
        ca_file=folder / "ca.crt",
        kubeconfig=Path(places["kubeconfig"]),
        folder=folder,
        kubectl_path=str(kubectl),
    )


@contextmanager
def control_group() -> Iterator[str]:
    """Give the path of a new control group in every hierarchy, named after this process.

    What processes that were killed left behind is removed first.
    """
    for group in left_groups():
        _remove_groups(group)
    name = f"{CGROUP_PREFIX}{os.getpid()}-{secrets.token_hex(2)}"
    groups = [hierarchy / name for hierarchy in _hierarchies()]
    try:
        for group in groups:
            group.mkdir()
        yield f"/{name}"
    finally:
        for group in groups:
            _remove_groups(group)


def left_groups() -> list[Path]:
    """Return the control groups whose owner is gone."""
    found = [group for hierarchy in _hierarchies() for group in hierarchy.glob(f"{CGROUP_PREFIX}*")]
    owners = [group.name.removeprefix(CGROUP_PREFIX).partition("-")[0] for group in found]
    return [group for group, owner in zip(found, owners, strict=True) if not Path("/proc", owner).exists()]


def _hierarchies() -> list[Path]:
    if (CGROUPS / "cgroup.controllers").exists():
        return [CGROUPS]
    # Version 1 has one hierarchy a controller; some have a second name.
    return [path for path in CGROUPS.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink()]


def _remove_groups(group: Path) -> None:
    # A group can be removed once it has no processes and no groups below it.
    for folder, _, _ in os.walk(group, topdown=False):
        with contextlib.suppress(OSError):
            Path(folder).rmdir()
