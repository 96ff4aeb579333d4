"""The spec of a ProjectionRequest as values.

The API server has already checked the object against the schema, so parsing only has to bridge what may be absent;
defaults are repeated here because objects stored before a default existed are served without it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from projection_operator.api.names import Key


@dataclass(frozen=True, kw_only=True, slots=True)
class KeyReference:
    """One key of a ConfigMap in the request's namespace."""

    name: str
    """The ConfigMap."""
    key: str
    """Its key."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Training:
    """Where the training configuration comes from."""

    format: str | None
    """Dialect as the schema spells it (`Primus`, ...); None detects it."""
    inline: str | None
    """The configuration itself."""
    config_map: KeyReference | None
    """A ConfigMap that holds it."""
    preset: str | None
    """A recipe that ships with the project."""
    variables: Mapping[str, str]
    """Values for `${NAME}`."""
    overrides: Mapping[str, str]
    """Keys to set, in the dialect of the configuration."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestTarget:
    """Where the job would run."""

    nodes: int
    """Hosts."""
    devices_per_node: int
    """GPUs of a host."""
    device: str | None
    """GPU; None asks the nodes of the cluster."""
    scaling: str
    """`Strong` or `Weak`."""
    tokens: int | None
    """Tokens to train on."""
    hardware_config: KeyReference | None
    """A ConfigMap that describes the hardware."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A ProjectionRequest: identity, spec, and the status as it stands."""

    key: Key
    """Namespace and name."""
    uid: str
    """Identity that does not come back after deletion."""
    generation: int
    """Version of the spec."""
    resource_version: str
    """Version of the whole object."""
    deleting: bool
    """Deletion has begun."""
    training: Training
    """What is trained."""
    target: RequestTarget
    """On what."""
    parallelism: Mapping[str, int]
    """Sizes by the schema's names (`tensor`, ...), only those that are stated."""
    batch: Mapping[str, int]
    """`micro`, `global`, `sequenceLength`, only those that are stated."""
    memory: bool
    """Memory is asked for."""
    performance: bool
    """Performance is asked for."""
    profiling_mode: str
    """`Simulate`, `Benchmark` or `Both`."""
    node_selector: Mapping[str, str]
    """Labels that nodes must carry to count."""
    pipeline_schedule: str
    """As the schema spells it."""
    ttl_seconds: int | None
    """Seconds from completion to deletion; None keeps the object."""
    status: Mapping[str, Any]
    """The status as stored."""

    @property
    def config_maps(self) -> frozenset[str]:
        """Names of the ConfigMaps that the answer depends on."""
        references = (self.training.config_map, self.target.hardware_config)
        return frozenset(reference.name for reference in references if reference)


def parse_request(body: Mapping[str, Any]) -> Request:
    """The request that an object of the API server describes."""
    metadata, spec = body["metadata"], body.get("spec") or {}
    profiling = spec.get("profiling") or {}
    projections = spec.get("projections") or ["Memory", "Performance"]
    return Request(
        key=Key(metadata["namespace"], metadata["name"]),
        uid=metadata["uid"],
        generation=metadata.get("generation", 0),
        resource_version=metadata["resourceVersion"],
        deleting="deletionTimestamp" in metadata,
        training=_training(spec.get("training") or {}),
        target=_target(spec.get("target") or {}),
        parallelism=dict(spec.get("parallelism") or {}),
        batch=dict(spec.get("batch") or {}),
        memory="Memory" in projections,
        performance="Performance" in projections,
        profiling_mode=profiling.get("mode", "Simulate"),
        node_selector=_pairs((profiling.get("podTemplate") or {}).get("nodeSelector")),
        pipeline_schedule=spec.get("pipelineSchedule", "Auto"),
        ttl_seconds=spec.get("ttlSecondsAfterFinished"),
        status=body.get("status") or {},
    )


def _training(training: Mapping[str, Any]) -> Training:
    return Training(
        format=training.get("format"),
        inline=training.get("inline"),
        config_map=_reference(training.get("configMapRef")),
        preset=training.get("preset"),
        variables=_pairs(training.get("variables")),
        overrides=_pairs(training.get("overrides")),
    )


def _target(target: Mapping[str, Any]) -> RequestTarget:
    return RequestTarget(
        nodes=target.get("nodes", 1),
        devices_per_node=target.get("devicesPerNode", 8),
        device=target.get("device"),
        scaling=target.get("scaling", "Strong"),
        tokens=target.get("tokens"),
        hardware_config=_reference(target.get("hardwareConfigRef")),
    )


def _reference(reference: Mapping[str, str] | None) -> KeyReference | None:
    return KeyReference(name=reference["name"], key=reference["key"]) if reference else None


def _pairs(items: Sequence[Mapping[str, str]] | None) -> dict[str, str]:
    return {item["name"]: item["value"] for item in items or ()}
