"""The door to Megatron-LM's own configurations: an argument list, a launch script, or a mapping of arguments."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from projector.config.detection import SCRIPT_HEADS
from projector.config.document import Document
from projector.config.megatron.argument_list import parse
from projector.config.megatron.beside import read_beside
from projector.config.megatron.facts import megatron_facts
from projector.config.megatron.flags import keys_of_flags
from projector.config.megatron.former import settle, version_defaults
from projector.config.megatron.job import Arguments, load
from projector.config.megatron.launch import Cluster, Launch, launches
from projector.config.megatron.mapping import collect
from projector.config.megatron.overriding import override, refuse_variables
from projector.config.megatron.values import Collected
from projector.config.notes import Notes
from projector.config.safe_json import parse_json_or_yaml
from projector.config.shell import Script, read_script
from projector.errors import ConfigurationError, ConfigurationTooLarge, NotAvailable, shown
from projector.provenance import LoadedConfiguration

_OTHER_MODELS = ("bert", "t5", "ict", "retro", "vision", "vlm", "multimodal", "realm", "dino", "mimo")
"""Words in the name of a program that trains something else than a decoder-only language model."""
_HYBRID_MODELS = ("mamba", "hybrid")
"""Words in the name of a program whose layers are hybrid even where no pattern says so."""
_NAMED = 20
"""How many variables that nothing gives are named."""


def read(document: Document) -> LoadedConfiguration:
    """Read a configuration of Megatron-LM; raises `ConfigurationError` and its children, `LayoutImpossible`."""
    notes = Notes()
    content = _mapping(document)
    others: tuple[str, ...] = ()
    cluster, program = Cluster(), ""
    if content is None:
        script = read_script(document.text, name=document.name, variables=document.variables)
        refuse_variables(document.overrides, {*script.assignments, *script.taken_as_unset})
        launch, arguments = _from_script(script, document.name, notes)
        cluster, program = launch.cluster, launch.program
    else:
        beside = read_beside(document.companions, document.variables)
        variables = {**beside.variables, **document.variables}
        arguments, others = collect(content, name=document.name, variables=variables)
        cluster = beside.cluster
        if beside.arguments is not None:
            arguments.add(beside.arguments)
    settle(arguments)
    override(arguments, document.overrides)
    settle(arguments)
    _note_words(arguments, notes)
    loaded = load(
        Arguments(
            values=arguments.values,
            file=document.name,
            model=PurePosixPath(document.name).stem or "model",
            others=others,
            known=frozenset(keys_of_flags()),
            stock=True,
            defaults={**_program_defaults(program, arguments), **version_defaults(arguments.values, notes)},
            unusable=arguments.unusable,
        ),
        format_="megatron",
    )
    return _with_cluster(loaded, cluster if cluster != Cluster() else _recorded(arguments), notes)


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
        raise ConfigurationError("nothing here starts Megatron-LM", place=name, expected=expected)
    parsed = [(launch, parse(launch.words, name=name, reasons=script.reasons)) for launch in found]
    whole = [pair for pair in parsed if _states_model(pair[1])] or parsed
    launch, arguments = whole[0]
    for other, its in whole[1:]:
        _refuse_difference(launch, arguments, other, its, name)
    _refuse_program(launch, name)
    if launch.undecided:
        notes.assume(
            f"the command in line {launch.line} runs",
            f"it depends on {' and '.join(launch.undecided)}, which nothing decides",
        )
    _note_unset(script, launch, notes)
    return launch, arguments


def _note_unset(script: Script, launch: Launch, notes: Notes) -> None:
    """Say which variables the script expects from its environment and has not got: their defaults are no statement."""
    names = script.taken_as_unset[:_NAMED]
    if not names:
        return
    why = "nothing gives them, so that the script's own defaults hold; set them in the environment or the variables"
    if launch.cluster.nodes is not None:
        why += f", or say --target-nodes or target.nodes where {launch.cluster.nodes} node(s) is wrong"
    notes.assume(f"unset: {', '.join(names)}", why)


def _states_model(arguments: Collected) -> bool:
    return any(key in arguments.values for key in ("num_layers", "encoder_num_layers", "hybrid_layer_pattern"))


def _refuse_difference(first: Launch, its: Collected, second: Launch, others: Collected, name: str) -> None:
    """Raise `ConfigurationError` when two launches would not be the same job."""
    ignored = megatron_facts().ignored
    for key in sorted({*its.values, *others.values} - ignored):
        values = [each.values[key].value if key in each.values else None for each in (its, others)]
        if values[0] != values[1]:
            lines = f"lines {first.line} and {second.line} start different jobs"
            message = f"{lines}: {key} is {shown(values[0])} and {shown(values[1])}"
            conditions = [*first.undecided, *second.undecided]
            hint = f"set what {conditions[0]} asks for, or keep" if conditions else "keep"
            raise ConfigurationError(message, place=name, expected=f"{hint} one of them")


def _refuse_program(launch: Launch, name: str) -> None:
    words = launch.program.removesuffix(".py").lower().replace("-", "_").split("_")
    other = next((word for word in words if word in _OTHER_MODELS), None)
    if other is not None:
        message = f"{launch.program} trains no decoder-only language model"
        raise NotAvailable(message, place=f"{name}:{launch.line}", expected="pretrain_gpt.py or another decoder")


def _program_defaults(program: str, arguments: Collected) -> dict[str, object]:
    """What the program itself decides: a Mamba model has Mamba layers even where no pattern says so."""
    hybrid = any(word in program.lower() for word in _HYBRID_MODELS)
    stated = any(key in arguments.values for key in ("hybrid_layer_pattern", "hybrid_override_pattern"))
    return {"model_type": "mamba"} if hybrid and not stated else {}


def _note_words(arguments: Collected, notes: Notes) -> None:
    for text, place in arguments.gaps:
        notes.assume(f"no arguments in {text}", f"{place} hands them over, and nothing says what they are")
    for text, place in arguments.stray:
        notes.not_modelled(
            shown(text), where=place, effect="it belongs to no argument; it has no influence here", decides=False
        )


def _recorded(arguments: Collected) -> Cluster:
    """The cluster of a run that wrote its arguments down: `world_size`, at eight devices a node."""
    stated = arguments.values.get("world_size")
    size = stated.value if stated is not None else None
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        return Cluster()
    per_node = min(size, 8)
    return Cluster(nodes=size // per_node, devices_per_node=per_node) if size % per_node == 0 else Cluster()


def _with_cluster(loaded: LoadedConfiguration, cluster: Cluster, notes: Notes) -> LoadedConfiguration:
    hint = f"{' and '.join(cluster.unknown)} cannot be resolved" if cluster.unknown else ""
    return replace(
        loaded,
        nodes=cluster.nodes,
        devices_per_node=cluster.devices_per_node,
        cluster_hint=hint,
        assumed=(*notes.assumed, *loaded.assumed),
        unmodelled=(*notes.unmodelled, *loaded.unmodelled),
    )
