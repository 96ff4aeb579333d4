"""DeepSeek-V4 from configurations: Primus's arguments become the layers that Primus builds from them."""

from typing import Any

import pytest

from projector import catalog
from projector.errors import ConfigurationError
from projector.job import Attention, IndexerTraining, ModelArchitecture, TrainingJob
from tests.catalog.counting import counts
from tests.config.builders import experiment_text, flat_text, load

V4: dict[str, Any] = {
    "model_type": "deepseek_v4",
    "q_lora_rank": 64,
    "o_lora_rank": 32,
    "o_groups": 4,
    "attn_sliding_window": 128,
    "attn_sink": True,
    "hc_mult": 4,
    "index_topk": 512,
    "compress_ratios": "[0, 0, 4, 128, 4, 128, 4, 128, 0]",
}
"""A model of eight layers with a prediction layer behind them."""


def job(**values: object) -> TrainingJob:
    return load(flat_text(**{**V4, **values})).job


def mixers(model: ModelArchitecture) -> list[Attention]:
    found = [layer.mixer for layer in model.layers if isinstance(layer.mixer, Attention)]
    assert len(found) == len(model.layers)
    return found


def test_a_ratio_for_each_layer_says_what_its_queries_see() -> None:
    model = job().model
    assert [mixer.compression_ratio for mixer in mixers(model)] == [None, None, 4, 128, 4, 128, 4, 128]
    assert [mixer.index_heads for mixer in mixers(model)] == [0, 0, 64, 0, 64, 0, 64, 0]
    assert {(mixer.window, mixer.sinks, mixer.shared_key_value, mixer.output_groups) for mixer in mixers(model)} == {
        (128, True, True, 4)
    }
    assert model.residual_streams == 4


def test_primus_repeats_the_last_ratio_where_entries_are_missing() -> None:
    loaded = load(flat_text(**{**V4, "compress_ratios": [0, 128]}))
    assert [mixer.compression_ratio for mixer in mixers(loaded.job.model)] == [None] + [128] * 7
    assert any("compression ratio 128 for the last 6 layers" in note.what for note in loaded.assumed)


def test_layers_without_ratios_see_their_window_alone() -> None:
    assert {mixer.compression_ratio for mixer in mixers(job(compress_ratios=None).model)} == {None}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"compress_ratios": [0, -4]}, "compress_ratios: .*integers of at least 0"),
        ({"compress_ratios": "many"}, "compress_ratios"),
        ({"q_lora_rank": None}, "q_lora_rank: is missing"),
        ({"hc_mult": 0}, "hc_mult: 0 is a number; expected an integer of at least 1"),
    ],
)
def test_wrong_values_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        job(**values)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, IndexerTraining.FROZEN),
        ({"v4_indexer_distill_loss_coeff": 0.0}, IndexerTraining.FROZEN),
        ({"v4_indexer_distill_loss_coeff": 0.01}, IndexerTraining.TRAINED),
    ],
)
def test_an_indexer_is_frozen_unless_it_has_a_loss(values: dict[str, Any], wanted: IndexerTraining) -> None:
    assert job(**values).software.indexer is wanted


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, False),
        ({"use_v4_csa_attention_backend": "eager"}, True),
        ({"use_v4_csa_attention_backend": "triton_v2"}, False),
        ({"use_v4_triton_csa_attention": False}, True),
        ({"use_v4_triton_csa_attention": False, "use_v4_tilelang_csa_attention": True}, False),
        ({"use_v4_triton_csa_attention": False, "use_v4_csa_attention_backend": "triton_v1"}, False),
    ],
)
def test_chosen_keys_are_gathered_by_the_eager_kernel_alone(values: dict[str, Any], wanted: bool) -> None:  # noqa: FBT001 - the case
    assert job(**values).software.gathered_keys is wanted


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, 20),
        ({"hc_sinkhorn_iters": 5}, 5),
        ({"use_v4_compiled_sinkhorn": True}, 0),
        ({"hc_use_sinkhorn": False}, 0),
        ({"hc_mult": 1}, 0),
    ],
)
def test_iterations_run_kernel_by_kernel_unless_they_are_compiled(values: dict[str, Any], wanted: int) -> None:
    assert job(**values).software.sinkhorn_iterations == wanted


def test_undivided_heads_under_tensor_parallelism_are_named() -> None:
    for divided, decides in ((False, [True]), (True, [])):
        loaded = load(flat_text(**V4, tensor_model_parallel_size=2, v4_shard_attention_heads=divided))
        assert [note.decides for note in loaded.unmodelled if "attention heads" in note.what] == decides


@pytest.mark.parametrize(("values", "steps"), [({}, 10), ({"muon_num_ns_steps": 5}, 5)])
def test_muon_iterates_ten_times_unless_it_is_told(values: dict[str, Any], steps: int) -> None:
    assert job(optimizer="muon", **values).optimizer.muon_newton_schulz_steps == steps


@pytest.mark.parametrize("name", ["deepseek-v4-flash", "deepseek-v4-pro"])
def test_presets_build_the_layers_of_the_catalog_with_the_indexer_of_primus(name: str) -> None:
    """Primus projects an indexer's queries from a latent of its own, the released model from attention's."""
    told = catalog.model(name).architecture
    preset = f"{name.replace('-', '_')}.yaml"
    built = load(experiment_text({"config": "pre_trainer.yaml", "model": preset})).job.model
    assert [mixer.compression_ratio for mixer in mixers(built)] == [mixer.compression_ratio for mixer in mixers(told)]
    assert built.residual_streams == told.residual_streams == 4
    rank, indexed = 128, [mixer for mixer in mixers(told) if mixer.index_heads]
    inputs, queries = indexed[0].query_lora_rank or 0, indexed[0].index_heads * indexed[0].index_head_dim
    fewer = queries * inputs - (told.hidden * rank + rank * queries)
    assert counts(told).total - counts(built).total == len(indexed) * fewer
