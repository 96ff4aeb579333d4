"""Mutated configuration files against every reader: `python -m tests.fuzz --files 100000`."""
