"""Time of layers and of the model chunks that pipeline ranks hold."""

from dataclasses import replace
from itertools import groupby

from projector.costs import CostModel
from projector.job import DecoderLayer, MixtureOfExperts, RecomputeGranularity, Sharding, TrainingJob
from projector.layers import recomputed_layers, recomputed_modules, shapes_of
from projector.layers.decoder import shaped_layer, shaped_prediction
from projector.layers.ends import shaped_embedding, shaped_output
from projector.layers.routing import stated_imbalance
from projector.operations import NO_PARAMETERS, Operations, held_by
from projector.parallelism import Chunk, Layout
from projector.performance.blocks import Again, BlockTime, forward_flops, timed
from projector.performance.combined import layer_parts
from projector.performance.data_parallel import Communicator, sharded_layer
from projector.performance.host import launched
from projector.performance.muon import matrices_of
from projector.performance.passes import SCALES, PassTime
from projector.performance.tuning import tuned


class BlockTimes:
    """Times of a job's layers and chunks; distinct layers are costed once."""

    def __init__(self, job: TrainingJob, layout: Layout, costs: CostModel) -> None:
        """Everything that decides the time of a layer."""
        self._job = job
        self._layout = layout
        self._costs = costs
        # The busiest device's experts decide: all ranks wait for it in every exchange of tokens.
        self._shapes = shapes_of(job, layout, routing_factor=stated_imbalance(job, layout) or 1.0)
        dropless = replace(job.software, expert_capacity_factor=None, sync_free_stage=0)
        self._needed = replace(self._shapes, routing_factor=1.0, software=dropless)
        self._chosen: dict[int, tuple[BlockTime, BlockTime]] = {}
        recompute = job.recompute
        by_operation = recompute.granularity is RecomputeGranularity.OPERATIONS
        self._selective = Again(modules=recomputed_modules(recompute))
        self._usual = Again(
            modules=self._selective.modules, by_operation=by_operation, products=recompute.keeps_products
        )
        self._rerun = Again(whole=True, by_operation=by_operation, products=recompute.keeps_products)
        self._communicator = Communicator(costs=costs, layout=layout, precision=job.precision)
        self._scales = self._scaling()
        self._operations: dict[int, Operations] = {}
        self._blocks: dict[tuple[int, Again], tuple[Operations, BlockTime]] = {}
        self._runs: dict[int, list[tuple[int, BlockTime]]] = {}
        self._chunks: dict[tuple[tuple[int, int], ...], BlockTime] = {}

    def chunk(self, chunk: Chunk) -> BlockTime:
        """Time of a model chunk: its layers and ends, and the host that feeds them. Equal chunks are one object."""
        runs = self.runs(chunk)
        content = tuple((count, id(block)) for count, block in runs)
        if content not in self._chunks:
            # Megatron-LM's host waits for each exchange of stages (p2p_communication.py `batch_p2p_sync`); one that
            # overlaps, which interleaving alone has, leaves the waiting to the device's streams.
            overlaps = self._layout.virtual_pipeline > 1 and self._job.software.overlap_pipeline_sends
            keeps_lead = self._layout.pipeline == 1 or overlaps
            blocks = (block.repeated(count) for count, block in runs)
            self._chunks[content] = BlockTime(name="chunk").plus(blocks).host_bound(keeps_lead=keeps_lead)
        return self._chunks[content]

    def runs(self, chunk: Chunk) -> list[tuple[int, BlockTime]]:
        """What a chunk consists of, without the host: blocks in the order of a forward pass, with their number.

        The exchange behind its passes comes last.
        """
        if chunk.virtual_stage not in self._runs:
            self._runs[chunk.virtual_stage] = self._found(chunk)
        return self._runs[chunk.virtual_stage]

    def _found(self, chunk: Chunk) -> list[tuple[int, BlockTime]]:
        layers, again = self._job.model.layers, recomputed_layers(self._job.recompute, chunk.layer_ids)
        found = [(1, self.embedding())] if chunk.embedding else []
        for (_, recomputed), indices in groupby(chunk.layer_ids, lambda index: (id(layers[index]), index in again)):
            first, *others = indices
            found.append((1 + len(others), self.layer(layers[first], recomputed=recomputed)))
        if chunk.mtp_layers:
            found.append((chunk.mtp_layers, self.multi_token_prediction()))
        if chunk.output:
            found.append((1, self.output()))
        if chunk.layer_ids and self._scales is not None:
            found.append((1, self._scales))
        # Equal layers of a model need not be one object, but their blocks are.
        equal = (list(run) for _, run in groupby(found, lambda run: id(run[1])))
        return [(sum(count for count, _ in run), run[0][1]) for run in equal]

    def _scaling(self) -> BlockTime | None:
        """Exchange of the largest values that delayed scaling needs, once behind each pass of a chunk.

        All ranks of a stage take part (Transformer Engine fp8.py `reduce_and_update_fp8_tensors`, Megatron-LM
        parallel_state.py `get_amax_reduction_group`).
        """
        if not self._job.precision.exchanges_scales:
            return None
        seconds = self._costs.network.reduced_numbers_seconds(self._layout.world // self._layout.pipeline)
        exchange = PassTime(parts={SCALES: seconds})
        return BlockTime(name=SCALES, counts=False, forward=exchange, backward_input=exchange)

    def layer(self, layer: DecoderLayer, *, recomputed: bool) -> BlockTime:
        """Time of a decoder layer, all of it recomputed or what selective recomputation says."""
        # To hash a layer takes longer than to find it by its identity.
        operations = self._operations.get(id(layer))
        if operations is None:
            operations = self._operations[id(layer)] = self._tuned(shaped_layer(layer, self._shapes), layer)
        again = self._rerun if recomputed else self._usual
        if not isinstance(layer.feed_forward, MixtureOfExperts):
            return self._block("dense layer", operations, again)
        # What the model needs is what its tokens choose: rows of padding and of an uneven routing are overhead.
        block = self._block("moe layer", operations, again)
        key = id(block)
        if key not in self._chosen:
            needed = forward_flops(shaped_layer(layer, self._needed))
            self._chosen[key] = block, block._replace(forward_flops=needed)
        return self._chosen[key][1]

    def embedding(self) -> BlockTime:
        """Time of the token table."""
        return self._block("embedding", shaped_embedding(self._shapes), self._selective, end=True)

    def output(self) -> BlockTime:
        """Time of final norm, output layer and loss."""
        operations = shaped_output(self._shapes, tied_elsewhere=self._layout.tied_across_stages)
        return self._block("output and loss", operations, self._selective, end=True)

    def multi_token_prediction(self) -> BlockTime:
        """Time of one multi-token-prediction layer."""
        last = self._job.model.layers[-1]
        operations = self._tuned(shaped_prediction(last, self._shapes), last)
        return self._block("multi-token prediction", operations, self._selective)

    def _tuned(self, operations: Operations, layer: DecoderLayer) -> Operations:
        """The operations at the figures that a person states."""
        return tuned(operations, layer, self._shapes, self._job.tuning, self._costs.device)

    def _block(self, name: str, operations: Operations, again: Again, *, end: bool = False) -> BlockTime:
        """A block with what full sharding adds to its passes; equal ones are one object."""
        key = id(operations), again
        if key not in self._blocks:
            block = timed(operations, self._costs, self._job.software, name, again)
            if self._layout.sharding is Sharding.PARAMETERS:
                gathered, scattered = self._weight_traffic(operations, block.forward.seconds, block.backward.seconds)
                forward, backward = block.forward.plus(gathered), block.backward_input.plus(scattered)
                # The host runs ahead while the device gathers, as it does while the device computes.
                block = block._replace(
                    forward=forward,
                    backward_input=backward,
                    forward_clocks=launched(0.0, gathered.seconds).then(block.forward_clocks),
                    backward_clocks=launched(0.0, scattered.seconds).then(block.backward_clocks),
                )
            block = block._replace(matrices=matrices_of(operations, self._job.optimizer))
            if self._job.software.overlap_expert_parallel and not end:
                seconds = block.forward.seconds, block.backward.seconds
                parts = layer_parts(operations, self._costs, self._job.software, *seconds)
                block = block._replace(layers=(parts,))
            # With what it was made of, so that no other operations get their identity meanwhile.
            self._blocks[key] = operations, block
        return self._blocks[key][1]

    def _weight_traffic(
        self, operations: Operations, forward_seconds: float, backward_seconds: float
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
