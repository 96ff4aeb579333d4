"""The same tests against kind, where Docker exists.

kind itself is built from its Go module; its node image comes from a container registry.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.cluster.controlplane import versions
from tests.cluster.controlplane.build import find_go
from tests.cluster.controlplane.cache import Say, cache_folder, filled_atomically, locked
from tests.cluster.controlplane.clusters import CHECKOUT
from tests.cluster.controlplane.errors import ControlPlaneError, UnavailableError
from tests.cluster.controlplane.plane import GIVEN_CLUSTER

CLUSTER = "projection-test"
DOCKER_SECONDS = 20.0
READY = "180s"


def require_docker() -> None:
    """Raise UnavailableError unless a Docker daemon answers."""
    docker = shutil.which("docker")
    if docker is None:
        raise UnavailableError("kind needs Docker and there is no `docker` on the PATH; `make cluster-up` needs none")
    try:
        done = subprocess.run([docker, "info"], capture_output=True, text=True, check=False, timeout=DOCKER_SECONDS)
        complaint = done.stderr.strip().splitlines()
    except subprocess.TimeoutExpired:
        complaint = [f"no answer within {DOCKER_SECONDS:g} s"]
    else:
        if done.returncode == 0:
            return
    reason = complaint[-1] if complaint else "it failed without a word"
    raise UnavailableError(f"kind needs a Docker daemon and `docker info` says: {reason}; `make cluster-up` needs none")


def kind_path(say: Say) -> str:
    """Return kind, building it once into the cache.

    Raises:
        UnavailableError: Go is missing.
        ControlPlaneError: the build failed.
    """
    folder = cache_folder() / "kind" / versions.KIND
    with locked(folder.parent, say):
        if not folder.is_dir():
            say(f"building kind {versions.KIND} from its Go module, once, into {folder}")
            with filled_atomically(folder) as scratch:
                done = subprocess.run(
                    [find_go(), "install", f"sigs.k8s.io/kind@{versions.KIND}"],
                    env={**os.environ, "GOBIN": str(scratch), "CGO_ENABLED": "0"},
                    stderr=subprocess.PIPE,
                    text=True,
                    check=False,
                )
                if done.returncode != 0:
                    raise ControlPlaneError(f"building kind failed:\n{done.stderr}")
    return str(folder / "kind")


def kubeconfig_path() -> Path:
    """Return where kind's kubeconfig is written; never the user's own."""
    return cache_folder() / "kind" / f"{CLUSTER}.kubeconfig"


def up(say: Say) -> bool:
    """Make sure that the kind cluster runs; tell whether this call created it."""
    require_docker()
    kind = kind_path(say)
    target = f"--kubeconfig={kubeconfig_path()}"
    exists = CLUSTER in _run(kind, "get", "clusters").split()
    if exists:
        _run(kind, "export", "kubeconfig", f"--name={CLUSTER}", target)
    else:
        say(f"creating the kind cluster {CLUSTER}")
        _run(kind, "create", "cluster", f"--name={CLUSTER}", target, f"--wait={READY}")
    return not exists


def down(say: Say) -> None:
    """Delete the kind cluster and its kubeconfig."""
    require_docker()
    _run(kind_path(say), "delete", "cluster", f"--name={CLUSTER}", f"--kubeconfig={kubeconfig_path()}")
    kubeconfig_path().unlink(missing_ok=True)


def end_to_end(say: Say, pytest_arguments: list[str]) -> int:
    """Run the tests of tests/cluster against kind and return pytest's exit code.

    A cluster that was there before stays.
    """
    created = up(say)
    try:
        return subprocess.run(
            [sys.executable, "-m", "pytest", "tests/cluster", *pytest_arguments],
            cwd=CHECKOUT,
            env={**os.environ, GIVEN_CLUSTER: str(kubeconfig_path())},
            check=False,
        ).returncode
    finally:
        if created:
            down(say)


def _run(kind: str, *arguments: str) -> str:
    done = subprocess.run([kind, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ControlPlaneError(f"kind {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
