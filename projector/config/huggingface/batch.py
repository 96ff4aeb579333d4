"""The batch of a run, from the files beside a config.json and what a person says."""

from projector.config.huggingface.setup import Engine, Setup
from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.errors import BatchIndivisible
from projector.job import Batch


def missing_micro_batch(setup: Setup, run: Keys) -> str:
    """What to say where nothing states a micro batch or what DeepSpeed makes it of; empty when that is known."""
    if setup.micro_batch is not None or run.raw("micro_batch_size") is not None or _derives(setup, run):
        return ""
    total = run.integer("global_batch_size", setup.global_batch, minimum=1)
    if setup.engine is not Engine.DEEPSPEED or total is None:
        return "micro_batch_size=1"
    return f"micro_batch_size=1 (DeepSpeed makes it {total} / GPUs / accumulation steps)"


def batch_of(setup: Setup, run: Keys, notes: Notes) -> Batch:
    """The batch, once `missing_micro_batch` finds nothing missing; raises `BatchIndivisible`."""
    length, packs = run.required("seq_length"), run.boolean("packing")
    stated_accumulation, stated_total = run.raw("gradient_accumulation_steps"), run.raw("global_batch_size")
    accumulation = run.integer("gradient_accumulation_steps", setup.accumulation, minimum=1)
    total = run.integer("global_batch_size", setup.global_batch, minimum=1)
    # What a person says in part replaces what a file says in full.
    if stated_total is not None and stated_accumulation is None:
        accumulation = None
    if stated_accumulation is not None and stated_total is None:
        total = None
    micro = run.integer("micro_batch_size", setup.micro_batch, minimum=1)
    if micro is None:
        micro = _derived(setup, run, notes, total=total, accumulation=accumulation)
    elif total is not None and accumulation is not None:
        _check_total(setup, run, micro=micro, accumulation=accumulation, total=total)
        notes.assume(
            f"{total} sequences an iteration, whatever the number of GPUs",
            f"the batch of {micro} and {accumulation} accumulation steps make it {total} on"
            f" {total // (micro * accumulation)} GPUs; say gradient_accumulation_steps to keep those instead",
        )
    if total is not None:
        return Batch(micro=micro, global_=total, sequence_length=length, masks_samples=packs)
    if accumulation is None:
        notes.assume("1 micro batch an iteration", "nothing states gradient_accumulation_steps or global_batch_size")
    return Batch(micro=micro, micro_batches=accumulation or 1, sequence_length=length, masks_samples=packs)


def _derives(setup: Setup, run: Keys) -> bool:
    """Whether DeepSpeed can make the micro batch of the total: the files state both it and the cluster."""
    total = run.raw("global_batch_size") is not None or (
        setup.global_batch is not None and run.raw("gradient_accumulation_steps") is None
    )
    return setup.engine is Engine.DEEPSPEED and total and _ranks(setup, run) is not None


def _derived(setup: Setup, run: Keys, notes: Notes, *, total: int | None, accumulation: int | None) -> int:
    """The micro batch that DeepSpeed makes of the total (deepspeed/runtime/config.py)."""
    ranks, steps = _ranks(setup, run), accumulation or 1
    assert total is not None and ranks is not None  # noqa: S101, PT018 - checked for completeness; for the type checker
    if total % (ranks * steps):
        message = f"{total} sequences do not divide over {ranks} data-parallel ranks x {steps} accumulation steps"
        expected = f"a multiple of {ranks * steps}"
        raise BatchIndivisible(message, place=_place_of_total(setup, run), expected=expected)
    micro = total // (ranks * steps)
    why = (
        f"{total} sequences over {ranks} data-parallel ranks and {steps} accumulation steps, as DeepSpeed divides them"
    )
    notes.assume(f"micro batch of {micro}", why)
    return micro


def _check_total(setup: Setup, run: Keys, *, micro: int, accumulation: int, total: int) -> None:
    """DeepSpeed refuses a batch that is not micro batch x accumulation x data-parallel ranks."""
    known = _ranks(setup, run)
    ranks = f"{known} data-parallel ranks" if known else "any number of GPUs"
    if total % (micro * accumulation) or (known and total != micro * accumulation * known):
        expected = f"a multiple of {micro * accumulation}" if not known else f"{micro * accumulation * known}"
        message = f"{total} is not a batch of {micro} x {accumulation} accumulation steps x {ranks}"
        raise BatchIndivisible(message, place=_place_of_total(setup, run), expected=expected)


def _place_of_total(setup: Setup, run: Keys) -> str:
    if run.raw("global_batch_size") is not None:
        return run.place("global_batch_size")
    return setup.places.get("global_batch", "global_batch_size")


def _ranks(setup: Setup, run: Keys) -> int | None:
    """Data-parallel ranks of the cluster that the files state; None where they state none."""
    if setup.nodes is None or setup.devices_per_node is None:
        return None
    shared = run.integer("tensor_model_parallel_size", setup.tensor or 1, minimum=1)
    shared *= run.integer("context_parallel_size", setup.context or 1, minimum=1)
    return setup.nodes * setup.devices_per_node // shared or None
