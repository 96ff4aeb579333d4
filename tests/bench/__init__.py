"""Timings that are reported, never asserted; `python -m tests.bench`."""
