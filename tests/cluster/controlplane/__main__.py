"""`python -m tests.cluster.controlplane`: a real Kubernetes control plane by one command.

Progress goes to standard error, the answer to standard output. Exit code 2 means that this machine lacks
something and the message says what; 1 that something failed.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable

from tests.cluster.controlplane import clusters, folders, kind
from tests.cluster.controlplane.binaries import find_binaries
from tests.cluster.controlplane.errors import ControlPlaneError, UnavailableError
from tests.cluster.controlplane.plane import GIVEN_CLUSTER, cluster_for_tests
from tests.cluster.controlplane.supervisor import die_with_parent

INTERRUPTED = 130
"""Exit code of a shell for a command that Ctrl-C ended."""

GRACE_SECONDS = 10.0
"""How long a command may take to end after Ctrl-C before it is told to."""


def say(line: str) -> None:
    """Print one line of progress."""
    print(line, file=sys.stderr, flush=True)


def up() -> int:
    """Start a control plane and leave it running."""
    given = os.environ.get(GIVEN_CLUSTER)
    if given:
        say(f"{GIVEN_CLUSTER} names a cluster: nothing to start")
        print(f"export KUBECONFIG={given}")
        return 0
    binaries = find_binaries(say)
    say(f"starting etcd, kube-apiserver, kube-controller-manager and kube-scheduler ({binaries.source})")
    detached = clusters.start_detached(binaries)
    say(f"control plane {detached.name} runs at {detached.url}, logs and data in {detached.folder}")
    say(f"kubectl lies in {binaries.folder}")
    say(f"stop it with `make cluster-down`, or alone with `python -m tests.cluster.controlplane down {detached.name}`")
    print(f"export KUBECONFIG={detached.kubeconfig}")
    return 0


def down(name: str | None) -> int:
    """Stop one control plane, or all that were started from this clone."""
    folders.sweep()
    running = clusters.running_detached()
    chosen = [one for one in running if (one.name == name if name else one.checkout == str(clusters.CHECKOUT))]
    if name and not chosen:
        known = ", ".join(one.name for one in running) or "none"
        raise ControlPlaneError(f"no control plane is named {name}; running: {known}")
    for one in chosen:
        clusters.stop(one)
        say(f"stopped control plane {one.name}")
    if not chosen:
        say("no control plane of this clone runs")
    return 0


def status() -> int:
    """List what runs."""
    for one in clusters.running_detached():
        print(f"{one.name}  {one.url}  KUBECONFIG={one.kubeconfig}  started from {one.checkout}")
    return 0


def assets() -> int:
    """Print the folder with the programs, making them first where needed."""
    print(find_binaries(say).folder)
    return 0


def run(command: list[str]) -> int:
    """Run a command with a control plane of its own and return its exit code."""
    with cluster_for_tests(say) as plane:
        kubeconfig = str(plane.kubeconfig)
        child = subprocess.Popen(
            command,
            env={**os.environ, "KUBECONFIG": kubeconfig, GIVEN_CLUSTER: kubeconfig},
            preexec_fn=die_with_parent,  # noqa: PLW1509 - only a system call
        )
        try:
            return child.wait()
        except KeyboardInterrupt:
            # Ctrl-C reached the command too; a signal to this process alone did not.
            try:
                child.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                child.terminate()
                child.wait()
            return INTERRUPTED


def kind_up() -> int:
    """Start kind and say how to use it."""
    kind.up(say)
    print(f"export KUBECONFIG={kind.kubeconfig_path()}")
    return 0


def kind_down() -> int:
    """Delete the kind cluster."""
    kind.down(say)
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.cluster.controlplane",
        description=(
            "A real Kubernetes control plane (etcd, kube-apiserver, kube-controller-manager, kube-scheduler) as "
            "plain processes, without Docker."
        ),
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("up", help="start one, print its kubeconfig and leave it running")
    stop = commands.add_parser("down", help="stop what `up` started from this clone, or the one named")
    stop.add_argument("name", nargs="?", help="as `up` and `status` print it")
    commands.add_parser("status", help="list what runs")
    commands.add_parser("assets", help="print the folder with the programs, making them first where needed")
    execute = commands.add_parser("run", help="run a command with KUBECONFIG set to a control plane of its own")
    execute.add_argument("argv", nargs="+", metavar="CMD", help="the command, after --")
    commands.add_parser("kind-up", help="the same through kind, where Docker exists")
    commands.add_parser("kind-down", help="delete the kind cluster")
    end_to_end = commands.add_parser("kind-e2e", help="run tests/cluster against kind")
    end_to_end.add_argument("pytest", nargs="*", metavar="ARG", help="arguments for pytest, after --")
    return parser


def main() -> int:
    """Do what the command line says and return the exit code."""
    options = parser().parse_args()
    actions: dict[str, Callable[[], int]] = {
        "up": up,
        "down": lambda: down(options.name),
        "status": status,
        "assets": assets,
        "run": lambda: run(options.argv),
        "kind-up": kind_up,
        "kind-down": kind_down,
        "kind-e2e": lambda: kind.end_to_end(say, options.pytest),
    }
    try:
        return actions[options.command]()
    except UnavailableError as error:
        say(str(error))
        return 2
    except ControlPlaneError as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
