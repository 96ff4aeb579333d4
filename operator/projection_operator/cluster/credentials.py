"""Who we are to which API server: a kubeconfig file, or the files that Kubernetes mounts into a pod.

Read: client certificates, tokens, token files. Not read: exec plugins and other ways to run programs; an operator
gets a service account. (File format: Kubernetes documentation, "kubeconfig (v1)".)
"""

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

SERVICE_ACCOUNT_FOLDER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Kubernetes documentation, "Accessing the Kubernetes API from a Pod"."""


class CredentialsError(Exception):
    """No usable credentials; the message names the file and what is wrong with it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Credentials:
    """One API server and one identity."""

    server: str
    """Base address."""
    ca: str | None = None
    """PEM of the authority that signs the server's certificate; None trusts the system's."""
    insecure: bool = False
    """The server's certificate is not checked."""
    certificate: str | None = field(default=None, repr=False)
    """PEM of the client certificate."""
    private_key: str | None = field(default=None, repr=False)
    """PEM of its key."""
    static_token: str | None = field(default=None, repr=False)
    """A bearer token."""
    token_file: Path | None = None
    """A file with a bearer token, which somebody keeps fresh."""

    def token(self) -> str | None:
        """The bearer token as it is now; CredentialsError when its file cannot be read."""
        if self.token_file is None:
            return self.static_token
        try:
            return self.token_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise CredentialsError(f"{self.token_file}: {error.strerror}") from error

    def ssl_context(self) -> ssl.SSLContext:
        """TLS settings for a client."""
        context = ssl.create_default_context(cadata=self.ca)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate and self.private_key:
            # The ssl module takes client certificates from files only.
            with tempfile.NamedTemporaryFile("w") as file:
                file.write(f"{self.certificate}\n{self.private_key}\n")
                file.flush()
                context.load_cert_chain(file.name)
        return context


def load_credentials(kubeconfig: Path | None) -> Credentials:
    """Those of a kubeconfig file, or, without one, those of the pod that this process runs in.

    Raises:
        CredentialsError: they are missing, malformed, or of a kind that is not supported.
    """
    return _from_kubeconfig(kubeconfig) if kubeconfig is not None else _in_cluster(os.environ, SERVICE_ACCOUNT_FOLDER)


def _in_cluster(environment: Mapping[str, str], folder: Path) -> Credentials:
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise CredentialsError(
            "this is no pod of a cluster (KUBERNETES_SERVICE_HOST is not set); give --kubeconfig FILE"
        )
    bracketed = f"[{host}]" if ":" in host else host
    try:
        ca = (folder / "ca.crt").read_text(encoding="ascii")
    except OSError as error:
        raise CredentialsError(f"{folder / 'ca.crt'}: {error.strerror}; does the pod mount a token?") from error
    return Credentials(server=f"https://{bracketed}:{port}", ca=ca, token_file=folder / "token")


def _from_kubeconfig(path: Path) -> Credentials:
    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise CredentialsError(f"{path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise CredentialsError(f"{path}: not YAML: {error}") from error
    if not isinstance(content, dict) or not content.get("current-context"):
        raise CredentialsError(f"{path}: no current-context")
    context = _entry(content, "contexts", content["current-context"], path).get("context") or {}
    cluster = _entry(content, "clusters", context.get("cluster"), path).get("cluster") or {}
    user = _entry(content, "users", context.get("user"), path).get("user") or {}
    for unsupported in ("exec", "auth-provider", "username"):
        if unsupported in user:
            name = context.get("user")
            raise CredentialsError(
                f"{path}: user {name!r} logs in by {unsupported!r}, which is not supported; use a token"
            )
    if not cluster.get("server"):
        raise CredentialsError(f"{path}: cluster {context.get('cluster')!r} has no server")
    token_file = user.get("tokenFile")
    return Credentials(
        server=str(cluster["server"]).rstrip("/"),
        ca=_pem(cluster, "certificate-authority", path),
        insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
        certificate=_pem(user, "client-certificate", path),
        private_key=_pem(user, "client-key", path),
        static_token=user.get("token"),
        token_file=path.parent / token_file if token_file else None,
    )


def _entry(content: dict[str, Any], kind: str, name: str | None, path: Path) -> dict[str, Any]:
    for entry in content.get(kind) or ():
        if isinstance(entry, dict) and entry.get("name") == name:
            return entry
    raise CredentialsError(f"{path}: {kind} has no entry {name!r}")


def _pem(entry: Mapping[str, str], key: str, path: Path) -> str | None:
    """PEM text of `key`, which is given either as data or as the name of a file."""
    try:
        if f"{key}-data" in entry:
            return base64.b64decode(entry[f"{key}-data"], validate=True).decode("ascii")
        return (path.parent / entry[key]).read_text(encoding="ascii") if key in entry else None
    except OSError as error:
        raise CredentialsError(f"{path}: {key}: {error.filename}: {error.strerror}") from error
    except (binascii.Error, UnicodeDecodeError) as error:
        raise CredentialsError(f"{path}: {key} is no PEM: {error}") from error
