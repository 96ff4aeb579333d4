"""Where the programs come from.

1. `KUBEBUILDER_ASSETS`, when that folder has them all
2. the official archives, checked (`downloads`)
3. a build from Go modules (`build`)

What 2 and 3 made stays in the cache, keyed by the versions and by what decides a build, and is used again
without asking the network.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.controlplane import build, downloads, versions
from tests.cluster.controlplane.cache import Say, cache_folder, filled_atomically, locked

REQUIRED = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")


@dataclass(frozen=True, kw_only=True, slots=True)
class Binaries:
    """The programs of one control plane."""

    folder: Path
    """Holds every program of REQUIRED and, unless it is KUBEBUILDER_ASSETS, the kubelet."""
    source: str
    """Where they come from, for people."""

    def path(self, program: str) -> str:
        """Return the path of `program`."""
        return str(self.folder / program)


def find_binaries(say: Say, environment: Mapping[str, str] = os.environ, cache: Path | None = None) -> Binaries:
    """Return the programs, downloading or building them first where needed.

    Raises:
        UnavailableError: nothing can be downloaded and Go is missing.
        ControlPlaneError: a download was not what was pinned, or the build failed.
    """
    assets = environment.get("KUBEBUILDER_ASSETS")
    if assets:
        folder = Path(assets).expanduser().resolve()
        missing = [name for name in REQUIRED if not os.access(folder / name, os.X_OK)]
        if not missing:
            return Binaries(folder=folder, source="KUBEBUILDER_ASSETS")
        # setup-envtest fills such a folder without the last two, and people have the variable set for it.
        say(f"KUBEBUILDER_ASSETS={assets} lacks {', '.join(missing)}: not used")
    return _cached(cache or cache_folder() / "control-plane", say)


def _cached(cache: Path, say: Say) -> Binaries:
    name = f"kubernetes-{versions.kubernetes_version()}-etcd-{versions.etcd_version()}-{versions.platform_name()}"
    official = Binaries(folder=cache / f"{name}-official", source="official release, checksums pinned")
    built = Binaries(folder=cache / f"{name}-{versions.modules_digest()}", source="built from pinned Go modules")
    with locked(cache, say):
        for candidate in (official, built):
            if candidate.folder.is_dir():
                return candidate
        try:
            archives = downloads.pinned_archives()
            with filled_atomically(official.folder) as scratch:
                downloads.download_into(scratch, archives, say)
        except downloads.NotDownloadableError as error:
            say(f"official binaries: {error}")
        else:
            return official
        with filled_atomically(built.folder) as scratch:
            build.build_into(scratch, say)
        return built
