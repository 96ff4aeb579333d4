"""Time of layers and of the model chunks that pipeline ranks hold."""

from collections.abc import Iterable
from typing import NamedTuple

from projector.costs import CostModel
from projector.job import DecoderLayer, MixtureOfExperts, RecomputeGranularity, Sharding, TrainingJob
from projector.layers import (
    embedding_operations,
    is_recomputed,
    output_operations,
    recomputed_layers,
    recomputed_modules,
    repeated_work,
    shapes_of,
)
from projector.layers.decoder import shaped_layer, shaped_prediction
from projector.layers.routing import stated_imbalance
from projector.operations import NO_PARAMETERS, Collective, ElementWise, Held, Operation, held_by
from projector.parallelism import Chunk, Layout
from projector.performance.combined import LayerParts, layer_parts
from projector.performance.data_parallel import Communicator, sharded_layer
from projector.performance.host import NO_STEPS, Clocks, Launches, composed
from projector.performance.passes import HOST, NOTHING, RECOMPUTE, SCALES, PassTime, pass_time
from projector.schedule import ChunkDurations

_ENDS = {"embedding": embedding_operations, "output and loss": output_operations}
"""What makes the operations of a model's ends, by their names in the report."""


class BlockTime(NamedTuple):
    """One micro batch through one layer, or through the model chunk that layers make up."""

    name: str
    """Kind of layer, for the report."""
    forward: PassTime = NOTHING
    """Forward pass."""
    backward_input: PassTime = NOTHING
    """Backward pass towards the input, recomputation included."""
    backward_weight: PassTime = NOTHING
    """Backward pass towards the weights."""
    held: Held = NO_PARAMETERS
    """Trained parameters on the device."""
    forward_flops: float = 0.0
    """Floating-point operations of matrix products and attention in the forward pass, causal ones counted once."""
    forward_clocks: Clocks = NO_STEPS
    """How host and device take turns in the forward pass."""
    backward_clocks: Clocks = NO_STEPS
    """The same in the backward pass."""
    layers: tuple[LayerParts, ...] = ()
    """Parts of its layers, where passes may run beside those of another micro batch."""

    def plus(self, others: Iterable["BlockTime"]) -> "BlockTime":
        """This block and others one after the other, under this block's name."""
        blocks = (self, *others)
        return BlockTime(
            name=self.name,
            forward=NOTHING.plus(*(block.forward for block in blocks)),
            backward_input=NOTHING.plus(*(block.backward_input for block in blocks)),
            backward_weight=NOTHING.plus(*(block.backward_weight for block in blocks)),
            held=Held(
                dense=sum(block.held.dense for block in blocks), expert=sum(block.held.expert for block in blocks)
            ),
            forward_flops=sum(block.forward_flops for block in blocks),
            forward_clocks=composed(block.forward_clocks for block in blocks),
            backward_clocks=composed(block.backward_clocks for block in reversed(blocks)),
            layers=tuple(layer for block in blocks for layer in block.layers),
        )

    @property
    def backward(self) -> PassTime:
        """The whole backward pass."""
        return self.backward_input.plus(self.backward_weight)

    @property
    def durations(self) -> ChunkDurations:
        """What a schedule needs."""
        return ChunkDurations(
            forward=self.forward.seconds,
            backward_input=self.backward_input.seconds,
            backward_weight=self.backward_weight.seconds,
        )

    def host_bound(self, *, keeps_lead: bool) -> "BlockTime":
        """Lengthened where the device waits for the host."""
        ahead = self.forward_clocks.waiting_seconds(keeps_lead=keeps_lead)
        missing = self.backward_clocks.waiting_seconds(keeps_lead=keeps_lead)
        share = self.backward_input.seconds / (self.backward.seconds or 1.0)
        return self._replace(
            forward=self.forward.lengthened(ahead, HOST),
            backward_input=self.backward_input.lengthened(missing * share, HOST),
            backward_weight=self.backward_weight.lengthened(missing * (1 - share), HOST),
        )


class BlockTimes:
    """Times of a job's layers and chunks; distinct layers are costed once."""

    def __init__(self, job: TrainingJob, layout: Layout, costs: CostModel) -> None:
        """Everything that decides the time of a layer."""
        self._job = job
        self._layout = layout
        self._costs = costs
        # The busiest device's experts decide: all ranks wait for it in every exchange of tokens.
        self._shapes = shapes_of(job, layout, routing_factor=stated_imbalance(job, layout) or 1.0)
        self._modules = recomputed_modules(job.recompute)
        self._launches = Launches(costs, job.software)
        self._communicator = Communicator(costs=costs, layout=layout, precision=job.precision)
        self._layers: dict[tuple[DecoderLayer, bool], BlockTime] = {}
        self._ends: dict[str, BlockTime] = {}
        self._chunks: dict[tuple[object, ...], BlockTime] = {}

    def chunk(self, chunk: Chunk) -> BlockTime:
        """Time of a model chunk: its layers and ends, and the host that feeds them."""
        again = recomputed_layers(self._job.recompute, chunk.layer_ids)
        layers = [(self._job.model.layers[index], index in again) for index in chunk.layer_ids]
        # Layers live as long as the job, so that their identity will do, which is quicker than their hash.
        kinds = tuple((id(layer), recomputed) for layer, recomputed in layers)
        key = (kinds, chunk.embedding, chunk.output, chunk.mtp_layers)
        if key not in self._chunks:
            self._chunks[key] = self._made(chunk, layers)
        return self._chunks[key]

    def _made(self, chunk: Chunk, layers: Iterable[tuple[DecoderLayer, bool]]) -> BlockTime:
        blocks = [self.layer(layer, recomputed=recomputed) for layer, recomputed in layers]
        if chunk.embedding:
            blocks.append(self.embedding())
        if chunk.mtp_layers:
            blocks += [self.multi_token_prediction()] * chunk.mtp_layers
        if chunk.output:
            blocks.append(self.output())
        # Megatron-LM's host waits for each exchange of stages (p2p_communication.py `batch_p2p_sync`); one that
        # overlaps, which interleaving alone has, leaves the waiting to the device's streams.
        overlaps = self._layout.virtual_pipeline > 1 and self._job.software.overlap_pipeline_sends
        keeps_lead = self._layout.pipeline == 1 or overlaps
        return BlockTime(name="chunk").plus([*blocks, *self._scaling(chunk)]).host_bound(keeps_lead=keeps_lead)

    def _scaling(self, chunk: Chunk) -> list[BlockTime]:
        """Exchange of the largest values that delayed scaling needs, once behind each pass of a chunk.

        All ranks of a stage take part (Transformer Engine fp8.py `reduce_and_update_fp8_tensors`, Megatron-LM
        parallel_state.py `get_amax_reduction_group`).
        """
        if not (chunk.layer_ids and self._job.precision.exchanges_scales):
            return []
        seconds = self._costs.network.reduced_numbers_seconds(self._layout.world // self._layout.pipeline)
        exchange = PassTime(parts={SCALES: seconds})
        return [BlockTime(name="scales", forward=exchange, backward_input=exchange)]

    def layer(self, layer: DecoderLayer, *, recomputed: bool) -> BlockTime:
        """Time of a decoder layer, all of it recomputed or what selective recomputation says."""
        key = layer, recomputed
        if key not in self._layers:
            name = "moe layer" if isinstance(layer.feed_forward, MixtureOfExperts) else "dense layer"
            operations = shaped_layer(layer, self._shapes)
            by_operation = self._job.recompute.granularity is RecomputeGranularity.OPERATIONS
            self._layers[key] = self._block(name, operations, recomputed=recomputed, by_operation=by_operation)
        return self._layers[key]

    def embedding(self) -> BlockTime:
        """Time of the token table."""
        return self._end("embedding")

    def output(self) -> BlockTime:
        """Time of final norm, output layer and loss."""
        return self._end("output and loss")

    def multi_token_prediction(self) -> BlockTime:
        """Time of one multi-token-prediction layer."""
        name = "multi-token prediction"
        if name not in self._ends:
            operations = shaped_prediction(self._job.model.layers[-1], self._shapes)
            self._ends[name] = self._block(name, operations, recomputed=False)
        return self._ends[name]

    def _end(self, name: str) -> BlockTime:
        if name not in self._ends:
            self._ends[name] = self._block(name, _ENDS[name](self._job, self._layout), recomputed=False)
        return self._ends[name]

    def _block(
        self, name: str, operations: tuple[Operation, ...], *, recomputed: bool, by_operation: bool = False
    ) -> BlockTime:
        costs, software = self._costs, self._job.software
        forwards = [pass_time(operation.forward, costs, software) for operation in operations]
        if by_operation:
            repeated = repeated_work(operations, products=self._job.recompute.keeps_products)
            again = [pass_time(works, costs, software).renamed(RECOMPUTE) for works in repeated]
        else:
            again = [
                forward.renamed(RECOMPUTE)
                for operation, forward in zip(operations, forwards, strict=True)
                if recomputed or is_recomputed(operation, self._modules)
            ]
        forward = NOTHING.plus(*forwards)
        backward_input = NOTHING.plus(
            *(pass_time(operation.backward_input, costs, software) for operation in operations), *again
        )
        backward_weight = NOTHING.plus(
            *(pass_time(operation.backward_weight, costs, software) for operation in operations)
        )
        held = held_by(operations)
        if self._layout.sharding is Sharding.PARAMETERS:
            backward = backward_input.seconds + backward_weight.seconds
            gathered, scattered = self._weight_traffic(operations, forward.seconds, backward)
            forward, backward_input = forward.plus(gathered), backward_input.plus(scattered)
        parts: tuple[LayerParts, ...] = ()
        if software.overlap_expert_parallel and name not in _ENDS:
            seconds = forward.seconds, backward_input.seconds + backward_weight.seconds
            parts = (layer_parts(operations, costs, software, *seconds),)
        whole = recomputed or by_operation
        rerun = [operation for operation in operations if whole or is_recomputed(operation, self._modules)]
        return BlockTime(
            name=name,
            forward=forward,
            backward_input=backward_input,
            backward_weight=backward_weight,
            held=held,
            forward_flops=sum(
                work.flops
                for operation in operations
                for work in operation.forward
                if not isinstance(work, Collective | ElementWise)
            ),
            forward_clocks=self._launches.forward(operations),
            backward_clocks=self._launches.backward(operations, rerun),
            layers=parts,
        )

    def _weight_traffic(
        self, operations: tuple[Operation, ...], forward_seconds: float, backward_seconds: float
    ) -> tuple[PassTime, PassTime]:
        """What full sharding adds to the passes of a layer that compute for so long."""
        parallelism, communicator = self._job.parallelism, self._communicator
        trained = held_by(operations)
        whole = trained.plus(held_by(operations, frozen=True))
        hidden = 1.0 if parallelism.prefetches_layers else 0.0
        gathered = sharded_layer(communicator, whole, trained, hiding_seconds=hidden * forward_seconds, backward=False)
        if not parallelism.reshard_after_forward:
            # The first micro batch of a run gathers for all of them, and for their backward passes.
            gathered, whole = gathered.scaled(1 / self._layout.run_micro_batches), NO_PARAMETERS
        scattered = sharded_layer(communicator, whole, trained, hiding_seconds=hidden * backward_seconds, backward=True)
        return gathered, scattered
