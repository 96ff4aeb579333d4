"""Muon's iterations: which matrices, how many operations, and who takes which."""

from dataclasses import replace
from math import prod

import pytest

from projector.catalog import device
from projector.costs import CostModel
from projector.job import Optimizer, OptimizerKind, ParameterClass, Sharding, Target, TrainingJob
from projector.layers import layer_operations
from projector.operations import Gemm
from projector.parallelism import Layout, resolve
from projector.performance.muon import Matrix, matrices_of, newton_schulz_seconds, products
from tests.performance.jobs import MIXTRAL, a_job, part, project

NODE = Target(device="MI300X", nodes=1, devices_per_node=8)
MUON = Optimizer(
    kind=OptimizerKind.MUON,
    exempt_classes=(ParameterClass.EMBEDDING, ParameterClass.OUTPUT, ParameterClass.VECTOR),
    whole_tensors=True,
)


def of_a_layer(job: TrainingJob) -> tuple[dict[Matrix, int], Layout]:
    layout = resolve(job, NODE)
    return dict(matrices_of(layer_operations(job.model.layers[0], job, layout), job.optimizer)), layout


def test_queries_keys_and_values_are_matrices_of_their_own() -> None:
    found, _ = of_a_layer(a_job(job={"optimizer": MUON}))
    assert found == {
        Matrix(4096, 4096, expert=False): 2,
        Matrix(1024, 4096, expert=False): 2,
        Matrix(2 * 14336, 4096, expert=False): 1,
        Matrix(4096, 14336, expert=False): 1,
    }


def test_each_expert_and_the_router_have_their_own() -> None:
    found, _ = of_a_layer(a_job(MIXTRAL, expert=4, job={"optimizer": MUON}))
    assert found[Matrix(2 * 14336, 4096, expert=True)] == found[Matrix(4096, 14336, expert=True)] == 2
    assert found[Matrix(8, 4096, expert=False)] == 1


def test_tensor_parallel_ranks_orthogonalise_the_block_that_they_hold() -> None:
    found, _ = of_a_layer(a_job(tensor=4, job={"optimizer": MUON}))
    assert Matrix(2 * 14336 // 4, 4096, expert=False) in found
    assert Matrix(4096, 14336 // 4, expert=False) in found


def test_another_optimizer_orthogonalises_nothing() -> None:
    assert of_a_layer(a_job())[0] == {}


@pytest.mark.parametrize("shape", [(64, 96), (96, 64), (80, 80)])
def test_an_iteration_does_the_operations_that_torch_counts(shape: tuple[int, int]) -> None:
    """Of `newton_schulz` of Muon's authors, which turns a tall matrix."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x = torch.randn(*shape)
    x = x.mT if shape[0] > shape[1] else x
    counting = pytest.importorskip("torch.utils.flop_counter")
    with counting.FlopCounterMode(display=False) as counter:
        square = x @ x.mT
        x = 3.4 * x + (-4.8 * square + 2.0 * square @ square) @ x
    assert sum(product.flops for product in products(Matrix(*shape, expert=False))) == counter.get_total_flops()
    small, large = sorted(shape)
    assert counter.get_total_flops() == 4 * small * small * large + 2 * small**3


def costs(job: TrainingJob) -> tuple[CostModel, Layout]:
    layout = resolve(job, NODE)
    return CostModel(device("MI300X"), layout.layer_groups), layout


def test_ranks_share_matrices_and_none_takes_less_than_one() -> None:
    job = a_job(job={"optimizer": MUON})
    model, layout = costs(job)
    matrix = Matrix(4096, 4096, expert=False)
    one = 5 * sum(model.seconds(product) for product in products(matrix))
    assert layout.sharding is Sharding.OPTIMIZER
    assert layout.shard == 8
    for count, wanted in ((1, 1), (8, 1), (64, 8)):
        assert newton_schulz_seconds({matrix: count}, job, layout, model) == pytest.approx(wanted * one)
    alone = replace(layout, sharding=Sharding.NONE)
    assert newton_schulz_seconds({matrix: 64}, job, alone, model) == pytest.approx(64 * one)


def test_the_step_grows_with_the_iterations() -> None:
    times = [
        part(project(a_job(job={"optimizer": replace(MUON, muon_newton_schulz_steps=steps)})), "optimizer step")
        for steps in (5, 10, 20)
    ]
    assert times[2] - times[1] == pytest.approx(2 * (times[1] - times[0]))


def test_wide_matrices_take_less_than_square_ones_of_as_many_elements() -> None:
    """Operations an element grow with the smaller side: what hidden x hidden for all would miss."""
    square, wide = Matrix(4096, 4096, expert=False), Matrix(1024, 16384, expert=False)
    assert prod(square[:2]) == prod(wide[:2])
    flops = [sum(product.flops for product in products(matrix)) for matrix in (square, wide)]
    assert all(isinstance(product, Gemm) for product in products(wide))
    assert flops[0] / flops[1] == pytest.approx(6 / (4 / 4 + 2 / 64))
