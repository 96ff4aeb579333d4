"""What optimizers keep of each parameter, beside real ones and published tables."""

from collections.abc import Callable
from dataclasses import replace
from math import prod

import pytest
import torch
from torch import nn
from transformers.optimization import Adafactor

from projector import catalog
from projector.config.optimizers import optimizers
from projector.job import LowPrecision, Optimizer, Parallelism, ParameterClass, Precision, Sharding, TrainingJob
from projector.memory import count_parameters, project_memory
from projector.memory.optimizer_state import moment_bytes
from projector.parallelism import resolve
from tests.layers.builders import DENSE, MOE, job, model, target

GB = 10**9
DEVICE = catalog.device("MI300X")
SMALL = model((DENSE,) * 2, vocabulary=128 * 1000)
TABLE, HEAD, MATRIX, VECTOR = (1000, 64), (1000, 64), (192, 64), (64,)
SHAPES = {
    TABLE: ParameterClass.EMBEDDING,
    MATRIX: ParameterClass.MATRIX,
    VECTOR: ParameterClass.VECTOR,
}


def ours(name: str, framework: str = "huggingface") -> dict[tuple[int, ...], float]:
    """Bytes of the moments of a table, a matrix and a vector in fp32 training."""
    rule = optimizers(framework)[name]
    first, second = rule.moments(4, 4)
    precision = Precision(first_moment_bytes=first, second_moment_bytes=second)
    return {shape: moment_bytes(shape, kind, precision, rule.optimizer) for shape, kind in SHAPES.items()}


def real(optimizer: torch.optim.Optimizer, parameters: list[nn.Parameter]) -> dict[tuple[int, ...], float]:
    """Bytes of the tensors that an optimizer keeps after a step, step counters aside."""
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return {
        tuple(parameter.shape): sum(
            value.numel() * value.element_size()
            for value in optimizer.state[parameter].values()
            if isinstance(value, torch.Tensor) and value.dim()
        )
        for parameter in parameters
    }


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(shape)) for shape in SHAPES]


REAL = {
    "adamw_torch": torch.optim.AdamW,
    "sgd": lambda given: torch.optim.SGD(given, lr=0.1),
    "sgd_momentum": lambda given: torch.optim.SGD(given, lr=0.1, momentum=0.9),
    "adagrad": torch.optim.Adagrad,
    "rmsprop": torch.optim.RMSprop,
    "adafactor": lambda given: Adafactor(given, lr=0.1, relative_step=False, scale_parameter=False),
}


@pytest.mark.parametrize("name", REAL)
def test_moments_take_what_the_real_optimizer_keeps(name: str) -> None:
    given = parameters()
    assert ours(name) == real(REAL[name](given), given)


def test_muon_keeps_one_moment_of_matrices_and_leaves_the_rest_to_adam() -> None:
    """Jordan et al. 2024; torch.optim.Muon refuses anything but matrices."""
    given = parameters()
    table, matrix, vector = given
    wanted = real(torch.optim.AdamW([table, vector]), [table, vector]) | real(torch.optim.Muon([matrix]), [matrix])
    for name, framework in (("muon", "huggingface"), ("Muon", "torchtitan"), ("dist_muon", "megatron")):
        assert ours(name, framework) == wanted


QUANTIZED = {
    # torchao 0.18.0 optim.AdamW8bit and AdamW4bit, bytes of codes and scales per parameter counted on a CPU.
    ("adamw_torch_8bit", MATRIX): 2.03125,
    ("adamw_torch_4bit", MATRIX): 1.0625,
    ("adamw_torch_8bit", VECTOR): 8,
    ("adamw_torch_8bit", TABLE): 2.03125,
    # bitsandbytes 0.50.2 optim/optimizer.py: blocks of 256 with an fp32 maximum; embeddings by transformers in fp32.
    ("adamw_bnb_8bit", MATRIX): 2 + 2 * 4 / 256,
    ("adamw_bnb_8bit", VECTOR): 8,
    ("adamw_bnb_8bit", TABLE): 8,
    ("lion_8bit", MATRIX): 1 + 4 / 256,
    ("lion_8bit", TABLE): 4,
}


@pytest.mark.parametrize(("name", "shape"), QUANTIZED)
def test_quantised_moments_come_with_scales_and_leave_small_tensors_wide(name: str, shape: tuple[int, ...]) -> None:
    assert ours(name)[shape] / prod(shape) == pytest.approx(QUANTIZED[name, shape], rel=1e-3)


def state(asked: TrainingJob, nodes: int = 1) -> float:
    memory = project_memory(asked, resolve(asked, target(nodes=nodes)), DEVICE)
    return {part.name: part.size_bytes for part in memory.stages[0].components}.get("optimizer state", 0)


def test_the_state_of_a_stage_follows_the_class_of_each_parameter() -> None:
    muon = optimizers("megatron")["muon"].optimizer
    lean = Precision(second_moment_bytes=0)
    whole = Parallelism(sharding=Sharding.NONE)
    asked = job(SMALL, layout=whole, optimizer=muon, precision=lean)
    count = count_parameters(asked, resolve(asked, target())).per_device_max
    tables, norms = 2 * 128 * 1000 * 8192, (2 * 2 + 1) * 8192
    assert state(asked) == 8 * count + 4 * (tables + norms)


def test_state_by_whole_tensors_lies_on_the_rank_with_the_largest() -> None:
    """Megatron-LM layer_wise_optimizer.py: a tied token table and its 12 bytes a parameter are on one rank."""
    tied = replace(SMALL, tied_embeddings=True)
    muon = optimizers("megatron")["dist_muon"].optimizer
    asked = job(tied, optimizer=muon, precision=Precision(second_moment_bytes=0))
    assert state(asked, nodes=8) == 12 * 128 * 1000 * 8192


ZERO = {
    Sharding.NONE: 120.0,
    Sharding.OPTIMIZER: 31.4,
    Sharding.GRADIENTS: 16.6,
    Sharding.PARAMETERS: 1.9,
}
"""GB of a model of 7.5 billion parameters on 64 GPUs (arXiv 1910.02054, figure 1)."""


@pytest.mark.parametrize("sharding", ZERO)
def test_zero_keeps_what_figure_1_of_its_paper_says(sharding: Sharding) -> None:
    """The figure counts 2 bytes of gradients; scaled to 7.5 billion parameters."""
    asked = job(SMALL, layout=Parallelism(sharding=sharding), precision=Precision(gradient_bytes=2))
    memory = project_memory(asked, resolve(asked, target(nodes=8)), DEVICE)
    held = {part.name: part.size_bytes for part in memory.stages[0].components}
    count = count_parameters(asked, resolve(asked, target(nodes=8))).per_device_max
    size = sum(held.get(name, 0) for name in ("weights", "gradients", "optimizer state"))
    assert size * 7.5e9 / count / GB == pytest.approx(ZERO[sharding], abs=0.05)


def per_parameter(precision: Precision, sharding: Sharding, ranks: int) -> float:
    asked = job(SMALL, layout=Parallelism(sharding=sharding), precision=precision)
    memory = project_memory(asked, resolve(asked, target(nodes=ranks // 8)), DEVICE)
    held = {part.name: part.size_bytes for part in memory.stages[0].components}
    count = count_parameters(asked, resolve(asked, target(nodes=ranks // 8))).per_device_max
    return sum(held.get(name, 0) for name in ("weights", "gradients", "optimizer state")) / count


DISTRIBUTED: dict[str, tuple[Precision, float, Callable[[int], float]]] = {
    # Megatron-LM docs/source/api-guide/dist_optimizer.md: non-distributed, and distributed over d ranks.
    "bf16, fp32 gradients": (Precision(), 18, lambda ranks: 6 + 12 / ranks),
    "fp32": (Precision(weight_bytes=4, master_weight_bytes=0), 16, lambda ranks: 8 + 8 / ranks),
}


@pytest.mark.parametrize("name", DISTRIBUTED)
def test_bytes_a_parameter_are_those_of_megatrons_table(name: str) -> None:
    precision, whole, divided = DISTRIBUTED[name]
    assert per_parameter(precision, Sharding.NONE, 8) == pytest.approx(whole)
    assert per_parameter(precision, Sharding.OPTIMIZER, 16) == pytest.approx(divided(16))


def test_megatron_fsdp_divides_all_18_bytes() -> None:
    assert per_parameter(Precision(), Sharding.PARAMETERS, 16) == pytest.approx(18 / 16)


def test_fp8_weights_are_divided_like_others_under_full_sharding() -> None:
    """One byte of each linear weight and two of tables and norms, over 8 ranks."""
    fp8 = Precision(low_precision=LowPrecision.FP8, low_precision_weights=True)
    asked = job(SMALL, layout=Parallelism(sharding=Sharding.PARAMETERS), precision=fp8)
    stage = project_memory(asked, resolve(asked, target()), DEVICE).stages[0]
    (held,) = [part.size_bytes for part in stage.components if part.name == "low-precision weight copies"]
    count = count_parameters(asked, resolve(asked, target())).per_device_max
    others = 2 * 128 * 1000 * 8192 + (2 * 2 + 1) * 8192
    assert held == (count - others + 2 * others) / 8


def test_experts_without_copies_keep_their_whole_state() -> None:
    """Eight ranks of experts on eight GPUs: 12 bytes a parameter of the one expert that each has."""
    alone, together = (job(model((MOE,) * 2), layout=Parallelism(expert=ranks)) for ranks in (8, 1))
    expert = 2 * 3 * 8192 * 16384
    assert state(alone) - state(together) == 12 * (expert - 8 * expert // 8)
    assert state(alone, nodes=2) == state(together, nodes=2)
    assert state(alone) > 12 * expert


OFFLOADED = {
    "state": (Optimizer(offload_fraction=1.0), Sharding.OPTIMIZER, {"weights", "gradients"}),
    "state and gradients": (
        Optimizer(offload_fraction=1.0, offload_gradients=True),
        Sharding.GRADIENTS,
        {"weights"},
    ),
    "everything": (Optimizer(offload_fraction=1.0, offload_shards=True), Sharding.PARAMETERS, set()),
}


@pytest.mark.parametrize(("optimizer", "sharding", "left"), OFFLOADED.values(), ids=OFFLOADED)
def test_what_is_offloaded_leaves_the_device(optimizer: Optimizer, sharding: Sharding, left: set[str]) -> None:
    asked = job(SMALL, layout=Parallelism(sharding=sharding), optimizer=optimizer)
    stage = project_memory(asked, resolve(asked, target()), DEVICE).stages[0]
    names = {part.name for part in stage.components}
    assert names & {"weights", "gradients", "optimizer state"} == left
