"""A real Kubernetes control plane for development and tests: one command, no Docker.

etcd, kube-apiserver, kube-controller-manager and kube-scheduler run as plain processes of the current
user, with a throw-away certificate authority, on free ports of 127.0.0.1. There is no kubelet: Jobs get
pods and pods get nodes, but no container runs.

`binaries` finds or makes the programs (`downloads`, `build`), `certificates` and `kubeconfig` make the
credentials, `components` knows the command lines, `supervisor` owns the processes and removes everything when
its owner is gone, `plane` puts these together, `clusters` lists and stops what was left running on purpose,
`kind` offers the same through kind, and `__main__` is the command line.
"""

from tests.cluster.controlplane.errors import ControlPlaneError, UnavailableError
from tests.cluster.controlplane.plane import ControlPlane, cluster_for_tests, running_control_plane

__all__ = ["ControlPlane", "ControlPlaneError", "UnavailableError", "cluster_for_tests", "running_control_plane"]
