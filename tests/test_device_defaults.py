"""Choices that the framework leaves to the device."""

from dataclasses import replace

import pytest

from projector import catalog
from projector.answer import with_device_defaults
from projector.job import AttentionBackend, Software
from tests.layers.builders import job


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("H100", AttentionBackend.CUDNN),
        ("B200", AttentionBackend.CUDNN),
        ("A100-80GB", AttentionBackend.FLASH),
        ("MI300X", AttentionBackend.FLASH),
    ],
)
def test_transformer_engine_prefers_cudnn_from_hopper_on_and_what_is_stated_stays(
    name: str, want: AttentionBackend
) -> None:
    asked = job()
    assert with_device_defaults(asked, catalog.device(name)).software.attention_backend is want
    for stated in AttentionBackend:
        fixed = replace(asked, software=replace(asked.software, attention_backend=stated))
        assert with_device_defaults(fixed, catalog.device(name)) == fixed


@pytest.mark.parametrize(
    ("name", "dropout", "want"),
    [
        ("H100", 0.1, AttentionBackend.CUDNN),
        ("B200", 0.1, AttentionBackend.FLASH),
        ("B200", 0.0, AttentionBackend.CUDNN),
        ("GB300", 0.1, AttentionBackend.FLASH),
    ],
)
def test_dropout_that_must_repeat_takes_flash_attention_on_blackwell(
    name: str, dropout: float, want: AttentionBackend
) -> None:
    """Megatron-LM's gpt3_7b test keeps 1.0 GiB more on GB200 than on H100: 32 layers x 2 S q."""
    asked = job(software=Software(deterministic=True, attention_dropout=dropout))
    assert with_device_defaults(asked, catalog.device(name)).software.attention_backend is want
    free = job(software=Software(attention_dropout=dropout))
    assert with_device_defaults(free, catalog.device(name)).software.attention_backend is AttentionBackend.CUDNN
