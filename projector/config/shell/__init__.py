"""A small, safe interpreter of bash and Slurm launch scripts: it reads the arguments of a launch and runs nothing."""

from collections.abc import Mapping

from projector.config.shell.script import Command, Script, Word

__all__ = ["Command", "Script", "Word", "read_script"]


def read_script(text: str, *, name: str, variables: Mapping[str, str]) -> Script:
    """Read a script.

    `name` is what messages call it; `variables` are all the environment it has, with its own arguments as `1`, `2` and
    so on. Raises `ConfigurationError` for text that is no shell script, `ConfigurationTooLarge` beyond the limits of
    `limits.py`.
    """
    from projector.config.shell.interpreter import interpret  # noqa: PLC0415 - only scripts need it

    return interpret(text, name=name, variables=variables)
