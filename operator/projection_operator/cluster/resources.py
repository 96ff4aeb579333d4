"""The kinds that the operator touches, and where the API server keeps them."""

from dataclasses import dataclass
from urllib.parse import quote

from projection_operator.api.names import GROUP, PLURAL, VERSION


@dataclass(frozen=True, kw_only=True, slots=True)
class Resource:
    """One kind."""

    group: str
    """API group; empty for the core group."""
    version: str
    """Version."""
    plural: str
    """Name in paths."""

    @property
    def api_version(self) -> str:
        """As `apiVersion` in objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_path(self) -> str:
        """Where the kinds of the group and version are listed."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str | None, name: str | None, subresource: str = "") -> str:
        """Path of one object, of a namespace's objects, or of all."""
        parts = [self.group_path]
        if namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts += [part for part in (self.plural, quote(name or "", safe=""), subresource) if part]
        return "/".join(parts)


REQUESTS = Resource(group=GROUP, version=VERSION, plural=PLURAL)
CONFIG_MAPS = Resource(group="", version="v1", plural="configmaps")
NODES = Resource(group="", version="v1", plural="nodes")
EVENTS = Resource(group="events.k8s.io", version="v1", plural="events")
