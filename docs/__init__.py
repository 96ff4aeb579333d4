"""The documentation, and the programs that generate its reference pages from their sources."""
