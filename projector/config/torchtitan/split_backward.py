"""What PyTorch refuses beside schedules that run the backward pass in two halves.

The first half keeps the graph for the second (`stage_backward_input` of torch/distributed/pipelining/_backward.py calls
`torch.autograd.grad` with `retain_graph=True`).
"""

from projector.config.notes import Notes
from projector.config.torchtitan.spelling import TitanKeys
from projector.errors import ConfigurationError
from projector.job import RecomputeGranularity, TrainingJob


def check_split_backward(job: TrainingJob, keys: TitanKeys, notes: Notes, *, registry: bool) -> None:
    """Raise `ConfigurationError` for what does not run beside such a schedule.

    torch.compile: `_check_torch_compile_compatibility` of the schedules refuses compiled modules, and a graph of blocks
    that were compiled in place gives its buffers away in the first half. Checkpointing by operation keeps its tensors
    for one backward pass (torch/utils/checkpoint.py) until pytorch/pytorch 166536; the files of the `registry`
    generation run with later ones.
    """
    if job.schedule is None or not job.schedule.splits_backward:
        return
    place = "parallelism.pipeline_parallel_schedule"
    named = f"{keys.text(place, '1F1B')} runs the backward pass in two halves, which"
    whole = "or a schedule with a whole backward pass, such as Interleaved1F1B"
    if job.software.compiled_layers:
        message = f"{named} PyTorch refuses for compiled layers"
        raise ConfigurationError(message, place=keys.place("compile.enable"), expected=f"false, {whole}")
    if job.recompute.granularity is not RecomputeGranularity.OPERATIONS:
        return
    key = "activation_checkpoint.mode"
    if not registry:
        message = f"{named} checkpointing by operation does not survive"
        raise ConfigurationError(message, place=keys.place(key), expected=f"full, none, {whole}")
    notes.assume(
        "a PyTorch of 2026 that checkpoints by operation beside a split backward pass",
        f"{keys.place(key)}; older ones stop at the second half (pytorch/pytorch 166536)",
    )
