"""What Megatron-LM's arguments say of experts' memory."""

import pytest

from projector.job import Software
from tests.config.megatron.builders import arguments

EXPERTS = "--num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 2 --moe-ffn-hidden-size 1024"


def software(*words: str) -> Software:
    return arguments(EXPERTS, *words).job.software


@pytest.mark.parametrize(
    ("words", "factor", "padded"),
    [
        ((), None, True),
        (("--moe-expert-capacity-factor 1.5",), 1.5, False),
        (("--moe-expert-capacity-factor 1.5", "--moe-pad-expert-input-to-capacity"), 1.5, True),
    ],
    ids=["dropless", "drops what is above", "padded"],
)
def test_a_capacity_is_filled_only_where_padding_is_asked_for(
    words: tuple[str, ...],
    factor: float | None,
    padded: bool,  # noqa: FBT001 - a case
) -> None:
    found = software(*words)
    assert (found.expert_capacity_factor, found.expert_capacity_padded) == (factor, padded)


@pytest.mark.parametrize(
    ("words", "wide"), [((), False), (("--moe-router-dtype fp32",), True), (("--moe-router-dtype fp64",), True)]
)
def test_the_routers_type_is_read(words: tuple[str, ...], wide: bool) -> None:  # noqa: FBT001 - a case
    assert software(*words).router_in_fp32 is wide


@pytest.mark.parametrize("overlap", [False, True])
def test_the_overlap_of_expert_communication_is_an_option_that_is_understood(*, overlap: bool) -> None:
    loaded = arguments(EXPERTS, "--overlap-moe-expert-parallel-comm" if overlap else "")
    assert loaded.job.software.overlap_expert_parallel is overlap
    assert not loaded.unmodelled
