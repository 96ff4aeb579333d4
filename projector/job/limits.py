"""Sizes beyond which no description of a job is believed, whoever wrote it."""

MAXIMUM_INTEGER = 10**12
"""No size, degree or count of a training job reaches a million million."""
MAXIMUM_LAYERS = 4096
"""Decoder layers, and layers of multi-token prediction, of one model; the deepest public model has 126."""
