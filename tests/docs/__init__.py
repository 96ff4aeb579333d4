"""The documentation says what the programs do."""
