"""What lies outside torch's allocator follows the process groups that a job uses."""

from dataclasses import replace

import pytest

from projector.job import MixtureOfExperts, Parallelism, Sharding, TrainingJob
from projector.memory.outside import communicators
from projector.parallelism import resolve
from tests.layers.builders import MOE, job, mixtral, model, target

BIASED = model(
    (replace(MOE, feed_forward=MixtureOfExperts(experts=8, top_k=2, expert_ffn=512, router_balance_bias=True)),)
)
GROUPS: dict[str, tuple[TrainingJob, int, int]] = {
    "one device": (job(), 1, 0),
    "dense data parallelism": (job(), 8, 3),
    "without a distributed optimizer": (job(layout=Parallelism(sharding=Sharding.NONE)), 8, 2),
    "experts": (job(mixtral(), layout=Parallelism(expert=8)), 8, 6),
    "experts with a balance bias": (job(BIASED, layout=Parallelism(expert=8)), 8, 7),
    "several copies of an expert": (job(mixtral(), layout=Parallelism(expert=4)), 8, 7),
    "tensor parallelism alone": (job(layout=Parallelism(tensor=8)), 8, 2),
    "a pipeline": (job(layout=Parallelism(pipeline=4)), 8, 4),
}


@pytest.mark.parametrize(("asked", "devices", "want"), GROUPS.values(), ids=GROUPS)
def test_communicators_are_those_that_raw_logs_account_for(asked: TrainingJob, devices: int, want: int) -> None:
    """AMD-AGI/Primus, raw logs of 8-GPU nodes: 3 for dense models, 6 with experts, 7 with their balance bias."""
    assert communicators(asked, resolve(asked, target(devices_per_node=devices))) == want
