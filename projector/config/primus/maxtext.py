"""A Primus module of the framework `maxtext` -> job: its values are the keys of MaxText's own configuration.

Defaults are those of MaxText's base.yml, which the run loads below the module's values (AMD-AGI/Primus fd1eeabb
primus/configs/modules/maxtext/trainer_base.yaml; AI-Hypercomputer/maxtext 0.2.5 src/maxtext/configs/base.yml).

MaxText compiles the whole step with XLA, whose plan of buffers and fusions is none that the engine knows: parameters,
layout and batch are the run's, memory and time are those of the same layout in PyTorch, and there is no verdict.
"""

from dataclasses import replace

from projector.config.document import Document
from projector.config.element_types import ELEMENT_BYTES
from projector.config.keys import Keys
from projector.config.notes import Notes
from projector.config.optimizers import OptimizerRule, optimizers
from projector.config.overriding import overridden
from projector.config.primus.experiment import Module, nulls
from projector.config.primus.facts import framework_facts, framework_values
from projector.config.primus.maxtext_mesh import Mesh, mesh, pipeline_micro_batches, pipeline_repeats
from projector.config.primus.maxtext_model import described_by, named
from projector.config.shared_names import in_own_words
from projector.config.switches import left_over, note_switches
from projector.config.tree import flatten
from projector.errors import ConfigurationError
from projector.job import (
    Batch,
    CrossEntropy,
    Dialect,
    ExpertBackend,
    LowPrecision,
    ModelArchitecture,
    Optimizer,
    Parallelism,
    Precision,
    Recompute,
    RecomputeGranularity,
    RecomputeMethod,
    Sharding,
    Software,
    TrainingJob,
)
from projector.job.limits import MAXIMUM_INTEGER, MAXIMUM_LAYERS
from projector.provenance import LoadedConfiguration

SPELLING = {
    "seq_length": "max_target_length",
    "tensor_model_parallel_size": "ici_tensor_parallelism",
    "pipeline_model_parallel_size": "ici_pipeline_parallelism",
    "expert_model_parallel_size": "ici_expert_parallelism",
    "context_parallel_size": "ici_context_parallelism",
}
"""Shared names in MaxText's keys. `per_device_batch_size` is no micro batch: it counts per GPU, not per replica."""
_TYPES = ("float32", "bfloat16", "float16")
"""Types of what is stored, by JAX's names."""
_QUANTIZATIONS = {
    "fp8": LowPrecision.FP8,
    "fp8_gpu": LowPrecision.FP8,
    "fp8_full": LowPrecision.FP8,
    "fp8_nanoo": LowPrecision.FP8,
    "nanoo_fp8": LowPrecision.FP8,
    "te_fp8_delayedscaling": LowPrecision.FP8,
    "te_fp8_currentscaling": LowPrecision.FP8,
    "te_mxfp8": LowPrecision.MXFP8,
    "te_nvfp4": LowPrecision.NVFP4,
}
_POLICIES = {"full": True, "none": False}
"""`remat_policy` values whose meaning the engine has: everything is computed again, or nothing."""


def load(module: Module, document: Document) -> LoadedConfiguration:
    """Map a resolved module with the document's overrides on top; raises what a reader raises."""
    known = framework_facts("maxtext").known
    overrides = in_own_words(document.overrides, SPELLING)
    values = flatten(nulls(overridden(module.tree, overrides, known=known)))
    name = Keys(values).text("model_name", "default")
    keys, notes = (
        Keys({**framework_values("maxtext", framework_facts("maxtext").named.get(name, {})), **values}),
        Notes(),
    )
    notes.not_modelled(
        "MaxText, which XLA compiles",
        where=f"{module.place}.framework",
        effect="memory and time are those of the same layout in PyTorch",
        decides=True,
    )
    model = _model(keys)
    axes = mesh(keys, notes)
    job = TrainingJob(
        model=model,
        parallelism=_parallelism(keys, axes, model),
        batch=_batch(keys, axes),
        precision=_precision(keys, notes),
        optimizer=_optimizer(keys),
        recompute=_recompute(keys, notes),
        software=_software(keys, notes),
    )
    note_switches(keys, notes, framework_facts("maxtext").unmodelled)
    ignored = left_over(keys, notes, known=known, file=document.name)
    return LoadedConfiguration(
        job=job,
        format="primus",
        nodes=axes.nodes,
        devices_per_node=axes.devices_per_node,
        spelling=SPELLING,
        values=dict(sorted(keys.values.items())),
        ignored=(*ignored, *module.others),
        assumed=tuple(notes.assumed),
        unmodelled=tuple(notes.unmodelled),
    )


def _model(keys: Keys) -> ModelArchitecture:
    name = keys.text("model_name", "default")
    keys.raw("model")
    scale = keys.integer("global_parameter_scale", 1)
    if scale != 1:
        message = f"a model scaled by {scale} cannot be read"
        expected = "1, and the sizes themselves in base_emb_dim and its kin"
        raise ConfigurationError(message, place=keys.place("global_parameter_scale"), expected=expected)
    if name == "default":
        model = described_by(keys, name=keys.text("model", "default"))
    else:
        model = named(name, keys, names=framework_facts("maxtext").architectures)
    return replace(model, multi_token_prediction_layers=keys.integer("mtp_num_layers", 0, maximum=MAXIMUM_LAYERS))


def _parallelism(keys: Keys, axes: Mesh, model: ModelArchitecture) -> Parallelism:
    strategy = keys.choice("context_parallel_strategy", "all_gather", ("all_gather", "ring"))
    sharded = axes.shard != 1
    return Parallelism(
        tensor=axes.tensor,
        pipeline=axes.pipeline,
        virtual_pipeline=pipeline_repeats(keys, axes, layers=len(model.layers)),
        expert=axes.expert if model.expert_blocks else 1,
        expert_tensor=axes.tensor,
        context=axes.context,
        sequence_parallel=False,
        spread_remainder=False,
        sharding=Sharding.PARAMETERS if sharded else Sharding.NONE,
        shard_degree=axes.shard if sharded else None,
        context_communication="p2p" if strategy == "ring" else strategy,
    )


def _batch(keys: Keys, axes: Mesh) -> Batch:
    """`per_device_batch_size` counts each GPU once; the GPUs of a replica share its batch, in micro batches."""
    key = "per_device_batch_size"
    per_device = keys.number(key, 12.0)
    micro_batches = pipeline_micro_batches(keys, axes)
    replica = axes.tensor * axes.pipeline * axes.context
    micro = per_device * replica / micro_batches
    if not 1 <= micro <= MAXIMUM_INTEGER or micro != int(micro):
        message = (
            f"{per_device:g} x {replica} GPUs of a replica are no whole micro batches ({micro_batches} an iteration)"
        )
        raise ConfigurationError(message, place=keys.place(key), expected="a batch that divides")
    accumulated = keys.integer("gradient_accumulation_steps", 1, minimum=1)
    length = keys.integer("max_target_length", 2048, minimum=1)
    return Batch(micro=int(micro), sequence_length=length, micro_batches=micro_batches * accumulated)


def _precision(keys: Keys, notes: Notes) -> Precision:
    """The optimizer updates the weights themselves, in their own width; moments inherit it (optax).

    `sgd` is without momentum (src/maxtext/optimizers/optimizers.py: `optax.sgd` with a learning rate alone).
    """
    weight = _element_bytes(keys, "weight_dtype", "float32")
    stated = keys.text("mu_dtype") or None
    mean = weight if stated is None else _element_bytes(keys, "mu_dtype", stated)
    first, second = _rule(keys).moments(mean, weight)
    return Precision(
        weight_bytes=weight,
        gradient_bytes=_element_bytes(keys, "grad_dtype", "float32"),
        master_weight_bytes=0,
        first_moment_bytes=first,
        second_moment_bytes=second,
        activation_bytes=_element_bytes(keys, "dtype", "bfloat16"),
        low_precision=_low_precision(keys, notes),
    )


def _element_bytes(keys: Keys, key: str, default: str) -> int:
    return ELEMENT_BYTES[keys.choice(key, default, _TYPES)]


def _low_precision(keys: Keys, notes: Notes) -> LowPrecision | None:
    name = keys.text("quantization") or ""
    if name and name not in _QUANTIZATIONS:
        notes.not_modelled(
            f"quantization {name}",
            where=keys.place("quantization"),
            effect="GEMMs are counted in the type of the activations",
            decides=True,
        )
    return _QUANTIZATIONS.get(name)


def _rule(keys: Keys) -> OptimizerRule:
    known = optimizers("maxtext")
    return known[keys.choice("opt_type", "adamw", known)]


def _optimizer(keys: Keys) -> Optimizer:
    """The update rule and where its state lives; the parameters that Muon leaves to Adam inherit their width too."""
    weight = _element_bytes(keys, "weight_dtype", "float32")
    offloaded = keys.boolean("optimizer_memory_host_offload")
    return replace(
        _rule(keys).optimizer,
        exempt_first_bytes=float(weight),
        exempt_second_bytes=float(weight),
        offload_fraction=1.0 if offloaded else 0.0,
    )


def _recompute(keys: Keys, notes: Notes) -> Recompute:
    policy = keys.text("remat_policy", "full")
    if policy not in _POLICIES:
        notes.not_modelled(
            f"the rematerialisation policy {policy}",
            where=keys.place("remat_policy"),
            effect="activations are counted as if nothing were computed again",
            decides=True,
        )
    if not _POLICIES.get(policy, False):
        return Recompute()
    return Recompute(granularity=RecomputeGranularity.FULL, method=RecomputeMethod.UNIFORM, layers=1)


def _software(keys: Keys, notes: Notes) -> Software:
    tiles = keys.integer("num_vocab_tiling", 1, minimum=1)
    if tiles > 1:
        notes.not_modelled(
            f"the loss over {tiles} tiles of the tokens, one after the other",
            where=keys.place("num_vocab_tiling"),
            effect="a fused loss that keeps no logits is counted",
            decides=True,
        )
    capacity = keys.number("capacity_factor", minimum=-1.0)
    attention = keys.text("attention", "autoselected")
    return Software(
        dialect=Dialect.TORCHTITAN,
        compiled_layers=True,
        flash_attention=attention != "dot_product",
        cross_entropy=CrossEntropy.LINEAR_FUSED if tiles > 1 else CrossEntropy.UNFUSED,
        gradient_accumulation_fusion=False,
        overlap_gradient_reduce=True,
        overlap_parameter_gather=True,
        expert_backend=ExpertBackend.GROUPED_FUSED,
        expert_capacity_factor=capacity if capacity is not None and capacity > 0 else None,
        vocabulary_divisible_by=1,
    )
