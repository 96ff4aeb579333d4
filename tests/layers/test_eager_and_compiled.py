"""What eager and compiled PyTorch layers keep and move, against torch itself."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from projector.job import Attention, DecoderLayer, DenseMLP, Dialect, Parallelism, Software, TrainingJob
from projector.layers import kept_outputs, layer_operations, output_operations
from projector.operations import ElementWise, Operation, Work
from projector.parallelism import resolve
from tests.layers import torch_block as small
from tests.layers.builders import DENSE, MOE, job, mixtral, model, target

EAGER = Software(dialect=Dialect.TORCHTITAN, fused_norms=False)
COMPILED = replace(EAGER, compiled_layers=True, compiled_loss=True)
SOFTWARE = {"eager": EAGER, "compiled": COMPILED}
STATISTICS_BYTES = 8
"""A row's maximum and logarithm of its sum, which a compiled loss keeps and the engine leaves out."""


def job_of(software: Software, *, norms: bool = False) -> TrainingJob:
    """A job whose layers are as small as those that torch runs."""
    mixer = Attention(heads=small.HEADS, key_value_heads=small.GROUPS, head_dim=small.WIDTH, query_key_norm=norms)
    layer = DecoderLayer(mixer=mixer, feed_forward=DenseMLP(ffn=small.FFN, gated=True))
    architecture = model((layer,) * 2, hidden=small.HIDDEN, vocabulary=small.VOCABULARY)
    return job(architecture, micro=small.BATCH, sequence=small.SEQUENCE, software=software)


def layer_of(asked: TrainingJob) -> tuple[Operation, ...]:
    return layer_operations(asked.model.layers[0], asked, resolve(asked, target()))


def end_of(asked: TrainingJob) -> tuple[Operation, ...]:
    return output_operations(asked, resolve(asked, target()))


def saved(operations: Iterable[Operation]) -> int:
    return sum(tensor.size_bytes for operation in operations for tensor in operation.saves)


def moved(works: Iterable[Work]) -> int:
    return sum(work.bytes_read + work.bytes_written for work in works if isinstance(work, ElementWise))


@pytest.mark.parametrize("kind", SOFTWARE)
@pytest.mark.parametrize("norms", [False, True], ids=["", "query and key norms"])
@pytest.mark.parametrize("repeats", [False, True], ids=["", "repeated keys and values"])
def test_a_layer_keeps_what_torch_keeps(kind: str, norms: bool, repeats: bool) -> None:  # noqa: FBT001 - cases
    described = layer_of(job_of(replace(SOFTWARE[kind], repeated_key_values=repeats), norms=norms))
    assert saved(described) == small.kept_by_torch(compiles=kind == "compiled", norms=norms, repeats=repeats)


def test_a_compiled_layer_under_checkpoints_by_operation_drops_its_last_product() -> None:
    described = layer_of(job_of(COMPILED))
    outputs = sum(map(sum, kept_outputs(described, products=True, compiled=True)))
    layer_input = 2 * small.TOKENS * small.HIDDEN
    assert outputs + layer_input == small.kept_by_torch(compiles=True, by_operation=True)
    assert sum(map(sum, kept_outputs(described, products=True))) - outputs == layer_input


@pytest.mark.parametrize("kind", SOFTWARE)
def test_the_loss_keeps_what_torch_keeps(kind: str) -> None:
    kept, torchs = saved(end_of(job_of(SOFTWARE[kind]))[-1:]), small.loss_kept_by_torch(compiles=kind == "compiled")
    assert kept <= torchs <= kept + STATISTICS_BYTES * small.TOKENS + small.SCALARS_BYTES


def test_an_eager_layer_moves_what_torch_moves() -> None:
    forward, backward = small.moved_by_torch()
    described = layer_of(job_of(EAGER))
    # Statistics of rows and the rotary table, which the engine leaves out, count beside rows as short as these.
    assert moved(work for each in described for work in each.forward) == pytest.approx(forward, rel=0.05)
    # Sums of the gradients of branches, which the engine leaves out.
    ahead = moved(work for each in described for work in each.backward_input)
    assert 0.75 * backward < ahead < backward


def test_a_compiled_layer_moves_less_and_starts_fewer_kernels() -> None:
    eager, compiled = (layer_of(job_of(software)) for software in (EAGER, COMPILED))
    for direction in ("forward", "backward_input"):
        works = [[work for each in operations for work in getattr(each, direction)] for operations in (eager, compiled)]
        assert moved(works[0]) > 2 * moved(works[1])
        kernels = [sum(work.kernels for work in each if isinstance(work, ElementWise)) for each in works]
        assert kernels[0] > 2 * kernels[1]


@pytest.mark.parametrize("kind", SOFTWARE)
def test_experts_keep_what_torch_keeps_of_tokens_that_their_scores_weight(kind: str) -> None:
    found = [
        layer_operations(MOE, asked, resolve(asked, target()))
        for asked in (job(mixtral(8), software=software) for software in (SOFTWARE[kind], Software()))
    ]
    beyond = [sum(t.size_bytes for op in each for t in op.saves if t.name == "weighted_tokens") for each in found]
    rows = 4096 * 2
    assert beyond == [rows * 6144 * small.weighted_by_torch(compiles=kind == "compiled"), 0]


def test_the_final_norm_is_not_part_of_a_compiled_layer() -> None:
    final = [end_of(job_of(software))[0] for software in (EAGER, COMPILED)]
    assert final[0] == final[1]


def test_divided_logits_make_an_eager_loss_a_chain_of_operations() -> None:
    """Peak of torch/distributed/tensor/parallel/loss.py: the kept log-softmax, and three fp32 tensors of its size."""
    asked = job(layout=Parallelism(tensor=8), software=EAGER)
    loss = end_of(asked)[-1]
    logits = 4096 * 128256 // 8
    assert saved((loss,)) + loss.scratch_backward_bytes == 16 * logits
    whole = end_of(replace(asked, parallelism=Parallelism()))[-1]
    assert saved((whole,)) + whole.scratch_backward_bytes == 12 * 8 * logits


def test_other_dialects_are_not_compiled() -> None:
    software = Software(dialect=Dialect.MEGATRON_TE)
    other = replace(software, compiled_layers=True, compiled_loss=True, fused_norms=False)
    jobs = [job(software=each) for each in (software, other)]
    described = [layer_operations(DENSE, each, resolve(each, target())) for each in jobs]
    assert described[0] == described[1]
    assert end_of(jobs[0]) == end_of(jobs[1])
