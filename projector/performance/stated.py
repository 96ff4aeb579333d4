"""What an answer says of stated figures: each that has an influence, and each that finds nothing to change."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from projector.job import Attention, MixtureOfExperts, OptimizerKind, TrainingJob
from projector.performance.sampling import attends_in_several_ways, has_ratios
from projector.provenance import Assumption

_WHY = "in place of the cost model's own figure"


class Figure(NamedTuple):
    """A field of `projector.job.Tuning`, in words."""

    what: str
    """The figure, before its value."""
    unit: str
    """Behind its value."""
    scale: float
    """From the field to that unit."""
    lacks: Callable[[TrainingJob], bool]
    """Whether the job has nothing that it changes."""
    without: str
    """What is missing then."""


def _no_muon(job: TrainingJob) -> bool:
    return job.optimizer.kind is not OptimizerKind.MUON


def _no_experts(job: TrainingJob) -> bool:
    return not any(isinstance(layer.feed_forward, MixtureOfExperts) for layer in job.model.distinct_layers)


def _no_casts(job: TrainingJob) -> bool:
    return _no_experts(job) or job.precision.low_precision is None


def _not_compressed(job: TrainingJob) -> bool:
    return not has_ratios(job.model)


def _no_choice(job: TrainingJob) -> bool:
    mixers = (layer.mixer for layer in job.model.distinct_layers)
    chooses = any(isinstance(mixer, Attention) and mixer.index_heads for mixer in mixers)
    return not chooses or job.software.gathered_keys


def _no_passes(job: TrainingJob) -> bool:
    tuning = job.tuning
    return tuning is None or (tuning.attention_forward_passes is None and tuning.attention_backward_passes is None)


def _permuted_once(job: TrainingJob) -> bool:
    return job.tuning is not None and job.tuning.permutation_bandwidth_share is not None


def _no_sample(job: TrainingJob) -> bool:
    return job.tuning is None or job.tuning.sampled_layers is None


def _one_kind(job: TrainingJob) -> bool:
    return not attends_in_several_ways(job.model)


_EXPERTS = (_no_experts, "the model has no experts")
_CASTS = (_no_casts, "no experts multiply in low precision")
_COMPRESSED = (_not_compressed, "attention is not of DeepSeek-V4's kind")
_CHOICE = (_no_choice, "no kernel of attention reads keys that an indexer chooses")
_MUON = (_no_muon, "the optimizer is not Muon")

FIGURES: Mapping[str, Figure] = {
    "optimizer_bandwidth_share": Figure("share of memory bandwidth in the optimizer step", "", 1, lambda _: False, ""),
    "newton_schulz_steps": Figure("iterations of Muon", "", 1, *_MUON),
    "newton_schulz_seconds": Figure("time of Muon's iterations", "ms", 1e3, *_MUON),
    "permutation_efficiency": Figure("rate of token permutation over other element-wise work", "", 1, *_EXPERTS),
    "permutation_launch_seconds": Figure("time between kernels of token permutation", "us", 1e6, *_EXPERTS),
    "permutation_bandwidth_share": Figure(
        "one permutation each way at a share of memory bandwidth of", "", 1, *_EXPERTS
    ),
    "expert_cast_efficiency": Figure("rate of casts of experts over other element-wise work", "", 1, *_CASTS),
    "expert_launch_seconds": Figure("time between element-wise kernels of experts", "us", 1e6, *_EXPERTS),
    "expert_forward_seconds": Figure("time of each expert in a forward pass", "ms", 1e3, *_EXPERTS),
    "expert_backward_seconds": Figure("time of each expert in a backward pass", "ms", 1e3, *_EXPERTS),
    "attention_bandwidth_share": Figure(
        "share of memory bandwidth in element-wise work of attention", "", 1, *_COMPRESSED
    ),
    "attention_forward_passes": Figure("passes over memory in forward attention", "", 1, *_COMPRESSED),
    "attention_backward_passes": Figure("passes over memory in backward attention", "", 1, *_COMPRESSED),
    "attention_pass_bandwidth_share": Figure("share of memory bandwidth of these passes", "", 1, *_COMPRESSED),
    "sliding_window_share": Figure("share of a sliding window's products", "", 1, *_COMPRESSED),
    "key_scatter_bandwidth_share": Figure(
        "share of memory bandwidth in adding up gradients of chosen keys", "", 1, *_CHOICE
    ),
    "sampled_layers": Figure(
        "layers whose attention stands for that of all", "", 1, _one_kind, "all layers attend alike"
    ),
    "sampled_ratios": Figure("their compression ratios", "", 1, _not_compressed, _COMPRESSED[1]),
}
"""By field, in its order."""

_BESIDE: Mapping[str, tuple[Callable[[TrainingJob], bool], str]] = {
    "permutation_efficiency": (_permuted_once, "permutation_bandwidth_share puts another model in its place"),
    "attention_pass_bandwidth_share": (_no_passes, "works beside passes over memory"),
    "sampled_ratios": (_no_sample, "works beside sampled_layers"),
}
"""Figures that others make idle."""


def stated_figures(job: TrainingJob) -> tuple[tuple[Assumption, ...], tuple[str, ...]]:
    """What is stated and counts, and what is stated and has no influence on the job's time."""
    counted: list[Assumption] = []
    idle: list[str] = []
    for name, figure in FIGURES.items() if job.tuning is not None else ():
        value = getattr(job.tuning, name)
        if value in (None, ()):
            continue
        if (beside := _BESIDE.get(name)) is not None and beside[0](job):
            idle.append(f"tuning.{name} ({beside[1]})")
        elif figure.lacks(job):
            idle.append(f"tuning.{name} ({figure.without})")
        else:
            counted.append(Assumption(what=f"stated: {figure.what} {_shown(value, figure)}".rstrip(), why=_WHY))
    return tuple(counted), tuple(idle)


def _shown(value: object, figure: Figure) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    assert isinstance(value, int | float)  # noqa: S101 - the other kind of a field
    return f"{value * figure.scale:g} {figure.unit}"
