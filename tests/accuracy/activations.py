"""What the layers of a pipeline rank keep, without what lies around them: the quantity that papers have formulas for.

Korthikanti et al. (arXiv 2205.05198, sections 4 and 5) count what layers keep for backward between their passes: not
the dropout mask of the embedding, final norm, output layer and loss, not what lives only while a pass runs, and not the
tensors that stages exchange. All of these are real and part of the engine's answer for a run; here they are left out.
"""

from dataclasses import replace

from projector.job import Target, TrainingJob
from projector.layers.shapes import shapes_of
from projector.memory.stages import Footprints, described_stages
from projector.parallelism import resolve
from projector.schedule import framework_schedule, in_flight, order


def layer_activation_bytes(job: TrainingJob, target: Target) -> int:
    """Bytes that layers keep on the fullest rank when most micro batches are in flight."""
    layout = resolve(job, target)
    footprints = Footprints(job, shapes_of(job, layout))
    kept = [
        [footprints.chunk(replace(chunk, embedding=(), predictions=(), output=())).saved for chunk in stage]
        for stage in described_stages(job, layout)
    ]
    schedule = framework_schedule(layout.virtual_pipeline, job.schedule)
    count, group = layout.run_micro_batches, layout.micro_batch_group
    events = order(schedule, layout.pipeline, layout.virtual_pipeline, count, group)
    return round(max(peak.weight for peak in in_flight(events, kept)))
