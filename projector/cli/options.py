"""The one table of everything that the command line understands: options here, environment variables beside it.

The reference page and the tests are made from this table.
"""

from functools import partial
from pathlib import Path

from projector.cli.files import folder
from projector.cli.picture_options import PICTURES
from projector.cli.row import (
    CONFIGURED,
    LAID_OUT,
    PROJECTIONS,
    REMEMBERED,
    TIMED,
    Effect,
    Fate,
    Row,
    clock,
    count,
    counts,
    names,
    nothing,
    one_of,
    overrides,
    sets,
    switches,
    word,
)
from projector.cli.run_options import RUNS
from projector.cli.variables import VARIABLES
from projector.job import Scaling, Schedule

_EVERYWHERE = (*CONFIGURED, "models", "devices", "backends")
_SIMULATE = "`simulate` needs no GPU and is the default here"
_NO_BENCHMARK = "the analytical projection, which needs no GPU and is what runs without this option"

_common = partial(Row, group="Configuration", commands=CONFIGURED)
_target = partial(Row, group="Target", commands=LAID_OUT)
_batch = partial(Row, group="Batch and layout", commands=CONFIGURED)
_method = partial(Row, group="Method")
_benchmark = partial(Row, group="Benchmark", fate=Fate.REFUSED, becomes=_NO_BENCHMARK)
_output = partial(Row, group="Output", commands=_EVERYWHERE)


def _sync_free(text: str) -> Effect:
    """Stages above 0 bring DeepEP with them, as in Primus."""
    stage = one_of("0", "1", "2", "3")(text)
    deepep = {"use_turbo_deepep": "true"} if stage != "0" else {}
    return Effect(overrides={"turbo_sync_free_moe_stage": stage, **deepep})


OPTIONS: tuple[Row, ...] = (
    _common(
        name="--config",
        aliases=("--exp",),
        value="FILE",
        default="required",
        fate=Fate.WORKS,
        meaning="Training configuration, such as a Primus experiment YAML, or the name of a model in the catalog; for"
        " `schedule` also a file of given chunk times.",
        becomes="the file that is projected",
        effect=switches("config", Path),
    ),
    _common(
        name="--with",
        value="FILE",
        repeatable=True,
        fate=Fate.WORKS,
        meaning="File beside it: DeepSpeed, accelerate or FSDP settings for a Hugging Face config.json, a launch script"
        " for a file of Megatron-LM's arguments.",
        becomes="`Question.companions`; may be given several times",
        effect=lambda text: Effect(switches={"with": (Path(text),)}),
    ),
    _common(
        name="--format",
        value="NAME",
        default="detected from the content",
        fate=Fate.WORKS,
        meaning="Dialect of the configuration.",
        becomes="`Question.format`",
        effect=sets("format"),
    ),
    _common(
        name="--primus-root",
        value="DIR",
        default="$PRIMUS_ROOT, else the catalog",
        fate=Fate.WORKS,
        meaning="Primus checkout whose presets are read.",
        becomes="`Question.primus_root`",
        effect=sets("primus_root", folder),
    ),
    _common(
        name="--data_path",
        value="DIR",
        default="./data",
        fate=Fate.NO_EFFECT,
        meaning="Training data, in Primus.",
        becomes="data is not read; its content changes neither memory nor time",
    ),
    _common(
        name="--backend_path",
        value="DIR",
        optional_value=True,
        fate=Fate.NO_EFFECT,
        meaning="Import path of Megatron-LM or TorchTitan, in Primus's benchmark.",
        becomes="no framework is imported",
    ),
    _common(
        name="--export_config",
        value="FILE",
        fate=Fate.WORKS,
        meaning="Write the effective configuration as well, as the project's own YAML.",
        becomes="the file that is written, in one step and never over one that was read",
        effect=switches("export", Path),
    ),
    _target(
        name="--gpu-arch",
        value="NAME",
        default="$PRIMUS_GPU_ARCH, else MI300X (listed as assumed)",
        fate=Fate.WORKS,
        meaning="GPU to project on; `projector devices` lists them.",
        becomes="`Question.device`",
        effect=sets("device"),
    ),
    _target(
        name="--gpu-clock-mhz",
        value="N",
        default="$PRIMUS_GPU_CLOCK_MHZ, else the clock that the GPU sustains (Primus: its highest)",
        fate=Fate.WORKS,
        meaning="Clock that the GPU is held at: scales matrix products and attention.",
        becomes="`Question.clock_mhz`",
        commands=TIMED,
        effect=sets("clock_mhz", clock),
    ),
    _target(
        name="--gpu-file",
        value="FILE",
        default="$PRIMUS_HW_PROFILE_DIR, else the catalog",
        repeatable=True,
        fate=Fate.WORKS,
        meaning="YAML that describes a GPU of your own, in the catalog's form or Primus's gpu_hardware_profiles.",
        becomes="`Question.gpu_files`; may be given several times",
        commands=(*LAID_OUT, "devices"),
        effect=lambda text: Effect(switches={"gpu_files": (Path(text),)}),
    ),
    _target(
        name="--target-nodes",
        value="N",
        default="$NNODES, else what the file states, else the fewest that hold one replica",
        fate=Fate.WORKS,
        meaning="Nodes to project on.",
        becomes="`Question.nodes`",
        effect=sets("nodes", count),
        commands=CONFIGURED,
    ),
    _target(
        name="--target-num-nodes",
        value="N",
        default="as --target-nodes",
        fate=Fate.WORKS,
        meaning="The same as --target-nodes.",
        becomes="`Question.nodes`",
        effect=sets("nodes", count),
        commands=CONFIGURED,
    ),
    _target(
        name="--devices-per-node",
        value="N",
        default="$GPUS_PER_NODE, else what the file states, else 8",
        fate=Fate.WORKS,
        meaning="GPUs of one node.",
        becomes="`Question.devices_per_node`",
        effect=sets("devices_per_node", count),
        commands=CONFIGURED,
    ),
    _target(
        name="--scaling",
        value="{strong,weak}",
        default="strong",
        fate=Fate.WORKS,
        meaning="Global batch on more nodes: as written, or growing with data parallelism.",
        becomes="`Question.scaling`",
        effect=sets("scaling", lambda text: Scaling(one_of(*Scaling)(text))),
    ),
    _target(
        name="--scaling-nodes",
        value="N[,N...]",
        default="no table",
        fate=Fate.WORKS,
        meaning="Tables of strong and weak scaling over these nodes; one N: over powers of two from the fewest to N.",
        becomes="`Question.scaling_nodes`",
        effect=sets("scaling_nodes", counts),
        commands=("performance", "both"),
    ),
    _target(
        name="--hardware-config",
        value="FILE",
        default="the catalog's figures",
        fate=Fate.WORKS,
        meaning="YAML with a `hardware_config` map: bandwidths and latencies of the links.",
        becomes="`Question.hardware`",
        effect=switches("hardware", Path),
        commands=TIMED,
    ),
    _target(
        name="--calibration",
        value="FILE",
        default="the catalog's estimates",
        fate=Fate.WORKS,
        meaning="What was measured on the machine: rates of operations, memory outside PyTorch's allocator.",
        becomes="`Question.calibration`",
        effect=switches("calibration", Path),
        commands=PROJECTIONS,
    ),
    _batch(
        name="--micro-batch-size",
        value="N",
        default="as configured",
        fate=Fate.WORKS,
        meaning="Sequences per micro batch and data-parallel rank.",
        becomes="override `micro_batch_size`",
        effect=overrides("micro_batch_size", kind=count),
    ),
    _batch(
        name="--global-batch-size",
        value="N",
        default="as configured",
        fate=Fate.WORKS,
        meaning="Sequences per iteration.",
        becomes="override `global_batch_size`",
        effect=overrides("global_batch_size", kind=count),
    ),
    _batch(
        name="--target-ep-size",
        value="N",
        default="as configured",
        fate=Fate.WORKS,
        meaning="Expert-parallel degree.",
        becomes="override `expert_model_parallel_size`",
        effect=overrides("expert_model_parallel_size", kind=count),
    ),
    _batch(
        name="--num-virtual-stages-per-pipeline-rank",
        value="N",
        default="as configured",
        fate=Fate.WORKS,
        meaning="Model chunks per pipeline stage.",
        becomes="override `virtual_pipeline_model_parallel_size`; the other two spellings are cleared",
        effect=overrides(
            "virtual_pipeline_model_parallel_size",
            kind=count,
            num_layers_per_virtual_pipeline_stage="null",
            num_virtual_stages_per_pipeline_rank="null",
        ),
    ),
    _batch(
        name="--enable-zero-bubble",
        default="as configured",
        fate=Fate.WORKS,
        meaning="Zero-bubble pipeline schedule.",
        becomes="overrides `enable_zero_bubble` and `patch_zero_bubble`: Primus runs the schedule only with both",
        effect=overrides("enable_zero_bubble", "patch_zero_bubble"),
    ),
    _batch(
        name="--enable-deepep",
        default="as configured",
        fate=Fate.WORKS,
        meaning="DeepEP token dispatch.",
        becomes="override `use_turbo_deepep`",
        effect=overrides("use_turbo_deepep"),
    ),
    _batch(
        name="--sync-free-stage",
        value="{0,1,2,3}",
        default="as configured",
        fate=Fate.WORKS,
        meaning="Primus-Turbo's sync-free MoE stage; above 0 also DeepEP.",
        becomes="overrides `turbo_sync_free_moe_stage` and `use_turbo_deepep`",
        effect=_sync_free,
    ),
    _method(
        name="--pipeline-schedule-algorithm",
        value="NAME",
        default="auto: what the framework would run",
        meaning=f"Pipeline schedule: auto, all, {', '.join(Schedule)}.",
        fate=Fate.WORKS,
        becomes="`Question.schedule`",
        effect=sets("schedule", one_of("auto", "all", *Schedule)),
    ),
    _method(
        name="--memory-mode",
        value="MODE",
        default="simulate (Primus: benchmark)",
        fate=Fate.WORKS,
        meaning="Source of the memory figures: simulate; later also benchmark, both.",
        becomes="simulate is what runs",
        commands=("memory",),
        effect=nothing(one_of("simulate", later={"benchmark": _SIMULATE, "both": _SIMULATE})),
    ),
    _method(
        name="--profiling-mode",
        value="MODE",
        default="simulate (Primus: benchmark)",
        fate=Fate.WORKS,
        meaning="Source of the layer times: simulate; later also benchmark, both.",
        becomes="simulate is what runs",
        commands=TIMED,
        effect=nothing(one_of("simulate", later={"benchmark": _SIMULATE, "both": _SIMULATE})),
    ),
    _method(
        name="--gemm-backend",
        value="NAME",
        default="$PRIMUS_GEMM_BACKEND, else analytical (Primus: origami)",
        fate=Fate.WORKS,
        meaning="Cost model of matrix products; `projector backends` lists them.",
        becomes="`Question.gemm_backend`",
        commands=TIMED,
        effect=sets("gemm_backend", word),
    ),
    _method(
        name="--gemm-plugins",
        value="MODULES",
        default="$PRIMUS_GEMM_BACKEND_PLUGINS, else none",
        fate=Fate.WORKS,
        meaning="Python modules, or files, with further cost models, between commas; they are run.",
        becomes="`projector.costs.load_gemm_modules`",
        commands=(*TIMED, "backends"),
        effect=switches("gemm_plugins", names),
    ),
    *RUNS,
    _benchmark(name="--benchmark-gpus", value="N", meaning="GPUs of the benchmark."),
    _benchmark(
        name="--save-benchmark",
        aliases=("--save-profiling",),
        value="FILE",
        meaning="Write what the benchmark measured.",
    ),
    _benchmark(name="--load-benchmark", value="FILE", meaning="Project from a benchmark's measurements."),
    _benchmark(
        name="--compute-baseline",
        value="FILE",
        hidden=True,
        meaning="Single-GPU timings as clean compute.",
    ),
    _benchmark(
        name="--profile-only",
        hidden=True,
        commands=TIMED,
        meaning="Stop after the benchmark.",
    ),
    _output(
        name="--output",
        value="FORM",
        default="text",
        fate=Fate.WORKS,
        meaning="Form of the answer: text, json, yaml, csv; later also html.",
        becomes="what is printed",
        effect=switches("output", one_of("text", "json", "yaml", "csv", later={"html": "text, json, yaml or csv"})),
    ),
    _output(
        name="--check",
        fate=Fate.WORKS,
        commands=REMEMBERED,
        meaning="Exit with 3 when the verdict is DoesNotFit; warn when it is AtRisk or Unknown.",
        becomes="the exit code",
        effect=switches("check", bool),
    ),
    *PICTURES,
    _output(
        name="--debug",
        fate=Fate.WORKS,
        meaning="Show the traceback of an unexpected error.",
        becomes="what an unexpected error prints",
        effect=switches("debug", bool),
    ),
)
"""Options, in the order of the reference."""

TABLE: tuple[Row, ...] = OPTIONS + VARIABLES
"""Every option and every environment variable."""


def options_of(command: str) -> tuple[Row, ...]:
    """The options that a command takes."""
    return tuple(row for row in OPTIONS if command in row.commands)


def variables_of(command: str) -> tuple[Row, ...]:
    """The environment variables that a command looks at."""
    return tuple(row for row in VARIABLES if command in row.commands)
