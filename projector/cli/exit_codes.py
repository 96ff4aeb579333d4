"""Exit codes of the command; scripts depend on them."""

ANSWERED = 0
"""The question was answered."""
UNEXPECTED = 1
"""A defect of projector."""
WRONG_INPUT = 2
"""Wrong input or usage, or an option that is not available yet."""
DOES_NOT_FIT = 3
"""The job does not fit; only with `--check`."""
NO_DEVICE = 4
"""A benchmark was asked for and no usable device is there."""
INTERRUPTED = 130
"""Ended by Ctrl-C, as a shell reports SIGINT."""
BROKEN_PIPE = 141
"""The reader of the output went away, as a shell reports SIGPIPE."""
