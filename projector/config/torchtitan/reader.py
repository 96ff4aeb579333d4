"""The door to TorchTitan's files: text in, `LoadedConfiguration` out."""

from dataclasses import replace

from projector.config.detection import is_titan_command, is_toml
from projector.config.document import Document
from projector.config.torchtitan.job import Values, load
from projector.config.torchtitan.overriding import with_overrides
from projector.config.torchtitan.run import Run
from projector.config.tree import build, flatten
from projector.provenance import LoadedConfiguration, Source


def read(document: Document) -> LoadedConfiguration:
    """Read a TOML file, a resolved configuration (JSON or YAML), or a command line that names one of either.

    Raises `ConfigurationError` and its children, `LayoutImpossible`, `BatchIndivisible`, `NotAvailable`.
    """
    run = _run(document)
    values = Values(
        values=flatten(with_overrides(run.tree, document.overrides)),
        file=document.name,
        assumed=run.assumed,
        registry=run.registry,
        cluster=run.cluster,
    )
    return replace(load(values, format_="torchtitan"), environment=run.environment)


def _run(document: Document) -> Run:
    if is_toml(document.text):
        from projector.config.torchtitan.toml import parse_toml  # noqa: PLC0415 - as below

        content = parse_toml(document.text, name=document.name)
    elif is_titan_command(document.text):
        from projector.config.torchtitan.registry import read_launch  # noqa: PLC0415 - only commands need the shell

        return read_launch(document)
    else:
        from projector.config.safe_json import parse_json_or_yaml  # noqa: PLC0415 - as above

        content = parse_json_or_yaml(document.text, name=document.name)
    tree = build(content, source=Source.EXPERIMENT, file=document.name, variables=document.variables)
    # The generation with a registry resolves a name and flavor into a specification of the model.
    return Run(tree=tree, registry="model_spec" in content)
