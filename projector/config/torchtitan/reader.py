"""The door to TorchTitan's files: text in, `LoadedConfiguration` out."""

from dataclasses import replace

from projector.config.detection import is_titan_command, is_toml
from projector.config.document import Document
from projector.config.safe_yaml import parse_mapping
from projector.config.torchtitan.job import Values, load
from projector.config.torchtitan.launch import Launch
from projector.config.torchtitan.overriding import with_overrides
from projector.config.torchtitan.toml import parse_toml
from projector.config.tree import build, flatten
from projector.provenance import LoadedConfiguration, Source


def read(document: Document) -> LoadedConfiguration:
    """Read a TOML file, a resolved configuration (JSON or YAML), or a command line that names one of either.

    Raises `ConfigurationError` and its children, `LayoutImpossible`, `BatchIndivisible`, `NotAvailable`.
    """
    launch = _launch(document)
    values = Values(
        values=flatten(with_overrides(launch.tree, document.overrides)),
        file=document.name,
        assumed=launch.assumed,
        registry=launch.registry,
    )
    loaded = load(values, format_="torchtitan")
    nodes, devices = launch.nodes or loaded.nodes, launch.devices or loaded.devices_per_node
    return replace(loaded, nodes=nodes, devices_per_node=devices)


def _launch(document: Document) -> Launch:
    toml = is_toml(document.text)
    if not toml and is_titan_command(document.text):
        from projector.config.torchtitan.registry import read_launch  # noqa: PLC0415 - only commands need the shell

        return read_launch(document)
    content = (parse_toml if toml else parse_mapping)(document.text, name=document.name)
    tree = build(content, source=Source.EXPERIMENT, file=document.name, variables=document.variables)
    # The generation with a registry resolves a name and flavor into a specification of the model.
    return Launch(tree=tree, registry="model_spec" in content)
