"""The operator as a real process, under its real rights, for tests and for the demonstration."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.plane import KubectlError

ROOT = Path(__file__).resolve().parents[2]
DEFINITION = ROOT / "crds" / "projectionrequests.yaml"
RULES = ROOT / "charts" / "projection-operator" / "files" / "rules.yaml"

SYSTEM_NAMESPACE = "projection-system"
ACCOUNT = "projection-operator"

PATIENCE_SECONDS = 60.0
"""How long anything may take on a busy machine before a test gives up; nothing is measured against it."""
POLL_SECONDS = 0.05
"""Pause between two looks at what nothing announces."""

Found = TypeVar("Found")


def eventually(look: Callable[[], Found], *, what: str, seconds: float = PATIENCE_SECONDS) -> Found:
    """Look again and again until the result is true in the sense of Python, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s in vain for {what}; last seen: {found!r}")
        time.sleep(POLL_SECONDS)
    return found


def install(plane: ControlPlane) -> None:
    """Apply the CustomResourceDefinition and the namespace of the operator."""
    plane.kubectl("apply", "-f", str(DEFINITION))
    eventually(lambda: _serves(plane), what="the API server to serve ProjectionRequests")
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}})


def _serves(plane: ControlPlane) -> bool:
    try:
        plane.kubectl("get", "--raw", "/apis/projection.dev/v1alpha1/projectionrequests?limit=1")
    except KubectlError:
        return False
    return True


def account(plane: ControlPlane, name: str = ACCOUNT, *, only_in: tuple[str, ...] = ()) -> Path:
    """Make a service account with exactly the chart's rules and return its kubeconfig.

    `only_in` gives it the rules of a namespace in each of these namespaces, and none over the cluster.
    """
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    plane.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE}},
        *(
            document
            for namespace in only_in
            for document in _role(name, "Role", rules["namespaced"], {"namespace": namespace})
        ),
        *([] if only_in else _role(name, "ClusterRole", rules["namespaced"] + rules["cluster"], {})),
    )
    return plane.kubeconfig_for_service_account(SYSTEM_NAMESPACE, name)


def _role(name: str, kind: str, rules: list[dict[str, Any]], scope: dict[str, str]) -> list[dict[str, Any]]:
    api = "rbac.authorization.k8s.io"
    metadata = {"name": name, **scope}
    subject = {"kind": "ServiceAccount", "name": name, "namespace": SYSTEM_NAMESPACE}
    reference = {"apiGroup": api, "kind": kind, "name": name}
    return [
        {"apiVersion": f"{api}/v1", "kind": kind, "metadata": metadata, "rules": rules},
        {
            "apiVersion": f"{api}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": reference,
            "subjects": [subject],
        },
    ]


class OperatorProcess:
    """One run of `projection-operator run`; its log is read as it comes."""

    def __init__(self, kubeconfig: Path, *arguments: str, environment: dict[str, str] | None = None) -> None:
        """Start it; `wait_until_ready` says when it works."""
        command = [sys.executable, "-m", "projection_operator", "run", f"--kubeconfig={kubeconfig}"]
        command += ["--host=127.0.0.1", "--metrics-port=0", *arguments]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
        )
        self.log: list[dict[str, Any]] = []
        self._noticed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def address(self) -> str:
        """Where it serves, since it last started anew."""
        self.wait_for_log("Serving health and metrics")
        host, port = self.lines("Serving health and metrics")[-1]["address"]
        return f"http://{host}:{port}"

    def wait_for_log(self, message: str, seconds: float = PATIENCE_SECONDS, **fields: object) -> dict[str, Any]:
        """Return the first line with this message and these fields, as soon as it is there."""

        def found() -> dict[str, Any] | None:
            return next(iter(self.lines(message, **fields)), None)

        with self._noticed:
            self._noticed.wait_for(lambda: found() or self.process.poll() is not None, seconds)
            entry = found()
        if entry is None:
            raise AssertionError(f"no log line {message!r} {fields}; the log ends with {self.log[-20:]}")
        return entry

    def lines(self, message: str, **fields: object) -> list[dict[str, Any]]:
        """All lines so far with this message and these fields."""
        wanted = {"message": message, **fields}
        return [entry for entry in list(self.log) if wanted.items() <= entry.items()]

    def wait_until_ready(self) -> Self:
        """Return when /readyz agrees."""
        eventually(lambda: self.get("/readyz")[0] == 200, what="/readyz")
        return self

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of one of its pages."""
        try:
            with urllib.request.urlopen(self.address + path, timeout=10) as answer:  # noqa: S310 - our own http address
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def series(self, namespace: str, name: str) -> dict[str, float]:
        """The living series of one request, by metric name and further labels."""
        found: dict[str, float] = {}
        for line in self.get("/metrics")[1].splitlines():
            if f'namespace="{namespace}"' in line and f'name="{name}"' in line:
                series, value = line.rsplit(" ", 1)
                found[series] = float(value)
        return found

    def resident_bytes(self) -> int:
        """Resident sets of the operator and of its engine's processes, added up as the kernel counts them."""
        pid = self.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        statistics = [Path(f"/proc/{one}/statm").read_text(encoding="ascii") for one in (pid, *children)]
        return sum(int(text.split()[1]) for text in statistics) * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """End it without asking."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self._join()

    def stop(self) -> int:
        """Ask it to end, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_SECONDS)
        self._join()
        return self.process.returncode

    def _join(self) -> None:
        self.process.wait()
        self._reader.join()
        if self.process.stderr is not None:
            self.process.stderr.close()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            try:
                entry = json.loads(line)
            except ValueError:
                entry = {"message": line.rstrip("\n"), "level": "raw"}
            with self._noticed:
                self.log.append(entry)
                self._noticed.notify_all()
        with self._noticed:
            self._noticed.notify_all()


@contextlib.contextmanager
def running_operator(kubeconfig: Path, *arguments: str) -> Iterator[OperatorProcess]:
    """An operator that is ready for work, killed at the end of the block."""
    with OperatorProcess(kubeconfig, *arguments) as operator:
        yield operator.wait_until_ready()
