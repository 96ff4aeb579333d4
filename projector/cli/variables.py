"""The environment variables of the option table: all that Primus's projection reads, and ours.

Those that would change Primus's figures and that we cannot honour are refused when they are set; those that cannot
matter here are named in the result.
"""

from functools import partial

from projector.cli.files import folder, folders_of_yaml
from projector.cli.row import (
    CONFIGURED,
    LAID_OUT,
    PROJECTIONS,
    TIMED,
    Fate,
    Row,
    clock,
    count,
    names,
    nothing,
    one_of,
    sets,
    switches,
    word,
)
from projector.cli.tuning import KNOBS, SAMPLING

_TOPOLOGY = "Environment: topology"
_SIMULATION = "Environment: simulation"
_QUIET = "Environment: benchmark and debugging"
_FILES = "Environment: read by configuration files"
_RECOMMENDERS = ("torchrec", "torchrec_dlrm", "dlrm", "dlrm_v4")


_topology = partial(Row, group=_TOPOLOGY, fate=Fate.WORKS, value="V", commands=CONFIGURED)
_simulation = partial(Row, group=_SIMULATION, fate=Fate.WORKS, value="V", commands=PROJECTIONS)


def _no_effect(name: str, group: str, meaning: str, why: str) -> Row:
    return Row(
        name=name, group=group, meaning=meaning, becomes=why, fate=Fate.NO_EFFECT, value="V", commands=PROJECTIONS
    )


def _benchmark(name: str, meaning: str) -> Row:
    return _no_effect(name, _QUIET, meaning, "no benchmark is run")


def _in_files(name: str) -> Row:
    return Row(
        name=name,
        group=_FILES,
        meaning=f"Value of `${{{name}}}` in the public recipes.",
        fate=Fate.WORKS,
        value="V",
        becomes="its value where the configuration says so; named under `ignored` where it does not",
        in_files=True,
        commands=CONFIGURED,
    )


_TOPOLOGY_ROWS = (
    _topology(
        name="NNODES",
        meaning="Nodes to project on.",
        becomes="`Question.nodes`, unless an option says",
        behind=("--target-nodes", "--target-num-nodes"),
        effect=sets("nodes", count),
    ),
    _topology(
        name="GPUS_PER_NODE",
        meaning="GPUs of one node.",
        becomes="`Question.devices_per_node`, unless an option says",
        behind=("--devices-per-node",),
        effect=sets("devices_per_node", count),
    ),
    _topology(
        name="PRIMUS_ROOT",
        meaning="Primus checkout whose presets are read.",
        becomes="`Question.primus_root`, unless an option says",
        behind=("--primus-root",),
        effect=sets("primus_root", folder),
    ),
    _no_effect("RANK", _TOPOLOGY, "Rank whose stage Primus prints.", "every pipeline stage is reported"),
    _no_effect("WORLD_SIZE", _TOPOLOGY, "Processes of the launcher.", "GPUs are nodes x GPUs per node"),
    _no_effect("MASTER_PORT", _TOPOLOGY, "Names Primus's temporary file.", "no process group and no file is made"),
    _no_effect("CUDA_VISIBLE_DEVICES", _TOPOLOGY, "Devices of the process.", "no local device is looked at"),
)

_SIMULATION_ROWS = (
    _simulation(
        name="PRIMUS_GPU_ARCH",
        meaning="GPU to project on.",
        becomes="`Question.device`, unless an option says",
        behind=("--gpu-arch",),
        commands=LAID_OUT,
        effect=sets("device"),
    ),
    _simulation(
        name="PRIMUS_GEMM_BACKEND",
        meaning="Cost model of matrix products.",
        becomes="`Question.gemm_backend`, unless an option says",
        behind=("--gemm-backend",),
        commands=TIMED,
        effect=sets("gemm_backend", word),
    ),
    _simulation(
        name="PRIMUS_WORKLOAD",
        meaning="Kind of training.",
        becomes="megatron is what is projected; others are refused",
        effect=nothing(one_of("megatron", later=dict.fromkeys(_RECOMMENDERS, "megatron"))),
    ),
    _no_effect("PRIMUS_GPU_DEVICE", _SIMULATION, "Index of the local GPU to look at.", "no local device is looked at"),
    _simulation(
        name="PRIMUS_GPU_CLOCK_MHZ",
        meaning="Clock that the GPU is held at.",
        becomes="`Question.clock_mhz`, unless an option says",
        behind=("--gpu-clock-mhz",),
        commands=TIMED,
        effect=sets("clock_mhz", clock),
    ),
    _simulation(
        name="PRIMUS_HW_PROFILE_DIR",
        meaning="Folders of YAML files that describe GPUs, between commas or semicolons.",
        becomes="`Question.gpu_files`, unless an option says",
        behind=("--gpu-file",),
        commands=(*LAID_OUT, "devices"),
        effect=switches("gpu_files", folders_of_yaml),
    ),
    _simulation(
        name="PRIMUS_GEMM_BACKEND_PLUGINS",
        meaning="Python modules with further cost models, between commas or semicolons; they are run.",
        becomes="`projector.costs.load_gemm_modules`, unless an option says",
        behind=("--gemm-plugins",),
        commands=(*TIMED, "backends"),
        effect=switches("gemm_plugins", names),
    ),
    *SAMPLING,
)

_QUIET_ROWS = (
    _no_effect("PRIMUS_PRINT_LAYER_BREAKDOWN", _QUIET, "Prints times by layer.", "the answer holds them anyway"),
    _no_effect("DEBUG_SIMULATOR", _QUIET, "Prints steps of Primus's simulator.", "there is no such simulator here"),
    _benchmark("PRIMUS_BENCH_WARMUP_ITERS", "Warm-up iterations."),
    _benchmark("PRIMUS_BENCH_NUM_ITERATIONS", "Timed iterations."),
    _benchmark("PRIMUS_BENCH_AGGREGATE", "Median or mean."),
    _benchmark("PRIMUS_BENCH_INSITU_DEPTH", "Layers chained for a timing."),
    _benchmark("PRIMUS_BENCH_MOE_KERNEL_PAD", "Round-robin routing."),
    _benchmark("PRIMUS_BENCH_MOE_LAYER_WHOLE", "Times MoE layers whole."),
    _benchmark("PRIMUS_BENCH_SKIP_TP_AR", "Skips tensor-parallel all-reduces."),
    _benchmark("PRIMUS_BENCH_SKIP_OPTIMIZER", "Skips the optimizer step."),
)

_FILE_VARIABLES = (
    "PRIMUS_TEAM",
    "PRIMUS_USER",
    "PRIMUS_EXP_NAME",
    "PRIMUS_WORKSPACE",
    "PRIMUS_MODEL",
    "PRIMUS_TP",
    "PRIMUS_PP",
    "PRIMUS_EP",
    "PRIMUS_VPP",
    "PRIMUS_SEQ_LENGTH",
    "PRIMUS_MAX_POSITION_EMBEDDINGS",
    "PRIMUS_GLOBAL_BATCH_SIZE",
    "PRIMUS_NUM_LAYERS",
    "PRIMUS_MOE_LAYER_FREQ",
    "PRIMUS_TOKENIZED_DATA_PATH",
)  # fmt: skip - a list of names

VARIABLES: tuple[Row, ...] = (
    *_TOPOLOGY_ROWS,
    *_SIMULATION_ROWS,
    *KNOBS,
    *_QUIET_ROWS,
    *map(_in_files, _FILE_VARIABLES),
)  # fmt: skip - a list of names
"""Environment variables, in the order of the reference."""
