"""What waits between the gradient of the input and a delayed gradient of the weights, against torch itself."""

import pytest

from projector import catalog
from projector.job import (
    Attention,
    DecoderLayer,
    DenseMLP,
    Dialect,
    Parallelism,
    Recompute,
    RecomputeGranularity,
    Schedule,
    Software,
    TrainingJob,
)
from projector.layers.shapes import shapes_of
from projector.memory import project_memory
from projector.memory.footprint import Footprint
from projector.memory.stages import Footprints, described_stages
from projector.parallelism import resolve
from projector.projection import MemoryLevel
from tests.layers import torch_block as small
from tests.layers import torch_split
from tests.layers.builders import job, mixtral, model, target

EAGER = Software(dialect=Dialect.TORCHTITAN, fused_norms=False)
FULL = Recompute(granularity=RecomputeGranularity.FULL, layers=1)
RECOMPUTATION = {"nothing runs again": Recompute(), "layers run again": FULL}


def small_job(software: Software, recompute: Recompute = RECOMPUTATION["nothing runs again"]) -> TrainingJob:
    """A job whose layers are as small as those that torch runs."""
    mixer = Attention(heads=small.HEADS, key_value_heads=small.GROUPS, head_dim=small.WIDTH)
    layer = DecoderLayer(mixer=mixer, feed_forward=DenseMLP(ffn=small.FFN, gated=True))
    architecture = model((layer,) * 4, hidden=small.HIDDEN, vocabulary=small.VOCABULARY)
    return job(
        architecture,
        micro=small.BATCH,
        sequence=small.SEQUENCE,
        layout=Parallelism(pipeline=4),
        software=software,
        recompute=recompute,
    )


def chunk(asked: TrainingJob, stage: int = 1) -> Footprint:
    """One layer, in a stage of its own between others."""
    layout = resolve(asked, target())
    (described,) = described_stages(asked, layout)[stage]
    return Footprints(asked, shapes_of(asked, layout)).chunk(described)


@pytest.mark.parametrize("name", RECOMPUTATION)
def test_pytorch_keeps_what_it_saved_and_the_gradients_of_outputs(name: str) -> None:
    found = chunk(small_job(EAGER, RECOMPUTATION[name]))
    saved, waits = torch_split.kept_by_graph(checkpoints=name == "layers run again")
    slack = small.SCALARS_BYTES
    assert found.waiting_bytes - found.saved == pytest.approx(waits - saved, abs=slack)


def test_pytorch_keeps_all_of_a_layer_that_does_not_run_again() -> None:
    found = chunk(small_job(EAGER))
    saved, _ = torch_split.kept_by_graph(checkpoints=False)
    # Beside what the layer saves, the engine counts the input, which comes from elsewhere here.
    assert found.saved == pytest.approx(saved, rel=0.02)


@pytest.mark.parametrize("name", RECOMPUTATION)
def test_weight_gradient_stores_keep_inputs_and_output_gradients(name: str) -> None:
    """The same whether or not the layer ran again."""
    found = chunk(small_job(Software(), RECOMPUTATION[name]))
    assert found.waiting_bytes == torch_split.put_aside(checkpoints=name == "layers run again")


def test_in_a_gated_layer_with_flash_attention_as_much_waits_as_was_saved() -> None:
    """But for the statistics of norms and attention: 8 hidden + 4 query + 4 key + 6 ffn bytes a token."""
    found = chunk(small_job(Software()))
    query, key = small.HEADS * small.WIDTH, small.GROUPS * small.WIDTH
    assert found.waiting_bytes == small.TOKENS * (8 * small.HIDDEN + 4 * query + 4 * key + 6 * small.FFN)
    assert found.waiting_bytes == pytest.approx(found.saved, rel=0.05)


def test_explicit_attention_scores_do_not_wait() -> None:
    """M_W is 32 s b h where M_B is s b h (34 + 5 a s / h): arXiv 2401.10241, table 1, with a plain block of 4 h."""
    software = Software(
        dialect=Dialect.MEGATRON_LOCAL, flash_attention=False, attention_dropout=0.1, hidden_dropout=0.1
    )
    layer = DecoderLayer(
        mixer=Attention(heads=32, key_value_heads=32, head_dim=128), feed_forward=DenseMLP(ffn=16384, gated=False)
    )
    asked = job(model((layer,) * 4, hidden=4096), sequence=1024, layout=Parallelism(pipeline=4), software=software)
    found = chunk(asked)
    unit = 1024 * 4096
    assert found.waiting_bytes == 32 * unit
    assert found.saved == pytest.approx((34 + 5 * 32 * 1024 / 4096) * unit, rel=0.001)


def test_the_gradient_of_logits_waits_with_the_input_of_the_output_layer() -> None:
    asked = small_job(Software())
    waits = chunk(asked, stage=3).kept_for_weights["output_layer"]
    assert waits == 2 * small.TOKENS * (small.HIDDEN + small.VOCABULARY + 128 - small.VOCABULARY % 128)


def test_experts_wait_with_the_gradients_of_the_rows_that_they_received() -> None:
    asked = job(mixtral(4), layout=Parallelism(pipeline=4))
    rows = 2 * 4096
    waits = chunk(asked).kept_for_weights["experts"]
    assert waits == 2 * rows * (2 * 6144 + 3 * 16384)


def test_a_delayed_weight_gradient_holds_memory_that_a_whole_backward_pass_frees() -> None:
    asked = small_job(EAGER)
    layout = resolve(asked, target())
    sizes = [
        project_memory(asked, layout, catalog.device("B200"), schedule=schedule)
        .stages[2]
        .level_bytes(MemoryLevel.ALLOCATED)
        for schedule in (Schedule.ONE_F_ONE_B, Schedule.ZERO_BUBBLE)
    ]
    found = chunk(asked)
    assert sizes[1] - sizes[0] >= 2 * found.waiting_bytes


def test_what_computes_weight_gradients_later_caches_no_placeholders_of_them() -> None:
    """AMD-AGI/Primus's linear layers give autograd no weight gradient (`LinearWithWeightGradientStore`)."""
    asked = job(layout=Parallelism(pipeline=4), software=Software())
    layout = resolve(asked, target())
    names = {
        schedule: {
            part.name
            for part in project_memory(asked, layout, catalog.device("MI300X"), schedule=schedule).worst.components
        }
        for schedule in (Schedule.ONE_F_ONE_B, Schedule.ZERO_BUBBLE)
    }
    assert "weight-gradient placeholders" in names[Schedule.ONE_F_ONE_B]
    assert "weight-gradient placeholders" not in names[Schedule.ZERO_BUBBLE]
