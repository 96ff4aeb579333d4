"""The project's own format is read strictly: every value has a source, and what is wrong is named with its place."""

import re
from dataclasses import fields

import pytest

from projector.cli.options import OPTIONS
from projector.config import Source, detect
from projector.config.own.schema import SPELLING, known_keys
from projector.errors import ConfigurationError, InputError, NotAvailable, PresetUnknown
from projector.job import (
    Attention,
    Batch,
    DenseMLP,
    ExpertDispatch,
    LowPrecision,
    Optimizer,
    Parallelism,
    Precision,
    RecomputeGranularity,
    Schedule,
    Sharding,
    Software,
)
from tests.cli.lines import understood
from tests.config.own.jobs import SMALL, WHOLE, load


def test_every_part_of_a_job_can_be_stated() -> None:
    loaded = load(WHOLE)
    job = loaded.job
    full, sliding = (Attention(heads=16, key_value_heads=4, head_dim=64, window=window) for window in (None, 512))
    assert [layer.mixer for layer in job.model.layers] == [full, *[sliding, full] * 3]
    assert job.model.layers[0].feed_forward == DenseMLP(ffn=4096)
    assert job.parallelism == Parallelism(tensor=2, sharding=Sharding.PARAMETERS)
    assert job.batch == Batch(micro=2, micro_batches=4, sequence_length=2048)
    assert job.precision == Precision(low_precision=LowPrecision.MXFP8)
    assert job.recompute.granularity is RecomputeGranularity.SELECTIVE
    assert job.recompute.modules == ("core_attn", "moe")
    assert job.schedule is Schedule.ZERO_BUBBLE
    assert (loaded.nodes, loaded.devices_per_node) == (2, 4)


def test_what_is_absent_takes_the_default_of_the_job_and_says_so() -> None:
    loaded = load(SMALL + "precision:\noptimizer: {}\n")
    assert (loaded.job.precision, loaded.job.optimizer, loaded.job.software) == (Precision(), Optimizer(), Software())
    shown = {key: value for key, value in loaded.values.items() if key.startswith("software.")}
    assert {key.partition(".")[2] for key in shown} == {field.name for field in fields(Software)}
    assert {value.source for value in shown.values()} == {Source.DEFAULT}


def test_every_value_names_who_decided_it() -> None:
    values = load(SMALL.replace("micro: 1", "micro: '${MICRO}'"), "parallelism.tensor=2", MICRO="4").values
    assert (values["batch.global"].value, values["batch.global"].source) == (8, Source.EXPERIMENT)
    assert (values["batch.micro"].value, values["batch.micro"].source) == (4, Source.VARIABLE)
    assert (values["parallelism.tensor"].value, values["parallelism.tensor"].source) == (2, Source.OVERRIDE)
    assert values["model.hidden"].source is Source.CATALOG
    assert values["model.hidden"].file == "catalog/models/llama3.1-8b.yaml"
    assert values["model.catalog"].file == "job.yaml"


def test_a_model_of_the_catalog_may_be_changed_value_by_value() -> None:
    text = SMALL.replace("llama3.1-8b}", "Meta-Llama/Llama-3.1-8B, name: mine, mixers: {attention: {window: 4096}}}")
    model = load(text, "model.vocabulary=32000", "model.layers=[[2, ['attention', 'dense']]]").job.model
    assert (model.name, model.vocabulary, len(model.layers)) == ("mine", 32000, 2)
    assert model.layers[0].mixer == Attention(heads=32, key_value_heads=8, head_dim=128, window=4096)


def test_what_the_catalog_is_unsure_of_is_said() -> None:
    (assumed,) = load(SMALL, "model.catalog=zebra-llama-1b").assumed
    assert assumed.what == "zebra-llama-1b as the catalog has it"
    assert assumed.why.endswith("not verified")


SPOILT: dict[str, tuple[str, str, str]] = {
    "unknown section": (
        "batch:",
        "btach: {}\nbatch:",
        "job.yaml: btach: is not a key of the format; did you mean batch",
    ),
    "unknown key": (
        "micro: 2,",
        "micor: 2,",
        "job.yaml: batch.micor: is not a key of the format; did you mean batch.mic",
    ),
    "field name for a key": (
        "micro_batches: 4",
        "global_: 4",
        "job.yaml: batch.global_: is not a key of the format; did",
    ),
    "unknown key of a block": (
        "window: 512",
        "windw: 512",
        "job.yaml: model.mixers.sliding.windw: is not a key of the f",
    ),
    "key of another kind": (
        "ffn: 4096",
        "heads: 1, ffn: 4096",
        "job.yaml: model.feed_forwards.dense.heads: is not a k",
    ),
    "unknown kind": (
        "kind: dense",
        "kind: dence",
        "job.yaml: model.feed_forwards.dense.kind: 'dence'; expected dense, e",
    ),
    "missing key": ("hidden: 1024", "", "job.yaml: model.hidden: is missing; expected int"),
    "missing section": ("precision", "# precision", ""),
    "text for a number": ("hidden: 1024", "hidden: many", "job.yaml: model.hidden: 'many'; expected int"),
    "number for a text": ("two kinds", "7", "job.yaml: model.name: 7; expected str"),
    "fraction": ("tensor: 2", "tensor: 2.5", "job.yaml: parallelism.tensor: 2.5; expected int"),
    "boolean for a number": ("tensor: 2", "tensor: yes", "job.yaml: parallelism.tensor: True; expected int"),
    "zero": ("tensor: 2", "tensor: 0", "job.yaml: parallelism.tensor: 0; expected an integer from 1 to 1000000000000"),
    "negative": ("hidden: 1024", "hidden: -1", "job.yaml: model.hidden: -1; expected an integer from 1 to 1000000000"),
    "huge": ("hidden: 1024", f"hidden: 1{'0' * 400}", "job.yaml: model.hidden: 1000000000"),
    "unknown choice": (
        "parameters}",
        "params}",
        "job.yaml: parallelism.sharding: 'params'; expected one of none, opti",
    ),
    "unknown schedule": ("zerobubble", "vpipe", "job.yaml: schedule: 'vpipe'; expected one of 1f1b, 1f1b-interleaved"),
    "unknown word": (
        "tensor: 2",
        "context_communication: ring",
        "job.yaml: parallelism.context_communication: 'ring'; ",
    ),
    "share above 1": (
        "recompute:",
        "optimizer: {offload_fraction: 1.5}\nrecompute:",
        "job.yaml: optimizer.offload_fra",
    ),
    "huge share": ("recompute:", f"optimizer: {{offload_fraction: {'9' * 400}}}\nrecompute:", "job.yaml: optimizer.of"),
    "not a number": (
        "recompute:",
        "optimizer: {offload_fraction: .nan}\nrecompute:",
        "job.yaml: optimizer.offload_fra",
    ),
    "value for a section": ("{low_precision: mxfp8}", "bf16", "job.yaml: precision: 'bf16' is not a mapping"),
    "mapping for a value": ("tensor: 2", "tensor: {size: 2}", "job.yaml: parallelism.tensor.size: is not a key of the"),
    "list of another type": ("[core_attn, moe]", "[1]", "job.yaml: recompute.modules: [1]; expected a list of str"),
    "unknown block": ("[full, dense]", "[fuller, dense]", "job.yaml: model.layers: [1, ['fuller', 'dense']]; expected"),
    "layers as a number": ("- [1, [full, dense]]", "- 7", "job.yaml: model.layers: 7; expected [times, [mixer, feed-"),
    "no times": ("- [1, [full, dense]]", "- [0, [full, dense]]", "job.yaml: model.layers: [0, ['full', 'dense']]; exp"),
    "times and nothing": ("- [1, [full, dense]]", "- [1]", "job.yaml: model.layers: [1]; expected [times, [mixer, fe"),
    "too many layers": (
        "- [1, [full",
        "- [1000000000, [full",
        "job.yaml: model.layers: [1000000000, ['full', 'dense']]",
    ),
    "too many predictions": (
        "hidden:",
        "multi_token_prediction_layers: 9999\n  hidden:",
        "job.yaml: model.multi_token",
    ),
    "block called none": ("full: {", "none: {", "job.yaml: model.mixers.none: is the name of a block; another name"),
    "no cluster": ("nodes: 2", "nodes: 0", "job.yaml: cluster.nodes: 0; expected an integer from 1"),
    "no batch": (
        "micro_batches: 4, ",
        "",
        "job.yaml: batch.global: is missing; sequences per iteration, or batch.micro",
    ),
    "newer version": ("projector: 1", "projector: 2", "job.yaml: projector: 2; 1, the version of the format that this"),
    "no version": ("projector: 1", "projector:", "job.yaml: projector: None; 1, the version of the format that this"),
    "true for the version": ("projector: 1", "projector: true", "job.yaml: projector: True; 1, the version"),
    "note without effect": (
        "schedule:",
        "unmodelled: [{what: a, where: b}]\nschedule:",
        "job.yaml: unmodelled[0].effec",
    ),
    "note that is none": ("schedule:", "unmodelled: [7]\nschedule:", "job.yaml: unmodelled[0]: 7 is not a mapping"),
    "notes that are none": ("schedule:", "assumed: much\nschedule:", "job.yaml: assumed: 'much'; expected a list"),
    "unset variable": ("tensor: 2", "tensor: '${TP}'", "job.yaml: parallelism.tensor: the variable TP is not set"),
    "unknown model": (
        "name: two kinds",
        "catalog: llama9",
        "job.yaml: model.catalog: the model 'llama9' is not in the",
    ),
    "model by number": (
        "name: two kinds",
        "catalog: 9",
        "job.yaml: model.catalog: 9; the name of a model of the catal",
    ),
}


@pytest.mark.parametrize(("old", "new", "wanted"), SPOILT.values(), ids=SPOILT.keys())
def test_what_is_wrong_is_one_line_that_names_the_place(old: str, new: str, wanted: str) -> None:
    text = WHOLE.replace(old, new)
    assert text != WHOLE
    if not wanted:
        load(text)
        return
    with pytest.raises(ConfigurationError) as refused:
        load(text)
    line = str(refused.value)
    assert line.startswith(wanted)
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ("parallelism.tensr=8", "override: 'parallelism.tensr' is not a value of this configuration; did you mean"),
        ("tensor_model_paralel_size=8", "did you mean tensor_model_parallel_size"),
        ("num_layers=8", "override: 'num_layers' is not a value of this configuration"),
        ("unmodelled=[]", "override: 'unmodelled' is not a value of this configuration"),
        ("parallelism.tensor=many", "override parallelism.tensor: 'many'; expected int"),
        ("tensor_model_parallel_size=0", "override parallelism.tensor: 0; expected an integer from 1"),
        ("parallelism=2", "override parallelism: 2 is not a mapping"),
        ("parallelism={'tensr': 2}", "override parallelism.tensr: is not a key of the format"),
        ("batch.micro_batches=null", "job.yaml: batch.global: is missing"),
    ],
)
def test_a_wrong_override_is_one_line(override: str, wanted: str) -> None:
    with pytest.raises(InputError, match=re.escape(wanted)):
        load(WHOLE, override)


def test_shared_names_mean_the_keys_of_the_format() -> None:
    assert set(SPELLING.values()) <= known_keys({})
    by_shared = load(WHOLE, "tensor_model_parallel_size=4", "global_batch_size=64", "seq_length=1024")
    by_own = load(WHOLE, "parallelism.tensor=4", "batch.global=64", "batch.sequence_length=1024")
    assert by_shared.job == by_own.job != load(WHOLE).job
    assert by_shared.spelling["seq_length"] == "batch.sequence_length"


@pytest.mark.parametrize(
    ("option", "value", "key", "wanted"),
    [
        ("--micro-batch-size", "4", "batch.micro", 4),
        ("--global-batch-size", "64", "batch.global", 64),
        ("--target-ep-size", "4", "parallelism.expert", 4),
        ("--num-virtual-stages-per-pipeline-rank", "2", "parallelism.virtual_pipeline", 2),
        ("--enable-zero-bubble", None, "schedule", Schedule.ZERO_BUBBLE),
        ("--enable-deepep", None, "software.expert_dispatch", ExpertDispatch.DEEPEP),
    ],
)
def test_batch_and_layout_options_work(option: str, value: str | None, key: str, wanted: object) -> None:
    said = understood("both", "--config", "job.yaml", option, *([] if value is None else [value]))
    loaded = load(SMALL, *(f"{name}={text}" for name, text in said.overrides.items()))
    assert loaded.values[key].value == wanted
    assert loaded.job != load(SMALL).job


def test_every_batch_and_layout_option_is_among_them_but_one_of_primus_turbo() -> None:
    mark = test_batch_and_layout_options_work.pytestmark[0]  # type: ignore[attr-defined]
    tried = {case[0] for case in mark.args[1]}
    assert {row.name for row in OPTIONS if row.group == "Batch and layout"} - tried == {"--sync-free-stage"}


def test_the_version_is_what_the_format_is_recognised_by() -> None:
    assert detect(SMALL, name="job.yaml") == "projector"
    assert load(SMALL).format == "projector"


def test_a_model_that_the_catalog_refuses_is_refused_with_its_reason() -> None:
    with pytest.raises(NotAvailable, match=r"override model\.catalog: the model 'dlrm' is a recommendation model"):
        load(SMALL, "model.catalog=dlrm")


def test_a_model_that_the_catalog_lacks_is_its_own_kind_of_error() -> None:
    with pytest.raises(PresetUnknown, match=r"job\.yaml: model\.catalog: the model 'llama-9'"):
        load(SMALL.replace("llama3.1-8b", "llama-9"))
