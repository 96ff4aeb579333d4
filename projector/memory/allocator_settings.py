"""Which settings of torch's caching allocator hold for a job, and what is assumed of them."""

from dataclasses import replace

from projector.catalog import Device, reserved_ratio
from projector.job import TrainingJob
from projector.memory.allocator import is_replayed
from projector.memory.stream_pools import has_stream_pools
from projector.parallelism import Layout
from projector.provenance import Assumption


def allocator_settings(
    job: TrainingJob, layout: Layout, device: Device, *, stated: bool, asked: bool
) -> tuple[TrainingJob, tuple[Assumption, ...]]:
    """The job with the settings that torch honours on the device, and what has to be said of them.

    `stated`: the configuration or the question states settings; `asked`: the question itself says whether segments
    grow, which then holds on every device.
    """
    if not (is_replayed(job, layout) or has_stream_pools(job, layout)):
        return job, _without_replay() if stated else ()
    since = reserved_ratio(device.vendor).expandable_since
    if job.software.expandable_segments and since is not None and not asked:
        why = (
            f"torch before {since} ignores expandable_segments on GPUs of {device.vendor};"
            " say --expandable-segments true where yours honours it"
        )
        ignored = replace(job, software=replace(job.software, expandable_segments=False))
        return ignored, (Assumption(what="allocator segments that do not grow", why=why),)
    if stated:
        return job, ()
    why = "no PYTORCH_ALLOC_CONF is stated; say --expandable-segments true where the run's segments grow"
    return job, (Assumption(what="torch's default settings of its caching allocator", why=why),)


def _without_replay() -> tuple[Assumption, ...]:
    why = "its allocations are not replayed, so that settings of the allocator change nothing"
    return (Assumption(what="allocator slack as in published runs", why=why),)
