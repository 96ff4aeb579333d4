"""Small Megatron-LM configurations for tests."""

from collections.abc import Mapping

from projector.config import LoadedConfiguration, parse_overrides, read

ARGUMENTS = {
    "num-layers": "8",
    "hidden-size": "1024",
    "num-attention-heads": "16",
    "seq-length": "2048",
    "max-position-embeddings": "2048",
    "vocab-size": "32000",
    "micro-batch-size": "1",
    "global-batch-size": "8",
}
"""Eight dense layers, as values of flags."""
BASE = " ".join(f"--{flag} {value}" for flag, value in ARGUMENTS.items())
"""The same as an argument list."""


def load(
    text: str, *overrides: str, name: str = "run.sh", variables: Mapping[str, str] | None = None, **others: str
) -> LoadedConfiguration:
    """Read a text with overrides as typed on a command line; `others` are texts beside it, by name with `_` for `.`."""
    companions = {key.replace("_", "."): value for key, value in others.items()}
    return read(
        text,
        name=name,
        format="megatron",
        variables=variables,
        overrides=parse_overrides(overrides),
        companions=companions,
    )


def arguments(*words: str) -> LoadedConfiguration:
    """The base with further arguments."""
    return load(" ".join((BASE, *words)))


def unmodelled(loaded: LoadedConfiguration) -> dict[str, bool]:
    """What is not modelled, each with whether it decides."""
    return {note.what: note.decides for note in loaded.unmodelled}


def assumed(loaded: LoadedConfiguration) -> str:
    """All assumptions in one text."""
    return "\n".join(f"{note.what}: {note.why}" for note in loaded.assumed)
