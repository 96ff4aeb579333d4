"""The modes of a job: what decides which memory mechanisms are at work, by the names of the catalog's evidence."""

from projector.catalog import Device
from projector.job import OptimizerKind, RecomputeGranularity, Schedule, Sharding, TrainingJob
from projector.layers.routing import routing_decides
from projector.parallelism import Layout


def modes_of(job: TrainingJob, layout: Layout, device: Device) -> tuple[str, ...]:
    """Names of the job's modes, as `catalog/measured-modes.yaml` lists them."""
    software, low = job.software, job.precision.low_precision
    names = {
        f"{device.vendor} GPUs": True,
        "transformers layers" if job.modules is not None else f"{software.dialect} layers": True,
        f"{job.optimizer.kind} optimizer": job.optimizer.kind is not OptimizerKind.ADAM,
        "quantised optimizer state": job.optimizer.block_elements > 0,
        f"{low} linear layers": low is not None,
        f"{layout.sharding} sharding": layout.sharding is not Sharding.NONE,
        f"{job.recompute.granularity} recomputation": job.recompute.granularity is not RecomputeGranularity.NONE,
        f"{job.schedule} schedule": job.schedule not in (None, Schedule.ONE_F_ONE_B, Schedule.INTERLEAVED),
        "interleaved stages": layout.virtual_pipeline > 1,
        "context parallelism": job.parallelism.context > 1,
        "routing to experts": routing_decides(job, layout),
        "stored attention scores": not software.flash_attention,
        "CUDA graphs": bool(software.graphed_layers),
        "adapters": job.adapters is not None,
        "offloaded activations": bool(job.offload.modules),
        "offloaded optimizer": job.optimizer.offload_fraction > 0,
    }
    return tuple(name for name, is_on in names.items() if is_on)
