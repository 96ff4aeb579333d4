import re
from pathlib import Path

import pytest
import yaml

from projector.config import Source
from projector.errors import ConfigurationError, InputError, PresetUnknown
from tests.config.builders import experiment_text, flat_text, llama_text, load
from tests.config.primus_tree import ROOT, needs_tree

PRESETS = {"config": "pre_trainer.yaml", "model": "llama3.1_8B.yaml"}


def _without(text: str, key: str) -> str:
    content = yaml.safe_load(text)
    del content[key]
    return yaml.safe_dump(content)


REFUSED: dict[str, tuple[str, type[InputError], str]] = {
    "no work_group": (_without(flat_text(), "work_group"), ConfigurationError, "exp.yaml: work_group: is missing"),
    "no workspace": (_without(flat_text(), "workspace"), ConfigurationError, "exp.yaml: workspace: is missing"),
    "modules that are a list": (
        "work_group: a\nuser_name: a\nexp_name: a\nworkspace: a\nmodules: [a]\n",
        ConfigurationError,
        "modules: is not a mapping",
    ),
    "a module that is no trainer": (
        experiment_text(PRESETS, name="dataset"),
        ConfigurationError,
        "'dataset' is no trainer",
    ),
    "no framework": (experiment_text({**PRESETS, "framework": None}), ConfigurationError, "framework: is missing"),
    "a framework with a typing error": (
        experiment_text({**PRESETS, "framework": "megatrn"}),
        ConfigurationError,
        "'megatrn' is not a framework of Primus; did you mean megatron",
    ),
    "config without model": (experiment_text({"config": "pre_trainer"}), ConfigurationError, "model: is missing"),
    "an unknown model": (
        experiment_text({**PRESETS, "model": "llama3.1_80B"}),
        PresetUnknown,
        "modules.pre_trainer.model: .*'llama3.1_80B'.*did you mean llama3.1_",
    ),
    "an unknown module preset": (
        experiment_text({**PRESETS, "config": "pretrainer.yaml"}),
        PresetUnknown,
        "modules.pre_trainer.config: .*did you mean pre_trainer",
    ),
    "a model outside the presets": (
        experiment_text({**PRESETS, "model": "../../../etc/passwd"}),
        ConfigurationError,
        "passwd",
    ),
    "an absolute model": (experiment_text({**PRESETS, "model": "/etc/passwd"}), ConfigurationError, "passwd"),
    "a model that is a number": (
        experiment_text({**PRESETS, "model": 7}),
        ConfigurationError,
        "model: 7 is not a text",
    ),
    "overrides that are a list": (
        experiment_text({**PRESETS, "overrides": [1]}),
        ConfigurationError,
        "overrides: is not a",
    ),
    "a Kubernetes object": ("apiVersion: v1\nkind: Pod\n", ConfigurationError, "Kubernetes object"),
    "something else": ("a: 1\n", ConfigurationError, "not a training configuration"),
    "an unset variable": (
        flat_text(num_layers="${DEPTH}"),
        ConfigurationError,
        "overrides.num_layers: the variable DEPTH is not set",
    ),
}


@pytest.mark.parametrize(("text", "kind", "complaint"), REFUSED.values(), ids=REFUSED.keys())
def test_an_experiment_that_cannot_be_used_gets_one_clear_line(
    text: str, kind: type[InputError], complaint: str
) -> None:
    with pytest.raises(kind) as raised:
        load(text)
    assert re.search(complaint, str(raised.value))
    assert "\n" not in str(raised.value)


@needs_tree
@pytest.mark.parametrize("key", ["config", "model"])
@pytest.mark.parametrize("name", ["../../../../../../etc/passwd", "/etc/passwd.yaml", "../../../README.yaml"])
def test_a_preset_outside_the_primus_tree_is_refused(key: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"modules.pre_trainer.{key}: .*leads outside"):
        load(experiment_text({**PRESETS, key: name}), primus_root=ROOT)


@needs_tree
def test_an_unknown_preset_of_a_tree_names_the_nearest() -> None:
    with pytest.raises(
        PresetUnknown, match=r"'llama3.1_80B' for megatron in the Primus tree; did you mean llama3.1_8B"
    ):
        load(experiment_text({**PRESETS, "model": "llama3.1_80B"}), primus_root=ROOT)


def test_a_root_without_presets_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"primus root: .* has no primus/configs"):
        load(llama_text(), primus_root=tmp_path)


def test_the_module_preset_wins_over_the_model_preset() -> None:
    # seq_length stands in both: 1024 in pre_trainer, 4096 in deepseek_v4_flash.
    text = experiment_text({"config": "pre_trainer", "model": "deepseek_v4_flash"})
    assert load(text).job.batch.sequence_length == 1024


def test_overrides_win_over_presets_and_outside_overrides_over_all() -> None:
    text = llama_text(micro_batch_size=3, seq_length=4096)
    values = load(text, "micro_batch_size=5").values
    assert (values["micro_batch_size"].value, values["micro_batch_size"].source) == (5, Source.OVERRIDE)
    assert (values["seq_length"].value, values["seq_length"].source) == (4096, Source.EXPERIMENT)
    assert (values["use_distributed_optimizer"].value, values["use_distributed_optimizer"].source) == (
        True,
        Source.CATALOG,
    )


def test_null_as_text_is_null_at_the_top_level_and_text_in_lists() -> None:
    text = flat_text(recompute_granularity="${R:null}", spec=["${R:null}"], lora={"dim": "${R:null}"})
    values = load(text).values
    assert values["recompute_granularity"].value is None
    assert values["spec"].value == ["null"]
    assert values["lora.dim"].value == "null"
    assert load(llama_text(recompute_granularity="full"), "recompute_granularity=null").job.recompute.layers == 0


def test_a_suffix_may_be_left_out_and_other_keys_of_the_module_are_kept() -> None:
    loaded = load(
        experiment_text({"config": "pre_trainer", "model": "llama3.1_8B", "trainer_class": "T", "fp8": "hybrid"})
    )
    assert loaded.values["trainer_class"].value == "T"
    assert loaded.values["fp8"].value is None, "the module preset has the key, so it wins"


def test_a_post_trainer_alone_is_the_trainer_and_other_modules_are_listed() -> None:
    text = experiment_text(
        {"config": "sft_trainer", "model": "llama3.1_8B"}, name="post_trainer", platform={"config": "a"}
    )
    loaded = load(text)
    assert loaded.job.batch.sequence_length == 2048
    assert "platform" in loaded.ignored


UNKNOWN = {
    "a near miss": ("tensor_parallel_size=2", "did you mean .*tensor_model_parallel_size"),
    "nothing near": ("qqqqqqqq=2", "one of [0-9]+ known names"),
    "a nested near miss": ("lora.enable=true", "did you mean lora.enabled"),
}


@pytest.mark.parametrize(("override", "complaint"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_an_unknown_override_names_the_nearest(override: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        load(llama_text(), override)


@pytest.mark.parametrize("override", ["train_iters=10", "lr=1e-5", "num_layers=4", "torch_compile.enable=true"])
def test_an_override_may_name_any_key_that_primus_knows(override: str) -> None:
    assert load(llama_text(), override).values[override.partition("=")[0]].source is Source.OVERRIDE


WRONG_TYPES = {
    "text for a degree": ("tensor_model_parallel_size", "two", "'two' is a text; expected an integer of at least 1"),
    "quoted integer": ("num_layers", "8", "'8' is a text"),
    "zero": ("micro_batch_size", 0, "0 is a number; expected an integer of at least 1"),
    "negative": ("expert_model_parallel_size", -1, "-1 is a number"),
    "a fraction of a layer": ("num_layers", 2.5, "2.5 is a number; expected an integer"),
    "a boolean for a count": ("global_batch_size", True, "True is a boolean"),
    "a list for a size": ("hidden_size", [1], "is a list"),
    "a mapping for a switch": ("use_torch_fsdp2", {"a": 1}, "use_torch_fsdp2"),
    "a text for a switch": ("overlap_grad_reduce", "sure", "'sure' is a text; expected true or false"),
    "an unknown choice": ("recompute_granularity", "ful", "'ful' is not known; did you mean full"),
    "an unknown recipe": ("fp8_recipe", "delay", "did you mean delayed"),
    "infinite": ("hidden_dropout", float("inf"), "expected a number"),
    "a huge number": ("hidden_size", 10**15, "expected an integer"),
}


@pytest.mark.parametrize(("key", "value", "complaint"), WRONG_TYPES.values(), ids=WRONG_TYPES.keys())
def test_a_wrong_value_names_key_file_value_and_what_would_be_right(key: str, value: object, complaint: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load(llama_text(**{key: value}))
    assert f"exp.yaml: {key}" in str(raised.value)
    assert complaint in str(raised.value)


def test_an_unknown_key_is_named_in_the_result_and_a_known_one_is_listed_as_ignored() -> None:
    loaded = load(llama_text(recompute_granularty="full", wandb_project="x", lr=1.0))
    (note,) = [note for note in loaded.unmodelled if note.what == "recompute_granularty"]
    assert not note.decides
    assert "did you mean recompute_granularity" in note.effect
    assert {"wandb_project", "lr"} <= set(loaded.ignored)
