"""Build the programs from their published Go modules.

For machines that reach a Go module proxy but neither dl.k8s.io nor GitHub. Every module is pinned by
version in `modules/*/go.mod` and by content in `go.sum`.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path

from tests.cluster.controlplane import versions
from tests.cluster.controlplane.cache import Say
from tests.cluster.controlplane.errors import ControlPlaneError, UnavailableError
from tests.cluster.controlplane.supervisor import die_with_parent

COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet")
"""Names under which the one Kubernetes binary answers."""

GO_FOLDER = "/usr/local/go/bin"
"""Where https://go.dev/doc/install puts Go, often without being on the PATH."""

PROGRESS_SECONDS = 15.0


def find_go(search_path: str | None = None) -> str:
    """Return the path of the Go command, by default from the PATH or where its installer puts it.

    Raises:
        UnavailableError: there is none.
    """
    default = f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{GO_FOLDER}"
    go = shutil.which("go", path=default if search_path is None else search_path)
    if go is None:
        raise UnavailableError(
            "the Kubernetes control plane has to be built once from its Go modules and no Go is installed: "
            "install Go 1.24 or newer (https://go.dev/dl) and put it on the PATH, or set KUBEBUILDER_ASSETS to a "
            "folder with etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl, or set "
            "PROJECTION_TEST_KUBECONFIG to the kubeconfig of a cluster that the tests may use"
        )
    return go


def build_into(folder: Path, say: Say) -> None:
    """Build etcd and Kubernetes into `folder`.

    Raises:
        UnavailableError: Go is missing.
        ControlPlaneError: the build failed; the message ends with Go's own complaint.
    """
    find_go()
    kubernetes = versions.kubernetes_version()
    say(
        f"building etcd {versions.etcd_version()} and Kubernetes {kubernetes} from their Go modules: this happens "
        f"once (about 6 minutes on two cores, 3 GB of Go caches) and is kept in {folder.parent}"
    )
    go_build(versions.MODULES / "etcd", folder / "etcd", "", say)
    major, minor, _ = kubernetes.split(".", 2)
    stamp = {"gitVersion": f"v{kubernetes}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in stamp.items())
    go_build(versions.MODULES / "kubernetes", folder / "kubernetes", flags, say)
    for name in COMPONENTS:
        (folder / name).symlink_to("kubernetes")


def go_build(module: Path, output: Path, linker_flags: str, say: Say) -> None:
    """Build the main package in the folder `module`, statically linked, into the file `output`.

    Raises:
        UnavailableError: Go is missing.
        ControlPlaneError: the build failed; the message ends with Go's own complaint.
    """
    command = [find_go(), "build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false"]
    command += ["-ldflags", f"-s -w {linker_flags}".strip(), "-o", str(output), "."]
    started = said = time.monotonic()
    tail: list[str] = []
    compiled = 0
    with subprocess.Popen(
        command,
        cwd=module,
        env={**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": ""},
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,  # noqa: PLW1509 - only a system call
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            tail = [*tail[-29:], line]
            downloading = line.startswith("go: ")
            compiled += not downloading
            if time.monotonic() - said >= PROGRESS_SECONDS:
                said = time.monotonic()
                what = "downloading modules" if downloading else f"{compiled} packages compiled"
                say(f"  {module.name}: {what}, {said - started:.0f} s")
    if process.returncode != 0:
        raise ControlPlaneError(
            f"building {module.name} failed, `{' '.join(command)}` ended with {process.returncode}:\n{''.join(tail)}"
        )
    say(f"  {module.name}: built in {time.monotonic() - started:.0f} s")
