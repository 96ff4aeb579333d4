"""ProjectionRequests to apply, and what tests ask about them."""

import json
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.controlplane import ControlPlane
from tests.cluster.controlplane.plane import KubectlError
from tests.cluster.operator_process import PATIENCE_SECONDS, eventually

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = (ROOT / "samples" / "experiments" / "llama3.1-70b-mi300x.yaml").read_text(encoding="utf-8")
TARGET = {"nodes": 8, "devicesPerNode": 8, "device": "MI300X"}

Json = dict[str, Any]


def request(name: str, namespace: str, *, inline: str = SAMPLE, **spec: object) -> Json:
    """The sample's question under another name; `spec` replaces fields, `training` all of it."""
    return {
        "apiVersion": "projection.dev/v1alpha1",
        "kind": "ProjectionRequest",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "training": {"format": "Primus", "inline": inline},
            "target": TARGET,
            "batch": {"global": 192},
            **spec,
        },
    }


def config_map(name: str, namespace: str, data: dict[str, str], *, labelled: bool = True) -> Json:
    """A ConfigMap with a training configuration."""
    labels = {"projection.dev/config": "true"} if labelled else {}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def wait_completed(plane: ControlPlane, namespace: str, *names: str) -> None:
    """`kubectl wait` as people write it."""
    plane.wait(
        "condition=Completed",
        f"--namespace={namespace}",
        *(f"projreq/{name}" for name in names),
        seconds=PATIENCE_SECONDS,
    )


def wait_refused(plane: ControlPlane, namespace: str, name: str) -> None:
    """Wait until the request is not accepted."""
    plane.wait("condition=Accepted=false", f"--namespace={namespace}", f"projreq/{name}", seconds=PATIENCE_SECONDS)


def get(plane: ControlPlane, namespace: str, name: str, kind: str = "projreq") -> Json:
    """One object."""
    return plane.get(kind, name, f"--namespace={namespace}")


def condition(body: Json, kind: str) -> Json:
    """One condition of a request."""
    found: Json = next(item for item in body["status"]["conditions"] if item["type"] == kind)
    return found


def events(plane: ControlPlane, namespace: str, name: str) -> list[Json]:
    """Events about a request."""
    items: list[Json] = plane.get("events.events.k8s.io", f"--namespace={namespace}")["items"]
    return [item for item in items if item["regarding"]["name"] == name]


def reports(plane: ControlPlane, namespace: str) -> list[Json]:
    """All reports of a namespace."""
    selector = "--selector=app.kubernetes.io/managed-by=projection-operator,app.kubernetes.io/component=report"
    items: list[Json] = plane.get("configmaps", f"--namespace={namespace}", selector)["items"]
    return items


def wait_gone(plane: ControlPlane, namespace: str, name: str, kind: str = "projreq") -> None:
    """Wait until an object is not there any more."""
    eventually(lambda: not exists(plane, namespace, name, kind), what=f"{kind} {name} to be gone")


def exists(plane: ControlPlane, namespace: str, name: str, kind: str = "projreq") -> bool:
    """Whether an object is there."""
    try:
        plane.kubectl("get", kind, name, f"--namespace={namespace}")
    except KubectlError as error:
        if "NotFound" in str(error):
            return False
        raise
    return True


def change_spec(plane: ControlPlane, namespace: str, name: str, **spec: object) -> None:
    """Change fields of a request's spec."""
    patch = json.dumps({"spec": spec})
    plane.kubectl("patch", "projreq", name, f"--namespace={namespace}", "--type=merge", f"--patch={patch}")


def sample_request(namespace: str) -> Json:
    """`samples/projectionrequest.yaml` in a namespace."""
    body: Json = yaml.safe_load((ROOT / "samples" / "projectionrequest.yaml").read_text(encoding="utf-8"))
    return {**body, "metadata": {**body["metadata"], "namespace": namespace}}
