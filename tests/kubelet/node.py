"""The command lines and configuration files of containerd and the kubelet.

Several settings are for machines that are containers or small virtual machines themselves: root without
CAP_SYS_RESOURCE, cgroup v1, no systemd. They do no harm elsewhere.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.controlplane import kubeconfig
from tests.cluster.controlplane.binaries import Binaries
from tests.cluster.controlplane.certificates import Authority
from tests.cluster.controlplane.plane import ControlPlane
from tests.kubelet.image import NAME as IMAGE

NODE = "node-1"
ADDRESS = "10.199.0.1"
"""Address of the node in its own network."""
POD_NETWORK = "10.199.128.0/24"
PLUGIN_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
"""Where Debian and the upstream releases put the network plugins."""

Argv = tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFiles:
    """Where a node keeps its things."""

    folder: Path
    """Scratch folder of the control plane; configuration and sockets."""
    cgroup: str
    """Control group, made beforehand, under which the kubelet makes those of the pods."""

    @property
    def socket(self) -> Path:
        """Socket of containerd."""
        return self.folder / "containerd.sock"


def network_plugins() -> Path | None:
    """Return the folder of the network plugins, if they are installed."""
    return next((folder for folder in PLUGIN_FOLDERS if (folder / "bridge").exists()), None)


def containerd(files: NodeFiles) -> Argv:
    """Write containerd's configuration and return its command line."""
    networks = files.folder / "cni"
    networks.mkdir()
    addresses = {"type": "host-local", "subnet": POD_NETWORK, "dataDir": "/run/cni"}
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "ipam": addresses}
    network = {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge]}
    (networks / "10-pods.conflist").write_text(json.dumps(network))
    configuration = files.folder / "containerd.toml"
    configuration.write_text(
        f"""version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
[grpc]
  address = "{files.socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{IMAGE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{network_plugins()}"
    conf_dir = "{networks}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""
    )
    return ("containerd", f"--config={configuration}")


def kubelet(binaries: Binaries, plane: ControlPlane, files: NodeFiles) -> Argv:
    """Write the kubelet's configuration and credentials and return its command line."""
    pair = Authority(plane.ca_file.parent).client("kubelet", f"system:node:{NODE}", "system:nodes")
    access = kubeconfig.with_client_certificate(files.folder / "kubelet.kubeconfig", plane.url, plane.ca_file, pair)
    configuration = files.folder / "kubelet.yaml"
    configuration.write_text(
        json.dumps(
            {
                "apiVersion": "kubelet.config.k8s.io/v1beta1",
                "kind": "KubeletConfiguration",
                "authentication": {"x509": {"clientCAFile": str(plane.ca_file)}, "anonymous": {"enabled": False}},
                "containerRuntimeEndpoint": f"unix://{files.socket}",
                "cgroupDriver": "cgroupfs",
                "cgroupRoot": files.cgroup,
                "failCgroupV1": False,
                "failSwapOn": False,
                # Lowering the score or raising the limit takes CAP_SYS_RESOURCE.
                "oomScoreAdj": 0,
                "maxOpenFiles": 20000,
                # A nearly full disk of the developer's is none of the tests' business.
                "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
                "imageGCHighThresholdPercent": 100,
                "makeIPTablesUtilChains": False,
                "volumePluginDir": str(files.folder / "volume-plugins"),
                "nodeStatusUpdateFrequency": "2s",
            }
        )
    )
    return (
        binaries.path("kubelet"),
        f"--config={configuration}",
        f"--kubeconfig={access}",
        f"--hostname-override={NODE}",
        f"--node-ip={ADDRESS}",
    )
