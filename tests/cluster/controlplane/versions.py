"""Which versions the tests use: the `go.mod` files decide, everything else asks here."""

import hashlib
import platform
import re
import sys
from pathlib import Path

MODULES = Path(__file__).parent / "modules"

KIND = "v0.33.0"
"""Release of sigs.k8s.io/kind; its default node image is a Kubernetes newer than 1.34."""


def required_version(module: str, requirement: str) -> str:
    """Return the version, without its "v", at which `modules/<module>/go.mod` requires `requirement`."""
    text = (MODULES / module / "go.mod").read_text()
    found = re.search(rf"^(?:require\s+|\t){re.escape(requirement)} v(\S+)$", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"modules/{module}/go.mod does not require {requirement}")
    return found.group(1)


def kubernetes_version() -> str:
    """Return the Kubernetes version, such as "1.34.4"."""
    return required_version("kubernetes", "k8s.io/kubernetes")


def etcd_version() -> str:
    """Return the etcd version, such as "3.6.13"."""
    return required_version("etcd", "go.etcd.io/etcd/server/v3")


def platform_name() -> str:
    """Return this machine as Go and the release archives name it, such as "linux-amd64"."""
    machine = platform.machine().lower()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
    return f"{sys.platform}-{architecture}"


def digest_of(folder: Path) -> str:
    """Return a digest of the names and contents of all files under `folder`."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(folder)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def modules_digest() -> str:
    """Return a digest of everything committed that decides what a build yields."""
    return digest_of(MODULES)
