"""Parameter counts of an architecture by the engine."""

from projector.job import Batch, ModelArchitecture, Parallelism, Target, TrainingJob
from projector.memory import count_parameters
from projector.parallelism import resolve
from projector.projection import ParameterCounts


def counts(model: ModelArchitecture, *, expert: int = 1, devices: int = 1) -> ParameterCounts:
    """Counts of a job without other parallelism than over experts."""
    job = TrainingJob(
        model=model,
        parallelism=Parallelism(expert=expert),
        batch=Batch(micro=1, global_=devices, sequence_length=4096),
    )
    return count_parameters(job, resolve(job, Target(device="MI300X", nodes=1, devices_per_node=devices)))
