"""The typed view of a ProjectionRequest: spec in, status out, conditions and reasons as tables."""
