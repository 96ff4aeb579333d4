"""A kopf operator that answers ProjectionRequests: does a training job fit, and how fast will it run.

`main` is the command, `handlers` is all that kopf sees, `controller` carries out what `reconcile` (pure) decides;
`api` is the typed view of the object, `cluster` talks to the API server, `metrics` to Prometheus.
"""
