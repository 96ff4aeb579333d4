"""The program that runs inside the namespaces: control plane, containerd, kubelet, device plugin.

Started by `sandbox`. It is process 1 of its process namespace, so all that it started ends with it. It prints
one line of JSON when the node offers its GPUs, and ends when standard input does.
"""

import json
import subprocess
import sys
from pathlib import Path

from tests.cluster.controlplane.binaries import Binaries
from tests.cluster.controlplane.plane import READY_SECONDS, ControlPlane, KubectlError, Running, start
from tests.kubelet import image, node

GPUS = 8
KUBELET_SOCKET = Path("/var/lib/kubelet/device-plugins/kubelet.sock")

FIXED_SETTINGS = {"kernel/panic": "10", "kernel/panic_on_oops": "1", "vm/overcommit_memory": "1"}
"""What the kubelet sets for the whole machine: k8s.io/component-helpers node/util/sysctl."""


def prepare_mounts() -> None:
    """Hide every place of the machine that containerd or the kubelet writes to."""
    for path in ("/run", "/var/lib", "/var/log"):
        _call("mount", "-t", "tmpfs", "tmpfs", path)
    # It finds these settings as it wants them and leaves the real ones alone.
    for name, value in FIXED_SETTINGS.items():
        stand_in = Path("/run") / name.replace("/", "-")
        stand_in.write_text(value)
        _call("mount", "--bind", str(stand_in), f"/proc/sys/{name}")


def prepare_network() -> None:
    """Give the node an address of its own."""
    _call("ip", "link", "set", "lo", "up")
    _call("ip", "link", "add", "node", "type", "veth", "peer", "name", "outside")
    for device in ("node", "outside"):
        _call("ip", "link", "set", device, "up")
    _call("ip", "address", "add", f"{node.ADDRESS}/24", "dev", "node")


def start_node(running: Running, binaries: Binaries, stub: Path, cgroup: str) -> None:
    """Start containerd, load the image, start the kubelet and the device plugin, await the GPUs."""
    plane, supervisor = running.plane, running.supervisor
    files = node.NodeFiles(folder=plane.folder, cgroup=cgroup)
    supervisor.start("containerd", node.containerd(files))
    ctr = ["ctr", f"--address={files.socket}", "--namespace=k8s.io"]
    supervisor.wait_until(
        lambda: subprocess.run([*ctr, "version"], capture_output=True, check=False).returncode == 0,
        what="containerd",
        seconds=READY_SECONDS,
    )
    archive = Path("/run/image.tar")
    image.write_image(stub, archive)
    _call(*ctr, "images", "import", str(archive))
    supervisor.start("kubelet", node.kubelet(binaries, plane, files))
    # The kubelet clears the folder before it listens; a plugin that came earlier would lose its socket.
    supervisor.wait_until(KUBELET_SOCKET.exists, what="the kubelet", seconds=READY_SECONDS)
    supervisor.start("device-plugin", [str(stub), "device-plugin", str(GPUS)])
    supervisor.wait_until(lambda: _offers_gpus(plane), what="a ready node with GPUs", seconds=READY_SECONDS)


def _offers_gpus(plane: ControlPlane) -> bool:
    try:
        status = plane.get(f"node/{node.NODE}")["status"]
    except KubectlError:
        return False
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status["conditions"])
    return ready and status["allocatable"].get("amd.com/gpu") == str(GPUS)


def _call(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main(binaries_folder: str, stub: str, cgroup: str) -> None:
    """Run the cluster until standard input ends."""
    prepare_mounts()
    prepare_network()
    binaries = Binaries(folder=Path(binaries_folder), source="outside")
    running = start(binaries)
    try:
        start_node(running, binaries, Path(stub), cgroup)
        plane = running.plane
        places = {"url": plane.url, "folder": str(plane.folder), "kubeconfig": str(plane.kubeconfig)}
        print(json.dumps(places), flush=True)
        sys.stdin.read()
    finally:
        running.supervisor.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
