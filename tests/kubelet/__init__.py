"""Tests on a real kubelet and containerd, inside namespaces of their own."""
