"""Scores the engine against published measurements; `python -m tests.accuracy --rows FILE [--json]`."""
