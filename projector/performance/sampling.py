"""A model whose layers all attend as a few of them do, for a time that rests on a sample of its layers.

Primus's projection runs the first layers alone and takes them for the rest (AMD-AGI/Primus
primus/core/projection/performance_projection/projection.py `_limit_layers_for_projection`): the mean of the sample, as
layers in turn give it here. Feed-forward blocks stay: a sample holds both kinds there.
"""

from dataclasses import replace
from itertools import cycle, islice

from projector.errors import ConfigurationError
from projector.job import Attention, DecoderLayer, Mixer, ModelArchitecture, TrainingJob

PLACE = "tuning.sampled_ratios"
"""Where messages say that compression ratios are wrong."""


def sampled(job: TrainingJob) -> TrainingJob:
    """The job whose layers attend in turn like those of its sample; itself where it has none.

    Raises `ConfigurationError` for a compression ratio that no layer of the model has, and for no layers.
    """
    tuning = job.tuning
    if tuning is None or tuning.sampled_layers is None or not attends_in_several_ways(job.model):
        return job
    if tuning.sampled_layers < 1:
        message, place = f"{tuning.sampled_layers}", "tuning.sampled_layers"
        raise ConfigurationError(message, place=place, expected="a number of layers from 1")
    count = min(tuning.sampled_layers, len(job.model.layers))
    found = [layer.mixer for layer in job.model.layers[:count]]
    if tuning.sampled_ratios and has_ratios(job.model):
        found = [_of_ratio(job.model, ratio) for ratio in tuning.sampled_ratios[:count]]
    turns = islice(cycle(found), len(job.model.layers))
    kinds: dict[DecoderLayer, DecoderLayer] = {}
    layers = [replace(layer, mixer=mixer) for layer, mixer in zip(job.model.layers, turns, strict=True)]
    return replace(job, model=replace(job.model, layers=tuple(kinds.setdefault(layer, layer) for layer in layers)))


def attends_in_several_ways(model: ModelArchitecture) -> bool:
    """Whether a sample may differ from the whole: every layer has attention, and not all have the same."""
    mixers = {layer.mixer for layer in model.distinct_layers}
    return len(mixers) > 1 and None not in mixers


def has_ratios(model: ModelArchitecture) -> bool:
    """Whether the model's layers have compression ratios."""
    return any(isinstance(layer.mixer, Attention) and layer.mixer.shared_key_value for layer in model.distinct_layers)


def _of_ratio(model: ModelArchitecture, ratio: int) -> Mixer:
    known = {
        layer.mixer.compression_ratio or 0: layer.mixer
        for layer in model.distinct_layers
        if isinstance(layer.mixer, Attention)
    }
    if ratio in known:
        return known[ratio]
    if ratio == 0:
        plain = next(iter(known.values()))
        return replace(plain, compression_ratio=None, index_heads=0, index_head_dim=0, index_top_k=0)
    expected = f"ratios of its layers: {', '.join(map(str, sorted({0, *known})))}"
    raise ConfigurationError(f"no layer has the compression ratio {ratio}", place=PLACE, expected=expected)
