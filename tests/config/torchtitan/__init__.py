"""Tests of the reader of TorchTitan's configurations."""
