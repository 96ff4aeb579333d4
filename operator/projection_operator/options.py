"""What the command `projection-operator run` was told."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Settings of one operator process."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to serve; none serves the whole cluster."""
    kubeconfig: Path | None = None
    """Credentials; None uses the pod's service account."""
    host: str = "0.0.0.0"  # noqa: S104 - probes and scrapes come from outside the pod
    """Address that /healthz, /readyz and /metrics are served on."""
    metrics_port: int = 8080
    """Their port; 0 takes a free one, which the log names."""
    resync_seconds: float = 600.0
    """How often everything is looked at again, whatever the watch said."""
    probe_seconds: float = 30.0
    """How often the watch is checked against a list."""
    deaf_seconds: float = 120.0
    """Lag of the watch at which /healthz fails."""
    primus_root: Path | None = None
    """A Primus checkout whose presets configurations may use; None uses the catalog."""
    workers: int = 4
    """Requests that are looked at concurrently."""
    engine_processes: int = 2
    """Runs of the engine at once."""
    engine_seconds: float = 10.0
    """Longest that one run may take. Public recipes take less than one second, 128 pipeline stages three; and while it
    lasts, others wait."""
    engine_memory_mib: int = 192
    """Address space of one run in MiB. Public recipes take 25, 128 pipeline stages 64; and the memory limit of a
    container has to hold `engine_processes` of them, since kubelets kill the whole container beyond it."""
