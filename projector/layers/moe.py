"""Mixture of experts: router, shared expert, dispatch, grouped GEMMs, combine.

What is kept follows Megatron-LM 23e00ed0 (token_dispatcher.py, moe_utils.py, experts.py) with Transformer Engine's
grouped linear layers. Rows are balanced over ranks times the routing factor; with a capacity factor every expert gets
its capacity, filled or not.
"""

from dataclasses import replace

from projector.job import DenseMLP, Dialect, ExpertBackend, ExpertDispatch, MixtureOfExperts
from projector.layers.dispatch import (
    combine_scratch,
    combined_tensors,
    dispatch_saves,
    dispatch_scratch,
    dispatched_tensors,
    expert_rows,
    has_static_arrivals,
    has_static_rows,
    sent_rows,
    token_visits,
)
from projector.layers.experts import expert_operations
from projector.layers.launches import dispatcher_launches, router_launches
from projector.layers.mlp import Branch, mlp_operations
from projector.layers.shapes import Shapes
from projector.operations import (
    Collective,
    CollectiveKind,
    ElementWise,
    Gemm,
    GemmLayout,
    Group,
    Operation,
    SavedTensor,
    Weight,
    Work,
)

PERMUTE_PASSES = {True: (4, 4), False: (12, 17)}
"""Passes over the dispatched bytes, forward and backward, of dispatch and combine together, by `permute_fusion`. Priors
counted on torch 2.x modules of Megatron-LM's form."""
_SHARED = Branch(prefix="mlp.shared_expert", component="shared_expert", module="shared_experts", lists_input=False)
ROUTER_BYTES = 8 + 2 + 2
"""Kept per token and expert: two fp32 softmaxes, two masks and bf16 probabilities (Megatron-LM moe_utils.py)."""
WIDER_BYTES = 2
"""More per token and expert where probabilities are fp32."""

WEIGHTED_BYTES = 4
"""Per element of a token's copy that is multiplied by its score in fp32."""


def moe_operations(moe: MixtureOfExperts, shapes: Shapes) -> tuple[Operation, ...]:
    """Operations from the router to the combined output; the norm in front lists its output."""
    rows = expert_rows(moe, shapes)
    return (
        _router(moe, shapes),
        *(_shared(moe, shapes) if moe.shared_ffn else ()),
        _dispatch(moe, rows, shapes),
        *expert_operations(moe, rows, shapes),
        _combine(moe, rows, shapes),
    )


def _router(moe: MixtureOfExperts, shapes: Shapes) -> Operation:
    logits = shapes.local * moe.experts
    kept = logits * (ROUTER_BYTES + (WIDER_BYTES if shapes.software.router_in_fp32 else 0))
    elements = moe.experts * shapes.hidden
    weights = [Weight(name="router.weight", shape=(moe.experts, shapes.hidden), full_elements=elements)]
    if moe.router_bias:
        weights.append(Weight(name="router.bias", shape=(moe.experts,), full_elements=moe.experts))
    if moe.router_balance_bias:
        weights.append(
            Weight(name="router.expert_bias", shape=(moe.experts,), full_elements=moe.experts, trainable=False)
        )
    launches = router_launches(moe, shapes.software)
    probabilities = ElementWise(
        name="router",
        bytes_read=12 * logits,
        bytes_written=ROUTER_BYTES * logits,
        kernels=launches.forward - 1,
        functions=launches.functions,
    )
    backward = ElementWise(
        name="router_backward",
        bytes_read=12 * logits,
        bytes_written=8 * logits,
        kernels=launches.backward - 2,
        functions=launches.functions,
    )
    gemm = Gemm(m=shapes.local, n=moe.experts, k=shapes.hidden, output_bytes=4)
    return Operation(
        name="mlp.router",
        component="router",
        forward=(gemm, probabilities),
        backward_input=(backward, Gemm(m=shapes.local, n=shapes.hidden, k=moe.experts, layout=GemmLayout.NN)),
        backward_weight=(Gemm(m=moe.experts, n=shapes.hidden, k=shapes.local, output_bytes=4, layout=GemmLayout.NT),),
        weights=tuple(weights),
        saves=(SavedTensor(name="probabilities", size_bytes=kept),),
        scratch_forward_bytes=8 * logits,
        scratch_backward_bytes=2 * shapes.residual_bytes + 8 * logits,
        recompute_module="moe",
    )


def _shared(moe: MixtureOfExperts, shapes: Shapes) -> tuple[Operation, ...]:
    """The shared expert: a dense block on the same input, with an optional sigmoid gate."""
    block = mlp_operations(
        DenseMLP(ffn=moe.shared_ffn, gated=moe.gated, bias=moe.bias),
        shapes,
        _SHARED,
    )
    if not moe.shared_gate:
        return block
    size = shapes.residual_bytes
    gate = Operation(
        name="mlp.shared_expert.gate",
        component="shared_expert",
        forward=(
            Gemm(m=shapes.local, n=1, k=shapes.hidden),
            ElementWise(name="gate", bytes_read=size, bytes_written=size, kernels=2),
        ),
        backward_input=(ElementWise(name="gate_backward", bytes_read=2 * size, bytes_written=size, kernels=3),),
        backward_weight=(Gemm(m=1, n=shapes.hidden, k=shapes.local, output_bytes=4, layout=GemmLayout.NT),),
        weights=(Weight(name="shared_expert.gate_weight", shape=(1, shapes.hidden), full_elements=shapes.hidden),),
        saves=(SavedTensor(name="before_gate", size_bytes=size),),
        scratch_forward_bytes=size,
        scratch_backward_bytes=3 * size,
        recompute_module="shared_experts",
    )
    return (*block, gate)


def _dispatched_bytes(moe: MixtureOfExperts, shapes: Shapes) -> int:
    """Bytes of the token copies that one rank sends to experts."""
    return shapes.element * shapes.hidden * shapes.local * moe.top_k


def _travel(moe: MixtureOfExperts, shapes: Shapes, *, back: bool) -> tuple[Work, ...]:
    """Collectives of dispatch, or of the way `back` in combine."""
    work: list[Work] = []
    if shapes.expert > 1:
        work.append(_expert_collective(moe, shapes, back=back))
    if shapes.expert_tensor > 1:
        kind = CollectiveKind.REDUCE_SCATTER if back else CollectiveKind.ALL_GATHER
        message = _dispatched_bytes(moe, shapes) * shapes.expert_tensor
        work.append(Collective(kind=kind, group=Group.EXPERT_TENSOR, message_bytes=message))
    return tuple(reversed(work)) if back else tuple(work)


def _expert_collective(moe: MixtureOfExperts, shapes: Shapes, *, back: bool) -> Collective:
    """DeepEP sends a token once to each rank that needs it, and once to each node on the network.

    All ranks wait for the busiest one, which receives more rows than its share.
    """
    match shapes.software.expert_dispatch:
        case ExpertDispatch.ALL_GATHER:
            kind = CollectiveKind.REDUCE_SCATTER if back else CollectiveKind.ALL_GATHER
            return Collective(kind=kind, group=Group.EXPERT, message_bytes=shapes.residual_bytes * shapes.expert)
        case ExpertDispatch.DEEPEP | ExpertDispatch.HYBRIDEP:
            visits = token_visits(moe, round(shapes.residual_bytes * shapes.routing_factor))
            message = round(visits.token_bytes * visits.places(shapes.expert))
            exchange = CollectiveKind.ALL_TO_ALL
            return Collective(kind=exchange, group=Group.EXPERT, message_bytes=message, visits=visits)
    sent = round(_dispatched_bytes(moe, shapes) * shapes.routing_factor)
    return Collective(kind=CollectiveKind.ALL_TO_ALL, group=Group.EXPERT, message_bytes=sent)


def _permutation(moe: MixtureOfExperts, shapes: Shapes, *, back: bool, backward: bool) -> ElementWise:
    """One of the two permutations, of dispatch or `back` in combine: half of their passes and launches."""
    fused = shapes.software.permute_fusion
    passes = PERMUTE_PASSES[fused][backward]
    launches = dispatcher_launches(shapes.software)
    kernels, functions = launches.backward if backward else launches.forward
    moved = _dispatched_bytes(moe, shapes) * passes // 4
    return ElementWise(
        name="permute",
        bytes_read=moved,
        bytes_written=moved,
        kernels=kernels // 2 if back else kernels - kernels // 2,
        functions=functions // 2 if back else functions - functions // 2,
    )


def _readbacks(shapes: Shapes) -> int:
    """Times that the host waits for numbers of tokens: never where they are known, or there is room for all.

    With room for all arrivals alone, it waits for the number of rows that the permutation makes of them (AMD-AGI/
    Primus-Turbo token_dispatcher.py `permute_max_token_num`).
    """
    software = shapes.software
    if software.pads_experts or has_static_rows(software, shapes.expert):
        return 0
    return 1 if has_static_arrivals(software, shapes.expert) else dispatcher_launches(software).readbacks


def _dispatch(moe: MixtureOfExperts, rows: int, shapes: Shapes) -> Operation:
    """Sort tokens by expert and send them; keeps row maps and probabilities."""
    received = shapes.element * shapes.hidden * rows
    scratch = dispatch_scratch(moe, rows, shapes)
    saves = [*dispatch_saves(moe, rows, shapes)]
    software = shapes.software
    # With Turbo's grouped GEMM nothing of it stays (AMD-AGI/Primus, raw log of DeepSeek-V2-Lite).
    copied = software.dialect is Dialect.PRIMUS_TURBO and software.expert_backend is not ExpertBackend.GROUPED_FUSED
    if copied and not software.permute_fusion and software.expert_dispatch is ExpertDispatch.ALL_TO_ALL:
        saves.append(SavedTensor(name="permuted_tokens", size_bytes=_dispatched_bytes(moe, shapes)))
    sorting = replace(_permutation(moe, shapes, back=False, backward=False), readbacks=_readbacks(shapes))
    return Operation(
        name="mlp.dispatch",
        component="router",
        forward=(sorting, *_travel(moe, shapes, back=False)),
        backward_input=(*_travel(moe, shapes, back=True), _permutation(moe, shapes, back=False, backward=True)),
        saves=tuple(saves),
        scratch_forward_bytes=scratch.forward,
        scratch_tensors=dispatched_tensors(moe, rows, shapes),
        scratch_backward_bytes=scratch.backward,
        costly_bytes=received if shapes.expert > 1 else 0,
        recompute_module="moe",
    )


def _combine(moe: MixtureOfExperts, rows: int, shapes: Shapes) -> Operation:
    """Send expert outputs back and add them up: the peak of most jobs with experts."""
    received = shapes.element * shapes.hidden * rows
    scratch = combine_scratch(moe, rows, shapes)
    return Operation(
        name="mlp.combine",
        component="router",
        saves=_weighted(moe, shapes),
        forward=(*_travel(moe, shapes, back=True), _permutation(moe, shapes, back=True, backward=False)),
        backward_input=(_permutation(moe, shapes, back=True, backward=True), *_travel(moe, shapes, back=False)),
        costly_bytes=received if shapes.expert > 1 else 0,
        scratch_forward_bytes=scratch.forward,
        scratch_tensors=combined_tensors(moe, rows, shapes),
        scratch_backward_bytes=scratch.backward,
        recompute_module="moe",
    )


def _weighted(moe: MixtureOfExperts, shapes: Shapes) -> tuple[SavedTensor, ...]:
    """What the product of tokens with their routers' scores keeps outside the experts.

    Megatron-Core kept the outputs that came back until 0.12, from when on the product lies inside (token_dispatcher.py
    of 0.11.0 and 0.12.1). Eager TorchTitan multiplies copies of the tokens in fp32 (torchtitan/models/moe/moe.py
    `score_before_experts`, on either side of the experts); where that part is compiled, it keeps the 16-bit tensors
    that it makes them from.
    """
    if shapes.software.dialect is not Dialect.TORCHTITAN:
        if not shapes.software.probabilities_after_experts:
            return ()
        size = shapes.element * shapes.hidden * sent_rows(moe, shapes)
        return (SavedTensor(name="unweighted_outputs", size_bytes=size),)
    stepwise = shapes.eager or not shapes.software.compiled_dispatch
    each = WEIGHTED_BYTES if stepwise else shapes.element
    return (SavedTensor(name="weighted_tokens", size_bytes=each * shapes.hidden * shapes.local * moe.top_k),)
