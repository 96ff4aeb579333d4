"""What Prometheus sees: `requests` about the living requests, `operator` about the operator itself."""
