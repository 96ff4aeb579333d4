"""Choices that the framework leaves to the device."""

from dataclasses import replace

import pytest

from projector import catalog
from projector.answer import with_device_defaults
from projector.job import AttentionBackend
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
