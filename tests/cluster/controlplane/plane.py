"""Start a control plane, and what tests get in hand: `ControlPlane`."""

import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.cluster.controlplane import components, folders, kubeconfig
from tests.cluster.controlplane.api import Prober
from tests.cluster.controlplane.binaries import Binaries, find_binaries
from tests.cluster.controlplane.cache import Say
from tests.cluster.controlplane.errors import ControlPlaneError
from tests.cluster.controlplane.processes import Supervisor

GIVEN_CLUSTER = "PROJECTION_TEST_KUBECONFIG"
"""Environment variable with the path of a kubeconfig whose cluster the tests may use."""

READY_SECONDS = 120.0
"""How long each step of the start may take; on a busy two-core machine all of it takes about 15 s."""

TOKEN_HOURS = 8
"""Life of a service account's token; longer than any test session."""


class KubectlError(ControlPlaneError):
    """kubectl ended with an error; the message is what it wrote."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlPlane:
    """A cluster that tests may use as they like."""

    url: str
    """Base address of the API server."""
    ca_file: Path
    """PEM file of the authority that signed the API server's certificate."""
    kubeconfig: Path
    """Kubeconfig of an administrator."""
    folder: Path
    """Scratch folder; it vanishes with the control plane."""
    kubectl_path: str
    """The kubectl that `kubectl` runs."""

    def kubectl(self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None) -> str:
        """Run kubectl as the administrator, or with another `kubeconfig`, and return what it prints.

        Raises:
            KubectlError: it ended with an error.
        """
        chosen = kubeconfig or self.kubeconfig
        done = subprocess.run(
            [self.kubectl_path, f"--kubeconfig={chosen}", f"--cache-dir={self.folder / 'kubectl-cache'}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env=without_user_configuration(os.environ),
        )
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return `kubectl get ARGUMENTS --output=json`."""
        result: dict[str, Any] = json.loads(self.kubectl("get", *arguments, "--output=json"))
        return result

    def apply(self, *manifests: Mapping[str, Any]) -> None:
        """Apply objects given as mappings."""
        self.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))

    def wait(self, condition: str, *arguments: str, seconds: float = 60.0) -> None:
        """Run `kubectl wait --for=CONDITION ARGUMENTS`.

        Raises:
            KubectlError: the condition did not come true in time.
        """
        self.kubectl("wait", f"--for={condition}", f"--timeout={seconds}s", *arguments)

    @contextmanager
    def temporary_namespace(self) -> Iterator[str]:
        """Give the name of a new namespace, deleted afterwards without waiting for it."""
        name = f"test-{secrets.token_hex(4)}"
        self.kubectl("create", "namespace", name)
        # Pods are refused until the controller manager has made their service account.
        self.wait("create", f"--namespace={name}", "serviceaccount/default")
        yield name
        self.kubectl("delete", "namespace", name, "--wait=false")

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """Return a kubeconfig that acts as a service account, under its real rights.

        The token comes from the TokenRequest API, as a pod's does.

        Raises:
            KubectlError: there is no such service account.
        """
        token = self.kubectl("create", "token", name, f"--namespace={namespace}", f"--duration={TOKEN_HOURS}h")
        path = self.folder / f"{namespace}.{name}.kubeconfig"
        return kubeconfig.with_token(path, self.url, self.ca_file, token.strip())


def without_user_configuration(environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` without what leads kubectl to the user's own clusters and preferences."""
    kept = {name: value for name, value in environment.items() if name not in {"KUBECONFIG", "KUBERC"}}
    return kept | {"KUBECTL_KUBERC": "false"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Running:
    """A control plane together with the process that owns its components."""

    plane: ControlPlane
    """What its users need."""
    supervisor: Supervisor
    """Stops it."""


def start(binaries: Binaries) -> Running:
    """Start a control plane and return when it serves; the caller stops it or lets it be killed.

    Raises:
        ControlPlaneError: a component died or did not become ready; the message shows its log.
    """
    folders.sweep()
    folder = folders.make_folder()
    supervisor = Supervisor(folder)
    try:
        return Running(plane=_start_components(binaries, folder, supervisor), supervisor=supervisor)
    except BaseException:
        supervisor.stop()
        raise


def _start_components(binaries: Binaries, folder: Path, supervisor: Supervisor) -> ControlPlane:
    supervisor.start("etcd", components.etcd(binaries, folder))
    with components.reserved_port() as port:
        url = f"https://{components.ADDRESS}:{port}"
        credentials = components.make_credentials(folder, url)
        ca_file = credentials.authority.certificate
        # It waits for etcd by itself.
        supervisor.start("kube-apiserver", components.apiserver(binaries, folder, port, credentials))
        prober = Prober(url, ca_file, credentials.admin)
        # The other two give up when the API server takes long to listen, so they start once it lives. They do not
        # need it to be ready, and loading them takes as long as it needs for that.
        supervisor.wait_until(lambda: prober.answers("/livez/ping"), what="the API server", seconds=READY_SECONDS)
    supervisor.start("kube-controller-manager", components.controller_manager(binaries, folder, credentials))
    supervisor.start("kube-scheduler", components.scheduler(binaries, credentials))
    for path, what in (
        ("/readyz", "the API server to be ready"),
        ("/api/v1/namespaces/default/serviceaccounts/default", "the default service account"),
    ):
        supervisor.wait_until(partial(prober.answers, path), what=what, seconds=READY_SECONDS)
    return ControlPlane(
        url=url,
        ca_file=ca_file,
        kubeconfig=credentials.kubeconfigs["admin"],
        folder=folder,
        kubectl_path=binaries.path("kubectl"),
    )


@contextmanager
def running_control_plane(binaries: Binaries) -> Iterator[ControlPlane]:
    """Run a control plane for the length of the block; nothing of it is left, however the block ends.

    Raises:
        ControlPlaneError: it did not start, or a component died during the block.
    """
    running = start(binaries)
    try:
        yield running.plane
        running.supervisor.check()
    finally:
        running.supervisor.stop()


@contextmanager
def existing_cluster(kubeconfig_file: Path, kubectl_path: str) -> Iterator[ControlPlane]:
    """Use the cluster that the current context of a kubeconfig points at.

    Raises:
        ControlPlaneError: the file is no kubeconfig or nothing answers there.
    """
    endpoint = kubeconfig.read_endpoint(kubeconfig_file)
    with tempfile.TemporaryDirectory(prefix="projection-cluster-") as name:
        folder = Path(name)
        ca_file = folder / "ca.crt"
        ca_file.write_bytes(endpoint.ca)
        plane = ControlPlane(
            url=endpoint.url, ca_file=ca_file, kubeconfig=kubeconfig_file, folder=folder, kubectl_path=kubectl_path
        )
        plane.kubectl("get", "--raw", "/readyz")
        yield plane


@contextmanager
def cluster_for_tests(say: Say, environment: Mapping[str, str] = os.environ) -> Iterator[ControlPlane]:
    """Use the cluster of `PROJECTION_TEST_KUBECONFIG`, or run a control plane where that is not set.

    The user's own current context is never looked at.

    Raises:
        UnavailableError: neither is possible on this machine; the message says what to do.
        ControlPlaneError: the chosen one failed.
    """
    chosen = environment.get(GIVEN_CLUSTER)
    if not chosen:
        with running_control_plane(find_binaries(say, environment)) as plane:
            yield plane
        return
    say(f"using the cluster of {GIVEN_CLUSTER}={chosen}")
    kubectl = shutil.which("kubectl") or find_binaries(say, environment).path("kubectl")
    with existing_cluster(Path(chosen).expanduser().resolve(), kubectl) as plane:
        yield plane
