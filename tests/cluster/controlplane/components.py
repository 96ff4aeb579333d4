"""The command line of each component. Only what differs from the defaults, each with its reason."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.controlplane import kubeconfig
from tests.cluster.controlplane.binaries import Binaries
from tests.cluster.controlplane.certificates import Authority, KeyPair, write_signing_key

ADDRESS = "127.0.0.1"
SERVICE_NETWORK = "10.96.0.0/16"
KUBERNETES_SERVICE_ADDRESS = "10.96.0.1"
"""First address of SERVICE_NETWORK: that of the Service `kubernetes`."""

FAST_CLIENT = ("--kube-api-qps=1000", "--kube-api-burst=1000")
"""Lifts the default limit of 20 requests a second, which alone makes the start of the controllers take 3 s longer."""

Argv = tuple[str, ...]


@contextmanager
def reserved_port() -> Iterator[int]:
    """Yield a free port that nobody else is given while the block runs.

    A socket stays bound to it without listening. The API server shares the port (`--permit-port-sharing` sets
    SO_REUSEPORT, which the kernel allows to processes of one user), so there is no moment at which another
    process could take it.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((ADDRESS, 0))
        yield holder.getsockname()[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """Files that the components and their clients need."""

    authority: KeyPair
    """Signs everything below."""
    server: KeyPair
    """Serving certificate of the API server."""
    admin: KeyPair
    """Client certificate in the group system:masters."""
    token_keys: KeyPair
    """Signs and verifies the tokens of service accounts."""
    kubeconfigs: dict[str, Path]
    """Component (or "admin") -> its kubeconfig."""


def make_credentials(folder: Path, url: str) -> Credentials:
    """Make an authority, certificates and kubeconfigs in `folder`."""
    authority = Authority(folder)
    names = ["kubernetes.default.svc", "kubernetes.default", "kubernetes", "localhost"]
    server = authority.server("apiserver", names, [ADDRESS, KUBERNETES_SERVICE_ADDRESS])
    admin = authority.client("admin", "projection-test-admin", "system:masters")
    clients = {
        "admin": admin,
        "kube-controller-manager": authority.client("controller-manager", "system:kube-controller-manager"),
        "kube-scheduler": authority.client("scheduler", "system:kube-scheduler"),
    }
    return Credentials(
        authority=authority.files,
        server=server,
        admin=admin,
        token_keys=write_signing_key(folder, "service-accounts"),
        kubeconfigs={
            name: kubeconfig.with_client_certificate(
                folder / f"{name}.kubeconfig", url, authority.files.certificate, pair
            )
            for name, pair in clients.items()
        },
    )


def etcd(binaries: Binaries, folder: Path) -> Argv:
    """Return etcd's command line; it listens on Unix sockets in `folder`, which nobody else can enter."""
    return (
        binaries.path("etcd"),
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={etcd_url(folder)}",
        # Must name a host and a port, and is not used by a cluster of one.
        f"--advertise-client-urls=http://{ADDRESS}:2379",
        f"--listen-peer-urls=unix://{folder}/etcd-peer.sock",
        # Nothing has to survive a crash of the machine.
        "--unsafe-no-fsync",
        "--log-level=warn",
    )


def etcd_url(folder: Path) -> str:
    """Return the address at which etcd serves."""
    return f"unix://{folder}/etcd.sock"


def apiserver(binaries: Binaries, folder: Path, port: int, credentials: Credentials) -> Argv:
    """Return the API server's command line; authorization is that of a production cluster."""
    return (
        binaries.path("kube-apiserver"),
        f"--bind-address={ADDRESS}",
        f"--secure-port={port}",
        "--permit-port-sharing",
        # Otherwise it looks for a default route, which a machine without a network does not have.
        f"--advertise-address={ADDRESS}",
        # A loopback address is not allowed in the endpoints of the Service `kubernetes`, and nothing here uses them.
        "--endpoint-reconciler-type=none",
        f"--etcd-servers={etcd_url(folder)}",
        f"--service-cluster-ip-range={SERVICE_NETWORK}",
        f"--client-ca-file={credentials.authority.certificate}",
        f"--tls-cert-file={credentials.server.certificate}",
        f"--tls-private-key-file={credentials.server.key}",
        f"--cert-dir={folder}",
        # For logs and exec, where there is a kubelet.
        f"--kubelet-client-certificate={credentials.admin.certificate}",
        f"--kubelet-client-key={credentials.admin.key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={credentials.token_keys.certificate}",
        f"--service-account-signing-key-file={credentials.token_keys.key}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged",
    )


def controller_manager(binaries: Binaries, folder: Path, credentials: Credentials) -> Argv:
    """Return the controller manager's command line: every default controller, each with its own rights."""
    return (
        binaries.path("kube-controller-manager"),
        f"--kubeconfig={credentials.kubeconfigs['kube-controller-manager']}",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={credentials.token_keys.key}",
        f"--root-ca-file={credentials.authority.certificate}",
        f"--cluster-signing-cert-file={credentials.authority.certificate}",
        f"--cluster-signing-key-file={credentials.authority.key}",
        # The default is a folder under /usr, which root would create.
        f"--flex-volume-plugin-dir={folder / 'volume-plugins'}",
        "--leader-elect=false",
        # No serving port: nothing to collide with, nothing to look at.
        "--secure-port=0",
        *FAST_CLIENT,
    )


def scheduler(binaries: Binaries, credentials: Credentials) -> Argv:
    """Return the scheduler's command line: the default profile."""
    return (
        binaries.path("kube-scheduler"),
        f"--kubeconfig={credentials.kubeconfigs['kube-scheduler']}",
        "--leader-elect=false",
        "--secure-port=0",
        *FAST_CLIENT,
    )
