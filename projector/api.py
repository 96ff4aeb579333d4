"""The one door to the engine: a `Question` in, a `Projection` out.

The command and the operator both come through here, so they cannot give different answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from projector.job import IndexerTraining, Scaling, Tuning

if TYPE_CHECKING:
    from projector.job import Target, TrainingJob
    from projector.projection import MemoryProjection, PerformanceProjection, Projection

DEFAULT_DEVICE = "MI300X"
"""The GPU that the command assumes, and names under `assumed`, when nothing states one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What somebody wants to know about a training configuration."""

    text: str
    """Content of the configuration file."""
    name: str = "configuration"
    """What to call the file in messages."""
    format: str | None = None
    """Dialect by name (`primus`, ...); None detects it from the content."""
    directory: Path | None = None
    """The folder that relative `extends` of the file may reach; None allows none."""
    primus_root: Path | None = None
    """A Primus checkout with presets; None uses the catalog."""
    companions: Mapping[str, str] = field(default_factory=dict)
    """Content of files given beside the configuration, by name, such as a DeepSpeed configuration."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Values for `${VAR}`."""
    overrides: Mapping[str, str] = field(default_factory=dict)
    """`key=value` overrides by name; values are parsed as on the command line."""
    device: str | None = None
    """GPU name; None assumes the default and says so."""
    nodes: int | None = None
    """Hosts; None takes the fewest that hold one replica of the model."""
    devices_per_node: int | None = None
    """GPUs of one host; None takes what the file states, else 8 as on every common server of today's large GPUs."""
    scaling: Scaling = Scaling.STRONG
    """What the batch does on more nodes."""
    scaling_nodes: tuple[int, ...] = ()
    """Numbers of nodes on which time is projected as well, under strong and weak scaling; one number stands for all
    powers of two times the fewest nodes up to it."""
    memory: bool = True
    """Project memory."""
    performance: bool = True
    """Project performance."""
    schedule: str = "auto"
    """`auto` for what the framework would run, `all` to compare, or a `Schedule` by name."""
    routing_imbalance: float | None = None
    """Rows that the experts of the busiest GPU receive over the balanced share, at least 1; None for what the file
    states, else for an interval."""
    host_factor: float | None = None
    """Time of the host's work over what the catalog says of its platform; None for what the file states, else 1."""
    packed_length: int | None = None
    """Length of the samples that sequences are packed with, as `projector.job.Batch` has it; None for what the file
    states."""
    indexer: IndexerTraining | None = None
    """What becomes of the weights of DeepSeek-V4's indexers; None for what the file states."""
    gathered_keys: bool | None = None
    """Whether keys that an indexer chooses are copied to each query's side; None for what the file states."""
    sinkhorn_iterations: int | None = None
    """Iterations of the normalisation of hyper-connections that run kernel by kernel; None for what the file states."""
    tuning: Tuning | None = None
    """Figures in place of those of the cost models; they go before the file's."""
    expandable_segments: bool | None = None
    """Whether segments of torch's caching allocator grow; None for what the configuration's environment states."""
    memory_safety_margin: float = 0.0
    """Share by which the upper end of the interval is widened, as Primus's `--memory-safety-margin`."""
    hardware: str | None = None
    """Content of a hardware file with a `hardware_config` map; None for the catalog's figures."""
    gemm_backend: str = "analytical"
    """Cost model of matrix products; `projector backends` lists them."""
    clock_mhz: float | None = None
    """Clock that the GPU is held at; None for the one that it sustains."""
    gpu_files: Mapping[str, str] = field(default_factory=dict)
    """Content of files that describe further GPUs, by name; they go before the catalog's of the same name."""
    calibration: str | None = None
    """Content of a calibration file: what was measured on the machine; None for the catalog's estimates."""


def project(question: Question) -> "Projection":
    """Answer a question.

    Raises `projector.errors.InputError` and its children for everything that the person can mend.
    """
    from projector.answer import answer  # noqa: PLC0415 - asking must not load the engine

    return answer(question)


def project_job(
    job: "TrainingJob", target: "Target", *, replay: bool = True
) -> "tuple[MemoryProjection, PerformanceProjection]":
    """Both halves of the answer for a job that no file describes, under the schedule its framework would run.

    Without `replay` of the caching allocator, which takes most of the time, reserved memory follows from the ratio of
    published runs; persistent and allocated memory are the same. Raises `projector.errors.InputError` and its children.
    """
    from projector.answer import halves  # noqa: PLC0415 - asking must not load the engine

    return halves(job, target, replay=replay)
