"""What is known about a GPU, in SI units: seconds, bytes, bytes per second; TFLOP/s where everybody says TFLOP/s.

A *device* is what the training framework sees as one: each of the two dies of an MI250X is a device. Figures that
nobody published or measured are None, or absent from their mapping: a consumer that needs one says so in its result
instead of guessing. Where each figure comes from, and whether it is an estimate, stands in `Device.provenance`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from projector.catalog.facts import Provenance
from projector.job import LowPrecision


class LinkKind(StrEnum):
    """How the devices of one domain reach each other."""

    MESH = "mesh"
    """A direct link between every pair (xGMI on MI300X): one pair alone uses one link's rate."""
    SWITCH = "switch"
    """All links end in switches (NVSwitch): one pair can use the full rate."""
    FABRIC = "fabric"
    """A network between nodes, one interface a device."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """A connection of one device to others of its domain."""

    name: str
    """Technology, such as `xGMI 3` or `NVLink 4`."""
    kind: LinkKind
    """Topology."""
    bytes_per_second: float
    """Line rate of one device in one direction, all its links together."""
    pair_bytes_per_second: float
    """Line rate in one direction between two devices: one link of a mesh, all of a switch."""
    domain_devices: int | None = None
    """Devices that it connects (8 of one node, 72 of an NVL72 rack); None for a network without bound."""
    achieved_bytes_per_second: float | None = None
    """What large transfers of one device reach in training, in one direction."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CollectiveCurve:
    """Measured bus bandwidth of one collective over message size, in the sense of nccl-tests.

    Bus bandwidth is (message / time) x 2 (n - 1) / n for all-reduce and (message / time) x (n - 1) / n for
    all-gather, reduce-scatter and all-to-all, where the message is the buffer that is reduced, the gathered result,
    the input that is scattered or what one rank sends.
    """

    collective: str
    """all_reduce, all_gather, reduce_scatter, all_to_all, broadcast or send_recv."""
    ranks: int
    """Devices that took part."""
    nodes: int
    """Hosts that they were on."""
    points: tuple[tuple[int, float], ...]
    """(message in bytes, bus bandwidth in bytes per second), ascending."""
    software: str = ""
    """Library and version."""
    floor: bool = False
    """The points are minima that an acceptance test expects, not typical values."""
    provenance: Provenance
    """Where it comes from."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One GPU."""

    name: str
    """Canonical name, such as `MI300X`."""
    vendor: str
    """AMD or NVIDIA."""
    architecture: str
    """Compiler target, such as `gfx942` or `sm90`."""
    aliases: tuple[str, ...] = ()
    """Other names that `catalog.device` accepts: marketing and architecture names, node labels, PCI device ids."""
    product_names: tuple[str, ...] = ()
    """Values of the node label `amd.com/gpu.product-name` (or `nvidia.com/gpu.product`) that mean this device."""
    pci_device_ids: tuple[str, ...] = ()
    """PCI device ids in hexadecimal, such as `74a1`."""
    file: str | None = None
    """File in which a person describes it; None for the catalog's."""

    compute_units: int | None = None
    """Compute units (AMD) or streaming multiprocessors (NVIDIA)."""
    clock_hz: float | None = None
    """Highest engine clock, on which AMD's peaks are based."""
    sustained_clock_hz: float | None = None
    """Clock that long runs of large bf16 GEMMs settle at: the one that `gemm_tflops` and the rates of attention hold
    at."""
    flops_per_unit_and_clock: Mapping[str, int] = field(default_factory=dict)
    """Dense FLOP of one compute unit in one clock by format (AMD): peak = compute_units x clock x this."""
    cache_bytes: int | None = None
    """Last-level cache: Infinity Cache (AMD), L2 (NVIDIA)."""

    peak_tflops: Mapping[str, float] = field(default_factory=dict)
    """Dense peak by format: fp32, tf32, fp16, bf16, fp8, fp6, fp4. A format that is missing is not offered. The MFU
    base is `bf16`."""
    gemm_tflops: Mapping[str, float] = field(default_factory=dict)
    """What large GEMMs reach in training: sustained clock, realistic values, typical shapes. By `bf16` and the
    values of `projector.job.LowPrecision` (fp8, fp8-block, mxfp8, mxfp6, mxfp4, nvfp4); quantisation not included."""
    gemm_burst_tflops: Mapping[str, float] = field(default_factory=dict)
    """What large GEMMs reach in a short benchmark, before the power limit acts. Same keys."""
    gemm_achievable_tflops: Mapping[str, float] = field(default_factory=dict)
    """Vendor's best case over shapes with a long warm-up (AMD's max-achievable FLOPS). Same keys, and fp16."""
    grouped_gemm_tflops: Mapping[str, float] = field(default_factory=dict)
    """Fused grouped GEMM of experts: keys `forward` and `backward`, bf16."""
    gemm_output_bytes_per_second: float | None = None
    """Rate at which a GEMM's operands and result pass memory, as a term that adds to the arithmetic."""
    training_factor: float | None = None
    """Training against benchmark on `gemm_tflops` and attention: slowest GPU of the group, values, clocks. From
    published training runs; multiply rates with it, or leave it out where rates were measured on the spot."""
    idle_power_share: float | None = None
    """Share of the power limit that remains outside GEMM and attention, for the clock law
    c = ((1 - r u) / (1 - u)) ^ (1/3) with u the share of the step outside them."""

    attention_forward_tflops: float | None = None
    """Flash attention forward, bf16, causal work counted once (half of the square), head width 128."""
    attention_backward_tflops: float | None = None
    """Flash attention backward, counted as 2.5 times the forward FLOP."""
    attention_backend_tflops: Mapping[str, float] = field(default_factory=dict)
    """The same for kernel families that differ from the device's best: keys such as `triton-forward` and
    `triton-backward`, by the values of `projector.job.AttentionBackend`."""
    latent_attention_factor: float | None = None
    """Latent attention (query width 192, value width 128) against the two rates above."""
    latent_attention_backward_tflops: float | None = None
    """Latent attention's backward rate where it has no kernel of its own and the factor does not hold."""

    memory_capacity_bytes: int | None = None
    """Total memory as the runtime reports it (hipMemGetInfo, cudaMemGetInfo): the capacity of a fit check. None when
    no public figure exists."""
    memory_size_bytes: int | None = None
    """Memory as sold, in bytes (GB of 10^9 on the label times 2^30 where vendors mean GiB): an upper bound only."""
    memory_bandwidth_bytes_per_second: float | None = None
    """Peak bandwidth of device memory."""
    elementwise_bytes_per_second: float | None = None
    """Bytes read and written per second by large element-wise kernels in training."""
    low_precision_cast_bytes_per_second: float | None = None
    """Bytes of the higher-precision input per second when activations are quantised."""

    launch_seconds: float | None = None
    """Host time of one kernel launch from C++ (raw launch), without framework overhead."""
    kernel_gap_seconds: float | None = None
    """Time between the work of two kernels of one stream, where it was measured."""
    host_platform: str = "x86"
    """Host that it usually has, a name of `catalog.host_costs`."""
    step_overhead_seconds: float | None = None
    """Fixed time of a training step outside layers and optimizer (Megatron-LM, eager)."""

    intra_node: Link | None = None
    """Connection inside a node (or NVLink domain)."""
    inter_node: Link | None = None
    """Usual network interface of one device; a property of the cluster, so assumed unless stated."""
    node_devices: int | None = None
    """Devices of the usual node."""
    collectives: tuple[CollectiveCurve, ...] = ()
    """Measured curves; the first of a kind is the best documented."""
    collective_latency_seconds: float | None = None
    """Fixed time a of a collective inside a node, in a + b (n - 1) + message / bandwidth."""
    collective_step_seconds: float | None = None
    """Time b of each further rank in the same formula."""
    all_to_all_over_all_reduce: float | None = None
    """Bus bandwidth of all-to-all against all-reduce at the same size, where no curve of its own exists."""
    expert_dispatch_bytes_per_second: float | None = None
    """DeepEP class of dispatch inside the node or NVLink domain: bytes of unique ranks per second and device."""
    expert_dispatch_network_bytes_per_second: float | None = None
    """The same over the network."""
    expert_dispatch_seconds: float | None = None
    """Fixed time of one such dispatch or combine."""

    blas_workspace_bytes: int | None = None
    """torch's BLAS workspace of one thread; ranks that call torch's matmul hold two (forward, autograd)."""
    framework_workspace_bytes: int | None = None
    """Transformer Engine's GEMM workspace; four more of the same size with grouped GEMM on NVIDIA."""
    context_bytes: int | None = None
    """Device memory outside torch's allocator before any communicator: context, code objects, kernel scratch."""
    communicator_bytes: int | None = None
    """Device memory of one RCCL or NCCL communicator over a node's ranks, per process group of two or more ranks
    that is in use."""
    small_communicator_bytes: Mapping[int, int] = field(default_factory=dict)
    """The same where a group has at most so many ranks on a node; such groups get fewer channels."""
    peer_bytes: int | None = None
    """What a communicator that runs all-to-all takes for each other rank of the node. None where the figure of a
    communicator contains it."""
    eager_communicator_bytes: int | None = None
    """Device memory that eager creation of all communicators adds in total (`device_id` in init_process_group)."""
    outside_allocator_uncertainty_bytes: int | None = None
    """Half width of the interval around context plus communicators."""

    provenance: Mapping[str, Provenance] = field(default_factory=dict)
    """Where each field comes from, by field name; entries of a mapping as `gemm_tflops.bf16`."""

    def collective(self, name: str, *, nodes: int = 1) -> CollectiveCurve | None:
        """The first curve of a collective on that many nodes, None when there is none."""
        return next((curve for curve in self.collectives if (curve.collective, curve.nodes) == (name, nodes)), None)

    def estimated(self, field_name: str) -> bool:
        """Whether a field, or an entry such as `gemm_tflops.bf16`, is an estimate."""
        found = self.provenance.get(field_name)
        return found is not None and found.estimated

    def assumed(self, field_name: str) -> bool:
        """Whether a field, or an entry, is an estimate that no published run of the device checks."""
        found = self.provenance.get(field_name)
        return found is not None and found.assumed

    def offers(self, low_precision: LowPrecision | None) -> bool:
        """Whether its matrix units have a format.

        Units that scale blocks of 32 came with those for 4 bits, on CDNA 4 and Blackwell. NVFP4 scales blocks of 16 by
        an 8-bit float, which Blackwell's units do and CDNA 4's do not.
        """
        if peak_format(low_precision) not in self.peak_tflops:
            return False
        if low_precision is LowPrecision.MXFP8:
            return "fp4" in self.peak_tflops
        return low_precision is not LowPrecision.NVFP4 or self.vendor == "NVIDIA"


def peak_format(low_precision: LowPrecision | None) -> str:
    """Key of `Device.peak_tflops` whose matrix units a GEMM format uses."""
    match low_precision:
        case None:
            return "bf16"
        case LowPrecision.MXFP6:
            return "fp6"
        case LowPrecision.MXFP4 | LowPrecision.NVFP4:
            return "fp4"
        case _:
            return "fp8"
