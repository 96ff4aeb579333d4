"""The tuning variables of Primus's projection, a part of the table in `variables.py`, and what they come to.

Some work beside others alone, as in Primus (AMD-AGI/Primus
primus/core/projection/module_profilers/{optimizer,moe_mlp,attention}.py): so they are first read one by one and then
settled together.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Any, NamedTuple

from projector.cli.row import PROJECTIONS, TIMED, Effect, Fate, Row, count, one_of
from projector.errors import InputError, shown
from projector.job import IndexerTraining, Tuning

_MOST = 1e6
"""Largest number of any unit that is read."""
_MICRO, _MILLI = 1e-6, 1e-3
_PERMUTATION, _CALIBRATED_EXPERTS, _CALIBRATED_ATTENTION = (
    "PRIMUS_MOE_PERMUTE_FIRST_PRINCIPLES",
    "PRIMUS_MOE_EXPERT_OVH_CALIBRATED",
    "PRIMUS_ATTN_CALIBRATED",
)
"""Variables that switch between two models of a part."""
_OLD_PERMUTATION_SHARE = 0.057
_OLD_EXPERT_MS = (0.19, 0.66)
_OLD_PASSES, _OLD_PASS_SHARE = (8.0, 30.0), 0.15
"""Primus's defaults of its older models (moe_mlp.py, attention.py)."""
_YES, _NO = ("1", "true", "yes"), ("0", "false", "no")


def _number(text: str, *, above: float = -inf, most: float = _MOST, expected: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -inf
    if not (0 <= number <= most and number > above):
        raise InputError(f"{shown(text)} does not do", expected=expected)
    return number


_share = partial(_number, above=0, most=1, expected="a share above 0, up to 1, such as 0.5")
_rate = partial(_number, above=0, expected="a factor above 0, such as 0.5")
_time = partial(_number, expected="a time of 0 or more")
_passes = partial(_number, expected="a number of passes, 0 or more")
_flag = one_of("0", "1")


def _either(text: str) -> bool:
    return one_of(*_YES, *_NO)(text) in _YES


def _ratios(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.strip().strip("[]").split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= len(str(_MOST)) for part in parts):
        raise InputError(f"{shown(text)} is not a list of compression ratios", expected="such as 128,4")
    return tuple(map(int, parts))


def _iterations(text: str) -> int:
    return 0 if text.strip() == "0" else count(text)


def _knob(  # noqa: PLR0913, PLR0917 - the columns of the table
    name: str,
    meaning: str,
    default: str,
    becomes: str,
    kind: Callable[[str], object],
    commands: tuple[str, ...] = TIMED,
    group: str = "Environment: tuning",
) -> Row:
    return Row(
        name=name,
        group=group,
        meaning=meaning,
        default=default,
        becomes=becomes,
        fate=Fate.WORKS,
        value="V",
        commands=commands,
        effect=lambda text: Effect(knobs={name: kind(text)}),
    )


_OWN = "the cost model's own"
_sampling = partial(_knob, commands=TIMED, group="Environment: simulation")

SAMPLING: tuple[Row, ...] = (
    _sampling(
        "PRIMUS_PROJ_MAX_LAYERS",
        "Layers whose time stands for that of all.",
        "all",
        "`tuning.sampled_layers`; without influence where all layers attend alike",
        count,
    ),
    _sampling(
        "PRIMUS_PROJ_COMPRESS_RATIOS",
        "DeepSeek-V4 kinds of these layers.",
        "the model's",
        "`tuning.sampled_ratios`, beside PRIMUS_PROJ_MAX_LAYERS",
        _ratios,
    ),
)
KNOBS: tuple[Row, ...] = (
    _knob(
        "PRIMUS_OPT_HBM_EFF",
        "Share of memory bandwidth in the optimizer step.",
        f"{_OWN} (Primus: 0.21)",
        "`tuning.optimizer_bandwidth_share`",
        _share,
    ),
    _knob(
        "PRIMUS_OPT_MUON_NS_STEPS",
        "Newton-Schulz iterations of Muon.",
        "as configured",
        "`tuning.newton_schulz_steps`",
        count,
    ),
    _knob(
        "PRIMUS_OPT_MUON_NS_MS",
        "Time of Muon's iterations.",
        "from the matrices' shapes",
        "`tuning.newton_schulz_seconds`",
        _time,
    ),
    _knob(
        _PERMUTATION,
        "Model of token permutation.",
        "1",
        "1: every pass is counted, as always; 0: one each way, `tuning.permutation_bandwidth_share` 0.057",
        _flag,
    ),
    _knob(
        "PRIMUS_MOE_PERMUTE_SCATTER",
        "Rate of permutation over other element-wise work.",
        "1",
        "`tuning.permutation_efficiency`",
        _rate,
    ),
    _knob(
        "PRIMUS_MOE_PERMUTE_LAUNCH_US",
        "Launch time of permutation.",
        f"{_OWN} (Primus: 2.8)",
        "`tuning.permutation_launch_seconds`",
        _time,
    ),
    _knob(
        "PRIMUS_MOE_EXPERT_QUANT_EFF",
        "Rate of casts of experts over other element-wise work.",
        "1",
        "`tuning.expert_cast_efficiency`",
        _rate,
    ),
    _knob(
        "PRIMUS_MOE_EXPERT_LAUNCH_US",
        "Launch time of experts' element-wise kernels.",
        f"{_OWN} (Primus: 0.75)",
        "`tuning.expert_launch_seconds`",
        _time,
    ),
    _knob(
        _CALIBRATED_EXPERTS,
        "A fixed time of each expert in place of its casts.",
        "0",
        "1: `tuning.expert_forward_seconds` and `tuning.expert_backward_seconds`; 0: casts are counted, as always",
        _flag,
    ),
    _knob(
        "PRIMUS_MOE_EXPERT_OVH_FWD_MS",
        "The fixed time, forward.",
        "0.19",
        f"`tuning.expert_forward_seconds`, beside {_CALIBRATED_EXPERTS}=1",
        _time,
    ),
    _knob(
        "PRIMUS_MOE_EXPERT_OVH_BWD_MS",
        "The fixed time, backward.",
        "0.66",
        f"`tuning.expert_backward_seconds`, beside {_CALIBRATED_EXPERTS}=1",
        _time,
    ),
    _knob(
        _CALIBRATED_ATTENTION,
        "Passes over memory in place of compressed attention's element-wise work.",
        "0",
        "1: `tuning.attention_forward_passes` and the two below; 0: each kernel is counted, as always",
        _flag,
    ),
    _knob(
        "PRIMUS_ATTN_ELEM_EFF",
        "Share of memory bandwidth of these passes.",
        "0.15",
        f"`tuning.attention_pass_bandwidth_share`, beside {_CALIBRATED_ATTENTION}=1",
        _share,
    ),
    _knob(
        "PRIMUS_ATTN_MISC_FWD_PASSES",
        "Passes over memory, forward.",
        "8",
        f"`tuning.attention_forward_passes`, beside {_CALIBRATED_ATTENTION}=1",
        _passes,
    ),
    _knob(
        "PRIMUS_ATTN_MISC_BWD_PASSES",
        "Passes over memory, backward.",
        "30",
        f"`tuning.attention_backward_passes`, beside {_CALIBRATED_ATTENTION}=1",
        _passes,
    ),
    _knob(
        "PRIMUS_ATTN_MISC_ETA",
        "Share of memory bandwidth in compressed attention's element-wise work and hyper-connections.",
        f"{_OWN} (Primus: 0.9)",
        "`tuning.attention_bandwidth_share`",
        _share,
    ),
    _knob(
        "PRIMUS_ATTN_FP_ETA",
        "The same under its older name.",
        f"{_OWN} (Primus: 0.9)",
        "`tuning.attention_bandwidth_share`, unless PRIMUS_ATTN_MISC_ETA says",
        _share,
    ),
    _knob(
        "PRIMUS_ATTN_SWA_FULLBAND",
        "Sliding windows of compressed attention at full cost.",
        "1 (Primus: 0)",
        "1: as always; 0: `tuning.sliding_window_share` 0.5, as Primus halves them",
        _flag,
    ),
    _knob(
        "PRIMUS_ATTN_CSA_SCATTER_ETA",
        "Share of memory bandwidth in adding up gradients of chosen keys.",
        f"{_OWN} (Primus: 0.6)",
        "`tuning.key_scatter_bandwidth_share`",
        _share,
    ),
    _knob(
        "PRIMUS_V4_INDEXER_TRAINABLE",
        "Whether DeepSeek-V4's indexers learn.",
        "as configured (Primus: 1)",
        "`software.indexer`: trained for 1, frozen for 0",
        _flag,
        PROJECTIONS,
    ),
    _knob(
        "PRIMUS_USE_V4_TRITON_CSA_ATTENTION",
        "Whether a kernel of DeepSeek-V4's attention reads chosen keys itself.",
        "as configured",
        "`software.gathered_keys`: false for 1, true for 0",
        _either,
        PROJECTIONS,
    ),
    _knob(
        "PRIMUS_HC_SINKHORN_ITERS",
        "Iterations of hyper-connections, kernel by kernel.",
        "as configured (Primus: 20)",
        "`software.sinkhorn_iterations`; 0 for one compiled kernel",
        _iterations,
    ),
)
"""Rows of the table."""


class Settled(NamedTuple):
    """What the variables come to together."""

    fields: Mapping[str, Any]
    """Fields of the question."""
    idle: tuple[str, ...]
    """Variables that change nothing beside the others, each with the reason."""


_PLAIN: Mapping[str, tuple[str, float]] = {
    "PRIMUS_OPT_HBM_EFF": ("optimizer_bandwidth_share", 1),
    "PRIMUS_OPT_MUON_NS_STEPS": ("newton_schulz_steps", 1),
    "PRIMUS_OPT_MUON_NS_MS": ("newton_schulz_seconds", _MILLI),
    "PRIMUS_MOE_PERMUTE_SCATTER": ("permutation_efficiency", 1),
    "PRIMUS_MOE_PERMUTE_LAUNCH_US": ("permutation_launch_seconds", _MICRO),
    "PRIMUS_MOE_EXPERT_QUANT_EFF": ("expert_cast_efficiency", 1),
    "PRIMUS_MOE_EXPERT_LAUNCH_US": ("expert_launch_seconds", _MICRO),
    "PRIMUS_ATTN_CSA_SCATTER_ETA": ("key_scatter_bandwidth_share", 1),
    "PRIMUS_PROJ_MAX_LAYERS": ("sampled_layers", 1),
}
"""Variables that are a figure each, with what their unit is multiplied with."""
_BESIDE: Mapping[str, tuple[str, str]] = {
    "PRIMUS_MOE_EXPERT_OVH_FWD_MS": (_CALIBRATED_EXPERTS, "1"),
    "PRIMUS_MOE_EXPERT_OVH_BWD_MS": (_CALIBRATED_EXPERTS, "1"),
    "PRIMUS_ATTN_ELEM_EFF": (_CALIBRATED_ATTENTION, "1"),
    "PRIMUS_ATTN_MISC_FWD_PASSES": (_CALIBRATED_ATTENTION, "1"),
    "PRIMUS_ATTN_MISC_BWD_PASSES": (_CALIBRATED_ATTENTION, "1"),
}
"""Variables that work beside the value of another one alone."""
_REPLACED: Mapping[str, tuple[str, str]] = {
    "PRIMUS_MOE_PERMUTE_SCATTER": (_PERMUTATION, "0"),
    "PRIMUS_MOE_PERMUTE_LAUNCH_US": (_PERMUTATION, "0"),
    "PRIMUS_MOE_EXPERT_QUANT_EFF": (_CALIBRATED_EXPERTS, "1"),
}
"""Variables whose part is another model's beside the value of another one."""


def settle(said: Mapping[str, Any]) -> Settled:
    """Fields of the question from the values of the variables that are set, by name."""
    idle = tuple(_idle(said))
    told = {name: value for name, value in said.items() if name not in {each.partition(" ")[0] for each in idle}}
    figures = {field: told[name] * scale for name, (field, scale) in _PLAIN.items() if name in told}
    if told.get(_PERMUTATION) == "0":
        figures["permutation_bandwidth_share"] = _OLD_PERMUTATION_SHARE
    if told.get(_CALIBRATED_EXPERTS) == "1":
        forward, backward = _OLD_EXPERT_MS
        figures["expert_forward_seconds"] = told.get("PRIMUS_MOE_EXPERT_OVH_FWD_MS", forward) * _MILLI
        figures["expert_backward_seconds"] = told.get("PRIMUS_MOE_EXPERT_OVH_BWD_MS", backward) * _MILLI
    if told.get(_CALIBRATED_ATTENTION) == "1":
        forward, backward = _OLD_PASSES
        figures["attention_forward_passes"] = told.get("PRIMUS_ATTN_MISC_FWD_PASSES", forward)
        figures["attention_backward_passes"] = told.get("PRIMUS_ATTN_MISC_BWD_PASSES", backward)
        figures["attention_pass_bandwidth_share"] = told.get("PRIMUS_ATTN_ELEM_EFF", _OLD_PASS_SHARE)
    share = told.get("PRIMUS_ATTN_MISC_ETA", told.get("PRIMUS_ATTN_FP_ETA"))
    if share is not None:
        figures["attention_bandwidth_share"] = share
    if "PRIMUS_ATTN_SWA_FULLBAND" in told:
        figures["sliding_window_share"] = 1.0 if told["PRIMUS_ATTN_SWA_FULLBAND"] == "1" else 0.5
    if "PRIMUS_PROJ_COMPRESS_RATIOS" in told:
        figures["sampled_ratios"] = told["PRIMUS_PROJ_COMPRESS_RATIOS"]
    fields: dict[str, Any] = {"tuning": Tuning(**figures)} if figures else {}
    return Settled(fields={**fields, **_choices(told)}, idle=idle)


def _choices(told: Mapping[str, Any]) -> Mapping[str, Any]:
    fields: dict[str, Any] = {}
    if "PRIMUS_V4_INDEXER_TRAINABLE" in told:
        trains = told["PRIMUS_V4_INDEXER_TRAINABLE"] == "1"
        fields["indexer"] = IndexerTraining.TRAINED if trains else IndexerTraining.FROZEN
    if "PRIMUS_USE_V4_TRITON_CSA_ATTENTION" in told:
        fields["gathered_keys"] = not told["PRIMUS_USE_V4_TRITON_CSA_ATTENTION"]
    if "PRIMUS_HC_SINKHORN_ITERS" in told:
        fields["sinkhorn_iterations"] = told["PRIMUS_HC_SINKHORN_ITERS"]
    return fields


def _idle(said: Mapping[str, Any]) -> list[str]:
    """Variables that change nothing, as the answer lists them."""
    found = [
        f"{name} (environment: works beside {other}={value})"
        for name, (other, value) in _BESIDE.items()
        if name in said and said.get(other) != value
    ]
    found += [
        f"{name} (environment: {other}={value} puts another model in its place)"
        for name, (other, value) in _REPLACED.items()
        if name in said and said.get(other) == value
    ]
    if {"PRIMUS_ATTN_FP_ETA", "PRIMUS_ATTN_MISC_ETA"} <= said.keys():
        found.append("PRIMUS_ATTN_FP_ETA (environment: PRIMUS_ATTN_MISC_ETA says)")
    if "PRIMUS_PROJ_COMPRESS_RATIOS" in said and "PRIMUS_PROJ_MAX_LAYERS" not in said:
        found.append("PRIMUS_PROJ_COMPRESS_RATIOS (environment: works beside PRIMUS_PROJ_MAX_LAYERS)")
    for name, usual, what in (
        (_PERMUTATION, "1", "every pass of a permutation is counted anyway"),
        (_CALIBRATED_EXPERTS, "0", "casts of experts are counted anyway"),
        (_CALIBRATED_ATTENTION, "0", "each kernel of attention is counted anyway"),
    ):
        if said.get(name) == usual:
            found.append(f"{name} (environment: {what})")
    return found
