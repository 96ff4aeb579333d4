"""The catalog's facts: complete, sourced, and equal to what others publish."""
