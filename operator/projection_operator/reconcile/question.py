"""From a request to the engine's `Question`, and to the hash that identifies it.

Only the request and what it names decide: no process environment, no file of the operator's own system.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from projection_operator.api.reasons import Reason
from projection_operator.api.spec import KeyReference, Request
from projection_operator.api.status import DeviceSource
from projection_operator.presets import preset_text
from projection_operator.reconcile.observed import Observed
from projector import catalog
from projector.api import Question
from projector.errors import ConfigurationError, DeviceUnknown, InputError
from projector.job import Scaling, Schedule

OVERRIDE_KEYS = {
    "tensor": "tensor_model_parallel_size",
    "pipeline": "pipeline_model_parallel_size",
    "virtualPipeline": "virtual_pipeline_model_parallel_size",
    "expert": "expert_model_parallel_size",
    "expertTensor": "expert_tensor_parallel_size",
    "context": "context_parallel_size",
    "micro": "micro_batch_size",
    "global": "global_batch_size",
    "sequenceLength": "seq_length",
}
"""Fields of `spec.parallelism` and `spec.batch`, as Megatron-LM's arguments.py names them."""

SCHEDULES = {
    "Auto": "auto",
    "OneForwardOneBackward": Schedule.ONE_F_ONE_B,
    "Interleaved": Schedule.INTERLEAVED,
    "ZeroBubble": Schedule.ZERO_BUBBLE,
    "ZeroBubbleHeuristic": Schedule.ZERO_BUBBLE_HEURISTIC,
    "ZBVFormatted": Schedule.ZBV_FORMATTED,
    "ZBVGreedyHalf": Schedule.ZBV_GREEDY_HALF,
    "ZBVGreedyMin": Schedule.ZBV_GREEDY_MIN,
    "SeaAILabILP": Schedule.SEAAILAB_ILP,
    "GPipe": Schedule.GPIPE,
    "LoopedBFS": Schedule.LOOPED_BFS,
    "InterleavedZeroBubble": Schedule.INTERLEAVED_ZERO_BUBBLE,
    "All": "all",
}
"""`spec.pipelineSchedule`, as the engine names it."""


class ConfigMapNotFound(InputError):  # noqa: N818 - named after the condition's reason
    """A ConfigMap that the spec names is not there."""

    reason: ClassVar[str] = Reason.CONFIG_MAP_NOT_FOUND


class ConfigMapKeyNotFound(InputError):  # noqa: N818 - named after the condition's reason
    """A ConfigMap has no such key."""

    reason: ClassVar[str] = Reason.CONFIG_MAP_KEY_NOT_FOUND


def build_question(request: Request, observed: Observed, *, primus_root: Path | None) -> Question:
    """The question that a request asks; raises `InputError` when something it names is not there."""
    text, name = _configuration(request, observed)
    target, training = request.target, request.training
    hardware = target.hardware_config
    return Question(
        text=text,
        name=name,
        format=training.format.lower() if training.format else None,
        primus_root=primus_root,
        variables=training.variables,
        overrides={**training.overrides, **_overrides(request.parallelism), **_overrides(request.batch)},
        device=target.device or _device_of_nodes(observed.node_products),
        nodes=target.nodes,
        devices_per_node=target.devices_per_node,
        scaling=Scaling(target.scaling.lower()),
        memory=request.memory,
        performance=request.performance,
        schedule=SCHEDULES[request.pipeline_schedule],
        hardware=_text(observed, hardware, place="spec.target.hardwareConfigRef") if hardware else None,
    )


def device_source(request: Request) -> DeviceSource:
    """Where the GPU of the question is from."""
    return DeviceSource.SPEC if request.target.device else DeviceSource.NODE_LABELS


def spec_hash(question: Question, request: Request, *, engine_version: str) -> str:
    """SHA-256, in hexadecimal, over everything that the answer in the status depends on."""
    content = {field.name: getattr(question, field.name) for field in dataclasses.fields(question)}
    content |= {"tokens": request.target.tokens, "mode": request.profiling_mode, "engine": engine_version}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _configuration(request: Request, observed: Observed) -> tuple[str, str]:
    """Content of the configuration, and what to call it in messages."""
    training = request.training
    if training.inline is not None:
        return training.inline, "spec.training.inline"
    if training.preset is not None:
        return preset_text(training.preset), training.preset
    if training.config_map is not None:
        return _text(observed, training.config_map, place="spec.training.configMapRef"), training.config_map.key
    raise ConfigurationError(
        "no configuration is given", place="spec.training", expected="give one of inline, configMapRef and preset"
    )


def _text(observed: Observed, reference: KeyReference, *, place: str) -> str:
    content = observed.config_maps.get(reference.name)
    if content is None:
        raise ConfigMapNotFound(
            f"ConfigMap {reference.name!r} is not in this namespace",
            place=place,
            expected='create it; with the label projection.dev/config: "true" it is noticed at once',
        )
    if reference.key in content.data:
        return content.data[reference.key]
    if reference.key not in content.binary:
        known = ", ".join(sorted({*content.data, *content.binary})) or "none"
        raise ConfigMapKeyNotFound(
            f"ConfigMap {reference.name!r} has no key {reference.key!r}", place=place, expected=f"its keys are: {known}"
        )
    try:
        return content.binary[reference.key].decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"key {reference.key!r} of ConfigMap {reference.name!r} is not UTF-8 text ({error.reason})"
        raise ConfigurationError(message, place=place) from error


def _overrides(sizes: Mapping[str, int]) -> dict[str, str]:
    return {OVERRIDE_KEYS[name]: str(size) for name, size in sizes.items()}


def _device_of_nodes(products: frozenset[str] | None) -> str:
    """The GPU that all matching nodes share; `DeviceUnknown` when they do not tell."""
    place, expected = "spec.target.device", "state the GPU there, such as MI300X"
    if products is None:
        message = "not given, and this operator may not read the labels of nodes"
        raise DeviceUnknown(message, place=place, expected=expected)
    if not products:
        message = "not given, and no matching node carries the label amd.com/gpu.product-name"
        raise DeviceUnknown(message, place=place, expected=expected)
    models = sorted({catalog.device(product).name for product in products})
    if len(models) > 1:
        message = f"not given, and the matching nodes differ: {', '.join(models)}"
        raise DeviceUnknown(message, place=place, expected=expected)
    return models[0]
