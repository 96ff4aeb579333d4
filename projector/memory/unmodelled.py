"""What the engine does not model of a job, and what nobody knows of its device, as entries of the answer."""

from projector.catalog import Calibration, Device
from projector.job import Dialect, TrainingJob
from projector.layers import unmodelled_blocks
from projector.parallelism import Layout
from projector.provenance import Unmodelled


def unmodelled_layers(job: TrainingJob) -> tuple[Unmodelled, ...]:
    """One entry per kind of block without operations, and per part that the description of the model leaves out.

    Each decides, because its weights and activations are missing.
    """
    blocks = {
        name: f"{len(layers)} decoder layers, the first is {layers[0]}"
        for name, layers in unmodelled_blocks(job.model).items()
    }
    parts = dict.fromkeys(job.model.leaves_out, f"model {job.model.name}")
    return tuple(
        Unmodelled(
            what=name,
            where=where,
            effect="its parameters, activations and time are missing from the answer",
            decides=True,
        )
        for name, where in (blocks | parts).items()
    )


def unknown_figures(
    job: TrainingJob, layout: Layout, device: Device, calibration: Calibration | None = None
) -> tuple[Unmodelled, ...]:
    """Figures of the device that the job's memory needs and that nobody has published or measured.

    They count as 0, or as memory on the label, so that memory is a lower bound: each entry decides.
    """
    needed = {"BLAS workspace": device.blas_workspace_bytes}
    if calibration is None or calibration.outside_allocator is None:
        needed |= _outside_figures(job, layout, device)
    if job.software.dialect in (Dialect.MEGATRON_TE, Dialect.PRIMUS_TURBO):
        needed["Transformer Engine workspace"] = device.framework_workspace_bytes
    missing = ", ".join(name for name, value in needed.items() if value is None)
    entries = []
    if device.memory_capacity_bytes is None:
        effect = "the label's figure stands in, of which the driver keeps an unknown part"
        entries.append(("usable memory", effect))
    if missing:
        entries.append((missing, "counted as 0, so that memory is a lower bound"))
    return tuple(
        Unmodelled(what=f"{what} of {device.name}", where="catalog of devices", effect=effect, decides=True)
        for what, effect in entries
    )


def _outside_figures(job: TrainingJob, layout: Layout, device: Device) -> dict[str, int | None]:
    """Figures of what lies outside torch's allocator, which one measurement replaces."""
    needed = {
        "runtime context": device.context_bytes,
        "spread outside torch's allocator": device.outside_allocator_uncertainty_bytes,
    }
    if layout.world > 1:
        needed["communicator size"] = device.communicator_bytes
    if job.software.eager_communicators:
        needed["eagerly created communicators"] = device.eager_communicator_bytes
    return needed
