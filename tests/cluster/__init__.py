"""Tests against a real Kubernetes control plane."""
