"""The door to Megatron-LM's own configurations: an argument list, a launch script, or a mapping of arguments."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from projector.config.allocator_settings import stated as stated_settings
from projector.config.cluster import Cluster, of_devices
from projector.config.detection import SCRIPT_HEADS
from projector.config.document import Document
from projector.config.launching import Launch, note_launch, refuse_difference
from projector.config.megatron.argument_list import parse
from projector.config.megatron.beside import read_beside, started_script
from projector.config.megatron.facts import megatron_facts
from projector.config.megatron.flags import keys_of_flags
from projector.config.megatron.former import note_contradictions, other_names, settle, version_defaults
from projector.config.megatron.gaps import note_gaps
from projector.config.megatron.job import Arguments, load
from projector.config.megatron.launch import launches
from projector.config.megatron.mapping import collect, environment_section
from projector.config.megatron.overriding import override, refuse_variables
from projector.config.megatron.values import Collected
from projector.config.notes import Notes
from projector.config.safe_json import parse_json_or_yaml
from projector.config.shell import Script, read_script
from projector.errors import ConfigurationError, ConfigurationTooLarge, NotAvailable, shown
from projector.job.limits import MAXIMUM_INTEGER
from projector.provenance import LoadedConfiguration

_OTHER_MODELS = (
    *("bert", "t5", "ict", "retro", "vision", "vlm", "multimodal", "realm", "dino", "mimo", "llava"),
    *("diffusion", "biencoder", "orqa"),
)
"""Words in the name of a program that trains something else than a decoder-only language model."""
_NO_TRAINING = (
    *("server", "generation", "generate", "inference", "convert", "preprocess", "checkpoint", "evaluate", "eval"),
    *("ptq", "export"),
)
"""Words in the name of a program that does not train."""
_TELLING_FOLDERS = frozenset({"multimodal", "mimo", "inference", "checkpoint", "retro", "bert", "t5", "tasks"})
"""Folders of NVIDIA/Megatron-LM, under `examples` and `tools`, whose programs have names without such a word."""
_OTHER_METHODS = ("rl", "rlhf", "ppo", "grpo", "dpo", "kto", "orpo", "distill", "actor", "critic", "reward")
"""Words in the name of a program that keeps more than one model, or generates in between."""
_TRAINING = ("pretrain", "train", "finetune", "sft", "main", "run")
"""Words in the name of a program that trains the model of its arguments."""
_HYBRID_MODELS = ("mamba", "hybrid")
"""Words in the name of a program whose layers are hybrid even where no pattern says so."""


def read(document: Document) -> LoadedConfiguration:
    """Read a configuration of Megatron-LM; raises `ConfigurationError` and its children, `LayoutImpossible`."""
    notes = Notes()
    content = _mapping(document)
    others: tuple[str, ...] = ()
    cluster, program, script = Cluster(), "", None
    beside = read_beside(document.companions, document.variables, main=document.name)
    environment: dict[str, object] = {**beside.variables}
    if content is None:
        given = {**beside.positional, **beside.variables, **document.variables}
        script = read_script(document.text, name=document.name, variables=given)
        refuse_variables(document.overrides, {*script.assignments, *script.taken_as_unset})
        launch, arguments = _from_script(script, document.name, notes)
        cluster, program = launch.cluster, launch.program
        environment |= {key: word.text for key, word in launch.environment.items()}
    else:
        variables = {**beside.variables, **document.variables}
        arguments, others = collect(content, name=document.name, variables=variables)
        cluster = beside.cluster
        environment |= environment_section(content)
    if beside.arguments is not None:
        arguments.add(beside.arguments)
    stated = dict(arguments.values)
    settle(arguments)
    override(arguments, document.overrides)
    settle(arguments)
    note_contradictions(arguments.values, notes)
    note_gaps(arguments.gaps, script, notes)
    _note_words(arguments, notes)
    loaded = load(
        Arguments(
            values=arguments.values,
            file=document.name,
            model=PurePosixPath(document.name).stem or "model",
            others=others,
            known=frozenset({*keys_of_flags(), *other_names()}),
            stock=True,
            defaults={
                **_program_defaults(program, arguments),
                **version_defaults({**stated, **arguments.values}, notes),
            },
            unusable=arguments.unusable,
        ),
        format_="megatron",
    )
    loaded = replace(loaded, environment=stated_settings(environment, file=document.name))
    return _with_cluster(loaded, cluster if cluster != Cluster() else _recorded(arguments, notes), notes)


def _mapping(document: Document) -> Mapping[str, object] | None:
    """The mapping that the text holds, None for a script or an argument list."""
    text = document.text
    if text.lstrip().startswith(SCRIPT_HEADS):
        return None
    try:
        return parse_json_or_yaml(text, name=document.name)
    except ConfigurationTooLarge:
        raise
    except ConfigurationError:
        if "--" not in text:
            raise
        return None


def _from_script(script: Script, name: str, notes: Notes) -> tuple[Launch, Collected]:
    """The launch that trains, and its arguments; raises `ConfigurationError` when there is none or several differ."""
    found = launches(script)
    if not found:
        expected = "a command such as torchrun ... pretrain_gpt.py --num-layers 32 ..., or a list of such arguments"
        if inner := started_script(script):
            expected = f"the script that it starts, with this one beside it: --config {inner} --with {name}"
        raise ConfigurationError("nothing here starts Megatron-LM", place=name, expected=expected)
    parsed = [(launch, parse(launch.words, name=name, reasons=script.reasons)) for launch in found]
    whole = [pair for pair in parsed if _states_model(pair[1])] or parsed
    launch, arguments = whole[0]
    for other, its in whole[1:]:
        compared = (launch, arguments.values), (other, its.values)
        refuse_difference(*compared, ignored=megatron_facts().ignored, name=name)
    _refuse_program(launch, name)
    _note_program(launch, name, notes)
    note_launch(script, launch, notes)
    return launch, arguments


def _states_model(arguments: Collected) -> bool:
    return any(key in arguments.values for key in ("num_layers", "encoder_num_layers", "hybrid_layer_pattern"))


def _refuse_program(launch: Launch, name: str) -> None:
    path = PurePosixPath(launch.program)
    words = set(path.stem.lower().replace("-", "_").split("_"))
    if not words & {"pretrain", "gpt"}:
        words |= _TELLING_FOLDERS.intersection(path.parent.parts[-1:])
    shown_ = "/".join(path.parts[-2:]) if words & _TELLING_FOLDERS else path.name
    message = ""
    if not words.isdisjoint(_NO_TRAINING):
        message = f"{shown_} does not train"
    elif not words.isdisjoint((*_OTHER_MODELS, *_TELLING_FOLDERS)):
        message = f"{shown_} trains no decoder-only language model"
    if message:
        raise NotAvailable(message, place=f"{name}:{launch.line}", expected="pretrain_gpt.py or another decoder")


def _note_program(launch: Launch, name: str, notes: Notes) -> None:
    """Say what a program of an unknown name, or of another way to train, may do beside what is counted."""
    stem = PurePosixPath(launch.program).stem.lower()
    words = set(stem.replace("-", "_").split("_"))
    method = words.intersection(_OTHER_METHODS)
    if not stem or (words.intersection(_TRAINING) and not method):
        return
    effect = "further models, or generation between steps, are not counted" if method else "it counts as pretraining"
    what = f"the program {PurePosixPath(launch.program).name}"
    notes.not_modelled(what, where=f"{name}:{launch.line}", effect=effect, decides=bool(method))


def _program_defaults(program: str, arguments: Collected) -> dict[str, object]:
    """What the program itself decides: a Mamba model has Mamba layers even where no pattern says so."""
    hybrid = any(word in PurePosixPath(program).name.lower() for word in _HYBRID_MODELS)
    stated = any(key in arguments.values for key in ("hybrid_layer_pattern", "hybrid_override_pattern"))
    return {"model_type": "mamba"} if hybrid and not stated else {}


def _note_words(arguments: Collected, notes: Notes) -> None:
    for text, place in arguments.stray:
        notes.not_modelled(
            shown(text), where=place, effect="it belongs to no argument; it has no influence here", decides=False
        )


def _recorded(arguments: Collected, notes: Notes) -> Cluster:
    """The cluster of a run that wrote its arguments down: `world_size`."""
    stated = arguments.values.get("world_size")
    size = stated.value if stated is not None else None
    if isinstance(size, str) and size.isascii() and size.isdigit() and len(size) <= len(str(MAXIMUM_INTEGER)):
        size = int(size)
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        return Cluster()
    return of_devices(size, notes, why="world_size says how many, and nothing how many of them a host has")


def _with_cluster(loaded: LoadedConfiguration, cluster: Cluster, notes: Notes) -> LoadedConfiguration:
    return replace(
        loaded,
        nodes=cluster.nodes,
        devices_per_node=cluster.devices_per_node,
        cluster_hint=cluster.hint,
        assumed=(*notes.assumed, *loaded.assumed),
        unmodelled=(*notes.unmodelled, *loaded.unmodelled),
    )
