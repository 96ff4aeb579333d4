"""The modes of a job: which measured runs tell how far its time can be trusted, by the catalog's names."""

from projector.catalog import Device
from projector.job import TrainingJob

_SMALL_HIDDEN = 4096
"""Narrower models than those of 7 B parameters run kernels of microseconds, which take as long as their start."""


def modes_of(job: TrainingJob, device: Device) -> tuple[str, ...]:
    """Names of the job's modes, as `catalog/measured-times.json` lists them.

    Kernels and host of a kind of layers depend on who wrote them and for whose GPUs; rates on the very GPU. Mixtures of
    experts differ more by dispatcher, host and container than by GPU, so that runs on all GPUs of a vendor stand
    together.
    """
    if job.software.deterministic:
        size = " of small models" if job.model.hidden < _SMALL_HIDDEN else ""
        return (f"deterministic kernels{size}",)
    layers = "transformers" if job.modules is not None else str(job.software.dialect)
    if job.model.expert_blocks:
        return (f"experts of {layers} on {device.vendor} GPUs",)
    return f"dense layers of {layers} on {device.vendor} GPUs", f"dense layers on {device.name}"
