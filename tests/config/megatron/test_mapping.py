"""Files that hold Megatron-LM's arguments as a mapping: functional tests, what a run wrote, plain YAML and JSON."""

import json
from collections.abc import Callable

import pytest

from projector.config import detect
from projector.errors import ConfigurationError
from projector.job import DenseMLP, LowPrecision, PositionKind, RecomputeGranularity, Schedule, Sharding, TrainingJob
from tests.config.megatron.builders import ARGUMENTS, BASE, assumed, load, unmodelled

FUNCTIONAL = "MODEL_ARGS:\n" + "".join(f"  --{flag}: {value}\n" for flag, value in ARGUMENTS.items())
PLAIN = "".join(f"{flag.replace('-', '_')}: {value}\n" for flag, value in ARGUMENTS.items())
DASHED = "".join(f"{flag}: {value}\n" for flag, value in ARGUMENTS.items())
NUMBERS = {flag.replace("-", "_"): int(value) for flag, value in ARGUMENTS.items()}
WANDB = "".join(f"{key}:\n  desc: null\n  value: {value}\n" for key, value in NUMBERS.items())
SECTIONS = (
    "micro_batch_size: 1\nglobal_batch_size: 8\nseq_length: 2048\nvocab_size: 32000\nmax_position_embeddings: 2048\n"
    "language_model:\n  num_layers: 8\n  hidden_size: 1024\n  num_attention_heads: 16\n  activation_func: gelu\n"
    "model_parallel:\n  tensor_model_parallel_size: 1\n"
)
SAME = {
    "flags under MODEL_ARGS": f"ENV_VARS:\n  NCCL_ALGO: Ring\n{FUNCTIONAL}",
    "names with underscores": PLAIN,
    "names with dashes": DASHED,
    "JSON": json.dumps(NUMBERS),
    "what a run wrote": json.dumps({"args": {**NUMBERS, "world_size": 8, "rank": 0}, "iteration": 100}),
    "a wandb configuration": WANDB,
    "sections of --yaml-cfg": SECTIONS,
}


@pytest.mark.parametrize("kind", SAME)
def test_the_same_job_comes_from(kind: str) -> None:
    assert detect(SAME[kind], name="file") == "megatron"
    assert load(SAME[kind]).job == load(BASE).job


def functional(*lines: str) -> str:
    return FUNCTIONAL + "".join(f"  {line}\n" for line in lines)


def test_true_states_a_flag_and_false_leaves_it_out() -> None:
    job = load(functional("--swiglu: true", "--bf16: true", "--disable-bias-linear: true")).job
    assert job.precision.weight_bytes == 2
    assert job.model.layers[0].feed_forward == DenseMLP(ffn=2688, gated=True, bias=False)
    job = load(functional("--swiglu: false", "--disable-bias-linear: false")).job
    assert job.model.layers[0].feed_forward == DenseMLP(ffn=4096, gated=False, bias=True)


def test_a_list_may_be_written_as_one_text() -> None:
    loaded = load(
        functional(
            '--rampup-batch-size: "[384 384 97656250]"',
            "--recompute-granularity: selective",
            "--recompute-modules: mla_up_proj mlp",
        )
    )
    assert loaded.job.recompute.modules == ("mla_up_proj", "mlp")
    assert unmodelled(loaded) == {"growth of the batch at the start (rampup_batch_size: [384, 384, 97656250])": False}


def test_variables_stand_for_values_and_unknown_paths_do_not_matter() -> None:
    text = functional("--tensor-model-parallel-size: ${TP}", "--save: ${CHECKPOINTS}/run", "--data-path: $BLEND")
    loaded = load(text, variables={"TP": "2"})
    assert loaded.job.parallelism.tensor == 2
    assert loaded.values["tensor_model_parallel_size"].source == "variable"
    assert {"save", "data_path"} <= set(loaded.ignored)


def test_a_value_that_decides_asks_for_its_variable() -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(functional("--tensor-model-parallel-size: ${TP}"), name="model_config.yaml")
    message = str(raised.value)
    for part in ("model_config.yaml", "tensor-model-parallel-size", "TP", "set TP", "tensor_model_parallel_size=VALUE"):
        assert part in message
    assert (
        load(functional("--tensor-model-parallel-size: ${TP}"), "tensor_model_parallel_size=4").job.parallelism.tensor
        == 4
    )


def test_a_script_beside_the_file_gives_its_variables_and_arguments() -> None:
    script = (
        "export MBS=2\nTP=2 PP=4 bash sbatch_benchmarking.sh --recompute-activations"
        " --pipeline-model-parallel-layout 'Et|tt|tt|tttL'\n"
    )
    text = functional("--tensor-model-parallel-size: ${TP}", "--pipeline-model-parallel-size: ${PP}")
    job = load(text, name="model.yaml", run_sh=script).job
    assert (job.parallelism.tensor, job.parallelism.pipeline) == (2, 4)
    assert job.parallelism.pipeline_layout == "Et|tt|tt|tttL"
    assert job.recompute.granularity is RecomputeGranularity.SELECTIVE


def test_scripts_beside_the_file_hand_on_what_they_set_and_start() -> None:
    run = "TP=2 PRECISION=fp8 bash submit.sh --recompute-activations\n"
    submit = (
        'if [ "$PRECISION" = fp8 ]; then MORE="--fp8-format e4m3"; fi\n'
        'srun --nodes 4 --ntasks-per-node 8 python pretrain_gpt.py $MORE "$@"\n'
    )
    loaded = load(functional("--tensor-model-parallel-size: ${TP}"), name="model.yaml", run_sh=run, submit_sh=submit)
    assert loaded.job.parallelism.tensor == 2
    assert loaded.job.precision.low_precision is LowPrecision.FP8
    assert loaded.job.recompute.granularity is RecomputeGranularity.SELECTIVE
    assert (loaded.nodes, loaded.devices_per_node) == (4, 8)


def test_backslashes_that_a_shell_takes_away_do_not_matter() -> None:
    escaped = functional("--pipeline-model-parallel-size: 4", r"--pipeline-model-parallel-layout: Et\\|tt\\|tt\\|tttL")
    assert load(escaped).job.parallelism.pipeline_layout == "Et|tt|tt|tttL"


def test_a_tokenizer_is_known_whatever_its_folder() -> None:
    text = FUNCTIONAL.replace("  --vocab-size: 32000\n", "  --tokenizer-model: ${MODELS}/DeepSeek-V3\n")
    assert load(text).job.model.vocabulary == 128815
    with pytest.raises(ConfigurationError, match=r"MODELS}/unheard_of.model' is not known; state vocab_size"):
        load(text.replace("DeepSeek-V3", "unheard_of.model"))


WRITTEN = {
    "params_dtype": "torch.bfloat16",
    "bf16": True,
    "main_grads_dtype": "torch.float32",
    "exp_avg_dtype": "torch.float32",
    "attention_backend": "AttnBackend.flash",
    "position_embedding_type": "rope",
    "add_bias_linear": False,
    "num_query_groups": 1,
    "data_parallel_size": 2,
    "world_size": 16,
    "consumed_train_samples": 0,
    "use_distributed_optimizer": True,
    "fp8": None,
    "moe_layer_freq": 1,
    "padded_vocab_size": 32128,
}


def test_what_a_run_wrote_is_read_by_the_names_it_kept() -> None:
    loaded = load(json.dumps({**NUMBERS, **WRITTEN}))
    assert (loaded.nodes, loaded.devices_per_node) == (2, 8)
    assert "16 GPUs, 8 a host" in [note.what for note in loaded.assumed]
    assert loaded.job.model.vocabulary == 32128
    assert loaded.job.model.position is PositionKind.ROTARY
    assert loaded.job.parallelism.sharding is Sharding.OPTIMIZER
    assert not loaded.unmodelled


STOCK: dict[str, tuple[list[str], Callable[[TrainingJob], bool]]] = {
    "fp8 by its flag": (["--fp8-format: hybrid"], lambda job: job.precision.low_precision is LowPrecision.FP8),
    "zero bubble of the fork": (
        ["--pipeline-model-parallel-size: 4", "--enable-zero-bubble: true"],
        lambda job: job.schedule is Schedule.ZERO_BUBBLE,
    ),
    "layers that must divide": ([], lambda job: not job.parallelism.spread_remainder),
}


@pytest.mark.parametrize("name", STOCK)
def test_it_runs_as_megatron_publishes_it(name: str) -> None:
    lines, holds = STOCK[name]
    assert holds(load(functional(*lines)).job)


def test_the_null_tokenizer_adds_a_token() -> None:
    assert load(functional("--tokenizer-library: null")).job.model.vocabulary == 32001
    assert load(functional("--tokenizer-type: NullTokenizer")).job.model.vocabulary == 32001
    assert load(FUNCTIONAL).job.model.vocabulary == 32000


def test_a_copy_of_a_known_tokenizer_is_known() -> None:
    text = FUNCTIONAL.replace("  --vocab-size: 32000\n", "  --tokenizer-model: /data/hub/deepseek-ai/DeepSeek-V3/\n")
    loaded = load(text)
    assert loaded.job.model.vocabulary == 128815
    assert "vocab_size" in assumed(loaded)


@pytest.mark.parametrize(
    ("flag", "overlaps"),
    [("", True), ("--overlap-p2p-communication", True), ("--no-overlap-p2p-communication", False)],
)
def test_sends_between_stages_overlap_unless_told_otherwise(flag: str, *, overlaps: bool) -> None:
    assert load(f"{BASE} {flag}").job.software.overlap_pipeline_sends is overlaps
