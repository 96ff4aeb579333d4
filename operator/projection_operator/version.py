"""The version of the distribution, which is the version of the engine too."""

from importlib import metadata

DISTRIBUTION = "projection-operator"


def version() -> str:
    """The installed version; `0+unknown` when the packages run from a folder that was never installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "0+unknown"
