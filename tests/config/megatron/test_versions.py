"""What depends on Megatron-LM's version and on the width of the training, and older spellings beside today's."""

import pytest

from projector.errors import ConfigurationError
from projector.job import Dialect, Sharding
from tests.config.megatron.builders import BASE, arguments, assumed, load, unmodelled

LOCAL = (Dialect.MEGATRON_LOCAL, False)
ENGINE = (Dialect.MEGATRON_TE, True)
KERNELS = {
    "nothing": ((), ENGINE),
    "a former implementation of data parallelism": (("--DDP-impl", "local"), LOCAL),
    "a former kind of data": (("--data-impl", "mmap"), LOCAL),
    "former recomputation": (("--checkpoint-activations",), LOCAL),
    "Megatron-DeepSpeed": (("--deepspeed", "--zero-stage", "1"), LOCAL),
    "the former model classes": (("--use-legacy-models",), ENGINE),
    "the implementation beside a former argument": (
        ("--data-impl", "mmap", "--transformer-impl", "transformer_engine"),
        ENGINE,
    ),
    "flash attention beside a former argument": (
        ("--data-impl", "mmap", "--use-flash-attn"),
        (Dialect.MEGATRON_LOCAL, True),
    ),
}


@pytest.mark.parametrize("stated", KERNELS)
def test_layers_and_attention_follow_from(stated: str) -> None:
    words, expected = KERNELS[stated]
    software = arguments("--bf16", *words).job.software
    assert (software.dialect, software.flash_attention) == expected


def test_the_layers_that_nobody_states_are_said_to_be_assumed() -> None:
    assert "Transformer Engine's layers" in assumed(arguments("--bf16"))
    assert "transformer_impl local" in assumed(arguments("--bf16", "--DDP-impl", "local"))
    assert "Transformer" not in assumed(arguments("--bf16", "--transformer-impl", "transformer_engine"))
    assert "the model classes before Megatron-Core (use_legacy_models: True)" in unmodelled(
        arguments("--bf16", "--use-legacy-models")
    )


def test_training_in_fp32_is_assumed_and_stores_attention_scores() -> None:
    loaded = arguments()
    assert "training in fp32" in assumed(loaded)
    assert not loaded.job.software.flash_attention
    assert "training in fp32" not in assumed(arguments("--fp16"))
    assert "training in fp32" not in assumed(load(BASE, "bf16=false"))


@pytest.mark.parametrize("words", [("--use-flash-attn",), ("--attention-backend", "flash")])
def test_flash_attention_in_fp32_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(ConfigurationError, match=r"16 bits.*bf16 or fp16"):
        arguments(*words)


def test_two_widths_at_once_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="fp16 and bf16 are both on"):
        arguments("--fp16", "--bf16")


def test_an_older_spelling_that_differs_from_todays_decides() -> None:
    loaded = arguments("--num-experts", "4", "--num-moe-experts", "8", "--encoder-seq-length", "1024")
    assert loaded.job.batch.sequence_length == 2048
    assert unmodelled(loaded) == {
        "num_moe_experts '8' beside num_experts 4": True,
        "encoder_seq_length 1024 beside seq_length 2048": True,
    }
    assert not unmodelled(load(f"{BASE} --encoder-seq-length 1024", "seq_length=4096"))


def test_an_older_spelling_that_agrees_is_listed_as_ignored() -> None:
    loaded = arguments("--encoder-seq-length", "2048")
    assert "encoder_seq_length" in loaded.ignored
    assert not unmodelled(loaded)


BLOOM = (
    "--deepspeed --bf16 --zero-stage 0 --pipeline-model-parallel-size 5 --position-embedding-type alibi"
    " --pp-partition-method 'type:transformer|embedding' --tokenizer-type PretrainedFromHF"
    " --tokenizer-name-or-path bigscience/tokenizer --pad-vocab-size-to 250880"
)


def test_a_bloom_launch_is_what_megatron_deepspeed_runs() -> None:
    loaded = load(f"deepspeed pretrain_gpt.py {BASE.replace('--vocab-size 32000', '')} {BLOOM}\n")
    job = loaded.job
    assert (job.model.vocabulary, job.software.vocabulary_divisible_by) == (250880, 1)
    assert (job.parallelism.embedding_counts_as_layer, job.parallelism.loss_counts_as_layer) == (True, True)
    assert job.parallelism.sharding is Sharding.OPTIMIZER
    assert not any("PretrainedFromHF" in note.why for note in loaded.assumed)


def test_layers_that_do_not_divide_are_spread_by_deepspeed_alone() -> None:
    assert arguments("--deepspeed", "--bf16").job.parallelism.spread_remainder
    assert not arguments("--bf16").job.parallelism.spread_remainder


VOCABULARY = BASE.replace("--vocab-size 32000", "--vocab-file vocab.json --merge-file merges.txt")


def test_merges_without_a_tokenizer_mean_gpt2s() -> None:
    loaded = load(VOCABULARY)
    assert loaded.job.model.vocabulary == 50257
    assert "tokenizer_type GPT2BPETokenizer" in assumed(loaded)
    with pytest.raises(ConfigurationError, match="vocab_size"):
        load(VOCABULARY.replace("--merge-file merges.txt", ""))


def test_extra_tokens_of_pai_are_added_and_nothing_pads_them() -> None:
    job = arguments("--extra-vocab-size", "293").job
    assert (job.model.vocabulary, job.software.vocabulary_divisible_by) == (32293, 1)
