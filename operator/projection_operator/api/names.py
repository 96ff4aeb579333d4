"""Names that stand in the cluster: API group, labels, annotations, managers."""

from dataclasses import dataclass

GROUP = "projection.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "ProjectionRequest"
PLURAL = "projectionrequests"

CONFIG_LABEL = f"{GROUP}/config"
"""With the value `true` on a ConfigMap: each change of it is projected again at once."""
CONFIG_SELECTOR = f"{CONFIG_LABEL}=true"
"""The ConfigMaps that are watched."""
ANSWER_HASH_ANNOTATION = f"{GROUP}/answer-hash"
"""On a report: the answer in the status that it belongs to."""
TRANSITION_ANNOTATION = f"{GROUP}/transition"
"""On an Event: the version of the object at which it was last emitted."""

FIELD_MANAGER = "projection-operator"
REPORTING_CONTROLLER = f"{GROUP}/operator"

REPORT_LABELS = {
    "app.kubernetes.io/name": "projection-operator",
    "app.kubernetes.io/component": "report",
    "app.kubernetes.io/part-of": "projection-operator",
    "app.kubernetes.io/managed-by": "projection-operator",
}


@dataclass(frozen=True, order=True, slots=True)
class Key:
    """Name of a namespaced object."""

    namespace: str
    """Namespace."""
    name: str
    """Name in the namespace."""

    def __str__(self) -> str:
        """As people write it: `namespace/name`."""
        return f"{self.namespace}/{self.name}"
