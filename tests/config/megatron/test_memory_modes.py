"""Arguments that decide where memory goes: what waits, what leaves the device, which kernels repeat."""

import pytest

from projector.errors import ConfigurationError
from projector.job import ActivationOffload
from tests.config.megatron.builders import arguments, unmodelled

OFFLOAD = ("--fine-grained-activation-offloading", "--offload-modules", "core_attn", "attn_proj")


def test_nothing_is_offloaded_unless_asked_for() -> None:
    assert arguments("--bf16", *OFFLOAD[1:]).job.offload == ActivationOffload()


def test_offloaded_modules_are_read_and_modelled() -> None:
    loaded = arguments("--bf16", *OFFLOAD, "--min-offloaded-tensor-size", "1000")
    assert loaded.job.offload == ActivationOffload(modules=("core_attn", "attn_proj"), least_elements=1000)
    assert unmodelled(loaded) == {"the time of offloading activations to the host": False}


@pytest.mark.parametrize(
    "modules",
    [
        pytest.param(("core_attention",), id="a name that Megatron-LM does not take"),
        pytest.param(("attn_proj",), id="a projection without its attention"),
        pytest.param((), id="none"),
    ],
)
def test_modules_that_megatron_refuses_are_named(modules: tuple[str, ...]) -> None:
    words = ("--offload-modules", *modules) if modules else ()
    with pytest.raises(ConfigurationError, match="offload") as caught:
        arguments("--bf16", "--fine-grained-activation-offloading", *words)
    assert "core_attn" in str(caught.value)


@pytest.mark.parametrize(
    ("words", "micro_batches"),
    [
        ((), 0),
        (("--wgrad-deferral-limit", "2"), 0),
        (("--defer-embedding-wgrad-compute", "--wgrad-deferral-limit", "2"), 2),
        (("--defer-embedding-wgrad-compute",), 10**12),
    ],
)
def test_deferred_output_gradients_wait_up_to_the_limit(words: tuple[str, ...], micro_batches: int) -> None:
    loaded = arguments("--bf16", *words)
    assert loaded.job.software.deferred_output_gradients == micro_batches
    assert not unmodelled(loaded)


def test_deterministic_mode_is_read() -> None:
    assert arguments("--bf16", "--deterministic-mode").job.software.deterministic
    assert not arguments("--bf16").job.software.deterministic


def test_part_of_a_head_may_be_rotary() -> None:
    rotary = ("--bf16", "--position-embedding-type", "rope")
    assert arguments(*rotary).job.model.rotary_share == 1
    assert arguments(*rotary, "--rotary-percent", "0.5").job.model.rotary_share == 0.5
    with pytest.raises(ConfigurationError, match="rotary_percent"):
        arguments(*rotary, "--rotary-percent", "1.5")


@pytest.mark.parametrize(("recipe", "delayed"), [("delayed", True), ("tensorwise", False), ("mxfp8", False)])
def test_scales_of_fp8_are_delayed_unless_another_recipe_is_stated(recipe: str, delayed: bool) -> None:  # noqa: FBT001 - a case
    assert (
        arguments("--bf16", "--fp8-format", "hybrid", "--fp8-recipe", recipe).job.precision.delayed_scaling is delayed
    )
    assert arguments("--bf16", "--fp8-format", "hybrid").job.precision.delayed_scaling


def test_a_step_that_is_validated_afterwards_is_read() -> None:
    """`enable_optimizer_post_validation` of the zero-bubble fork of Megatron-LM, which Primus passes on."""
    assert arguments("--bf16", "--enable-optimizer-post-validation").job.software.optimizer_post_validation
    assert not arguments("--bf16").job.software.optimizer_post_validation
