"""Credentials are read from kubeconfig files and pods, or refused with the place of the fault."""

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
import yaml

from projection_operator.cluster import credentials as module
from projection_operator.cluster.credentials import CredentialsError, load_credentials

PEM = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"


def kubeconfig(
    folder: Path,
    *,
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
    **top: object,
) -> Path:
    content = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://api:6443/"} if cluster is None else cluster}],
        "users": [{"name": "u", "user": user or {}}],
        **top,
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def test_tokens_certificates_and_their_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text(PEM, encoding="ascii")
    encoded = base64.b64encode(PEM.encode()).decode()
    cluster = {"server": "https://api:6443/", "certificate-authority": "ca.crt"}
    user = {"token": "secret", "client-certificate-data": encoded, "client-key-data": encoded}
    found = load_credentials(kubeconfig(tmp_path, user=user, cluster=cluster))
    assert (found.server, found.ca, found.certificate, found.token()) == ("https://api:6443", PEM, PEM, "secret")
    assert "secret" not in repr(found)


def test_a_token_file_is_read_again_each_time(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("one\n", encoding="utf-8")
    found = load_credentials(kubeconfig(tmp_path, user={"tokenFile": "token"}))
    assert found.token() == "one"
    (tmp_path / "token").write_text("two\n", encoding="utf-8")
    assert found.token() == "two"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"user": {"exec": {"command": "aws"}}}, "'exec', which is not supported"),
        ({"user": {"client-key-data": "%%%"}}, "client-key is no PEM"),
        ({"user": {"client-key": "missing.key"}}, "missing.key: No such file"),
        ({"cluster": {}}, "cluster 'c' has no server"),
        ({"current-context": ""}, "no current-context"),
        ({"current-context": "elsewhere"}, "contexts has no entry 'elsewhere'"),
        ({"users": []}, "users has no entry 'u'"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    path = kubeconfig(tmp_path, **changes)
    with pytest.raises(CredentialsError) as caught:
        load_credentials(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(("insecure", "checked"), [(False, True), (True, False)])
def test_the_certificate_of_the_server_is_checked_unless_the_kubeconfig_says_not_to(
    tmp_path: Path, *, insecure: bool, checked: bool
) -> None:
    cluster = {"server": "https://api:6443", "insecure-skip-tls-verify": insecure}
    context = load_credentials(kubeconfig(tmp_path, cluster=cluster)).ssl_context()
    assert (context.verify_mode is ssl.CERT_REQUIRED, context.check_hostname) == (checked, checked)


def test_files_that_are_no_kubeconfig_are_refused(tmp_path: Path) -> None:
    for content in ("{", "- 1", "text"):
        (tmp_path / "config").write_text(content, encoding="utf-8")
        with pytest.raises(CredentialsError):
            load_credentials(tmp_path / "config")
    with pytest.raises(CredentialsError, match="No such file"):
        load_credentials(tmp_path / "nothing")


def test_a_pod_uses_its_service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ca.crt").write_text(PEM, encoding="ascii")
    (tmp_path / "token").write_text("pod", encoding="utf-8")
    monkeypatch.setattr(module, "SERVICE_ACCOUNT_FOLDER", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    found = load_credentials(None)
    assert (found.server, found.ca, found.token()) == ("https://[fd00::1]:6443", PEM, "pod")


def test_outside_a_pod_a_kubeconfig_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(CredentialsError, match="--kubeconfig"):
        load_credentials(None)
