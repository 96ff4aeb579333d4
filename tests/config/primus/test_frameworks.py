import pytest

from projector.config.primus.experiment import FRAMEWORKS, FRAMEWORKS_REFUSED
from projector.errors import ConfigurationError, NotAvailable
from tests.config.builders import BASE, experiment_text, flat_text, load


@pytest.mark.parametrize("framework", FRAMEWORKS_REFUSED)
def test_a_framework_for_other_models_is_refused_and_the_line_says_what_works(framework: str) -> None:
    text = experiment_text({"framework": framework, "config": "pre_trainer.yaml", "model": "anything"})
    with pytest.raises(NotAvailable) as raised:
        load(text)
    assert raised.value.place == "exp.yaml: modules.pre_trainer.framework"
    assert framework in raised.value.message
    assert "what works instead" in raised.value.expected


def test_a_framework_is_read_or_refused() -> None:
    assert not set(FRAMEWORKS) & set(FRAMEWORKS_REFUSED)


@pytest.mark.parametrize("model", ["diffusion/flux_535m", "diffusion/flux_12b.yaml"])
def test_a_diffusion_model_is_refused_by_name(model: str) -> None:
    with pytest.raises(NotAvailable, match=rf"pre_trainer.model: {model}: diffusion .*; what works instead"):
        load(experiment_text({"config": "pre_trainer.yaml", "model": model}))


def test_a_model_that_calls_itself_a_diffusion_model_is_refused() -> None:
    with pytest.raises(NotAvailable, match="diffusion models are not modelled"):
        load(flat_text(model_type="diffusion_model"))


def test_values_at_the_top_of_the_file_are_said_to_have_no_effect() -> None:
    text = experiment_text({"overrides": BASE}, micro_batch_size=4, lora={"enabled": True}, platform={"config": "p"})
    loaded = load(text)
    (note,) = [note for note in loaded.assumed if "top of the file" in note.what]
    assert note.what == "lora, micro_batch_size at the top of the file: no effect"
    assert loaded.job.batch.micro == BASE["micro_batch_size"]
    assert {"lora", "micro_batch_size", "platform"} <= set(loaded.ignored)


def test_a_file_without_such_values_says_nothing_of_them() -> None:
    text = experiment_text({"overrides": BASE}, platform={"config": "p"}, bases=["base.yaml"])
    assert not any("top of the file" in note.what for note in load(text).assumed)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_model_preset_cannot_be_overridden(framework: str) -> None:
    configs = {"megatron_bridge": ("sft_trainer", "qwen3_8b"), "torchtitan": ("pre_trainer", "llama3_8B")}
    config, model = configs.get(framework, ("pre_trainer", "llama3_8B"))
    with pytest.raises(ConfigurationError, match="override model: the model preset is read before"):
        load(experiment_text({"framework": framework, "config": config, "model": model}), "model=llama3_70B")
