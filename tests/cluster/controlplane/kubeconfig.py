"""Read and write kubeconfig files with one cluster, one user and one context."""

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.controlplane.certificates import KeyPair
from tests.cluster.controlplane.errors import ControlPlaneError


def with_client_certificate(path: Path, url: str, ca_file: Path, pair: KeyPair) -> Path:
    """Write a kubeconfig whose user is a client certificate; returns `path`."""
    user = {"client-certificate-data": _encoded(pair.certificate), "client-key-data": _encoded(pair.key)}
    return _write(path, url, ca_file, user)


def with_token(path: Path, url: str, ca_file: Path, token: str) -> Path:
    """Write a kubeconfig whose user is a bearer token; returns `path`."""
    return _write(path, url, ca_file, {"token": token})


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """Where the current context of a kubeconfig points."""

    url: str
    """Base address of the API server."""
    ca: bytes
    """PEM of the authority that signed its certificate."""


def read_endpoint(path: Path) -> Endpoint:
    """Return what the current context of `path` points at.

    Raises:
        ControlPlaneError: the file is missing or no kubeconfig, or its cluster has no certificate authority.
    """
    try:
        content = yaml.safe_load(path.read_text())
        context = _named(content["contexts"], content["current-context"])["context"]
        cluster = _named(content["clusters"], context["cluster"])["cluster"]
        if "certificate-authority-data" in cluster:
            ca = base64.b64decode(cluster["certificate-authority-data"])
        else:
            ca = (path.parent / cluster["certificate-authority"]).read_bytes()
        return Endpoint(url=cluster["server"], ca=ca)
    except OSError as error:
        raise ControlPlaneError(f"kubeconfig {path}: {error.strerror}: {error.filename}") from error
    except (yaml.YAMLError, KeyError, TypeError, ValueError, StopIteration) as error:
        raise ControlPlaneError(
            f"kubeconfig {path}: no usable current context with a cluster and its certificate authority: {error!r}"
        ) from error


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(entry for entry in entries if entry["name"] == name)


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def _write(path: Path, url: str, ca_file: Path, user: dict[str, str]) -> Path:
    name = "projection-test"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": url, "certificate-authority-data": _encoded(ca_file)}}],
        "users": [{"name": name, "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        "current-context": name,
    }
    path.touch(mode=0o600)
    # Every JSON document is a YAML document.
    path.write_text(json.dumps(content, indent=1))
    return path
