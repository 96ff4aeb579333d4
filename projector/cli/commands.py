"""The commands: ask the engine or the catalog, print the answer, return the exit code."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from projector.api import Question, project
from projector.cli import exit_codes
from projector.cli.files import read_text
from projector.cli.output import write
from projector.cli.parser import CommandLine, read_command_line
from projector.cli.question import Said, ask, understand, unused_variables
from projector.errors import BatchIndivisible, LayoutImpossible
from projector.projection import Projection, Verdict
from projector.provenance import LoadedConfiguration


def run(tokens: Sequence[str], environment: Mapping[str, str]) -> int:
    """Carry out a command line; the exit code. Raises what reading it and answering it raise."""
    line = read_command_line(tokens)
    said = understand(line, environment)
    if modules := said.switches.get("gemm_plugins"):
        from projector.costs import load_gemm_modules  # noqa: PLC0415 - for this option alone

        load_gemm_modules(modules)
    if line.command in {"models", "devices", "backends"}:
        return _catalog(line.command, said)
    if line.command == "schedule":
        return _schedule(line, said, environment)
    question = ask(line, said, environment)
    without = (*said.without_effect, *unused_variables(line, question.text, environment))
    if line.command == "show":
        return _show(question, said, without)
    if line.command == "convert":
        return _convert(question, said, without)
    projection = _answer(question, without)
    _export(question, said, without)

    def text() -> str:
        from projector.report.text import report  # noqa: PLC0415 - not for other forms

        return report(projection)

    _print(said, projection.to_dict, text)
    return _checked(projection) if said.switches.get("check") else exit_codes.ANSWERED


def _answer(question: Question, without_effect: Iterable[str]) -> Projection:
    """Project, and name what was given and changes nothing."""
    projection = project(question)
    return replace(projection, ignored=(*projection.ignored, *without_effect))


def _show(question: Question, said: Said, without_effect: Iterable[str]) -> int:
    """Show the configuration; where it cannot be laid out on the target, its values help to find out why."""
    from projector.report import show  # noqa: PLC0415 - for this command alone

    try:
        projection = _answer(question, without_effect)
    except (LayoutImpossible, BatchIndivisible):
        if said.switches.get("output", "text") == "text":
            from projector.answer import load  # noqa: PLC0415 - loaded by now

            loaded = load(question)
            write(show.values_report(loaded.values[key] for key in sorted(loaded.values)))
        raise
    _export(question, said, without_effect)
    _print(said, projection.to_dict, lambda: show.report(projection))
    return exit_codes.ANSWERED


def _schedule(line: CommandLine, said: Said, environment: Mapping[str, str]) -> int:
    """Draw the pipeline of a training configuration, or of given chunk times."""
    from projector.cli import schedule  # noqa: PLC0415 - for this command alone
    from projector.report.schedule import document, report  # noqa: PLC0415 - for this command alone

    text = schedule.given_times(line, said)
    if text is None:
        question = ask(line, said, environment)
        without = (*said.without_effect, *unused_variables(line, question.text, environment))
        answer = schedule.of_projection(_answer(question, without), question.name)
        _export(question, said, without)
    else:
        answer = schedule.of_times(text, said)
    schedule.write_trace(answer, said)
    width, colour = schedule.columns(said), schedule.coloured(said, environment)
    _print(said, lambda: document(answer), lambda: report(answer, width=width, colour=colour))
    return exit_codes.ANSWERED


def _convert(question: Question, said: Said, without_effect: Iterable[str]) -> int:
    """Print the configuration in the project's own format."""
    from projector.config.own import writing  # noqa: PLC0415 - for this command and one option alone

    loaded = _effective(question, without_effect)
    _export(question, said, without_effect)
    form = said.switches.get("output", "text")
    text = replace(said, switches={**said.switches, "output": "text" if form == "yaml" else form})
    _print(text, lambda: writing.document(loaded), lambda: writing.write(loaded))
    return exit_codes.ANSWERED


def _export(question: Question, said: Said, without_effect: Iterable[str]) -> None:
    """Write the configuration in the project's own format where that is asked for."""
    path = said.switches.get("export")
    if path is None:
        return
    from projector.cli.export import export  # noqa: PLC0415 - for this option alone

    export(path, _effective(question, without_effect), read=said.files, folder=question.directory)


def _effective(question: Question, without_effect: Iterable[str]) -> LoadedConfiguration:
    from projector.answer import effective  # noqa: PLC0415 - asking must not load the engine

    loaded = effective(question)
    return replace(loaded, ignored=(*loaded.ignored, *without_effect))


def _checked(projection: Projection) -> int:
    """The exit code of `--check`; a verdict between yes and no passes with a warning."""
    memory = projection.memory
    if memory is None or memory.verdict is Verdict.FITS:
        return exit_codes.ANSWERED
    if memory.verdict is Verdict.DOES_NOT_FIT:
        return exit_codes.DOES_NOT_FIT
    print(f"projector: --check passes with the verdict {memory.verdict}, which is not Fits", file=sys.stderr)
    return exit_codes.ANSWERED


def _catalog(what: str, said: Said) -> int:
    from projector.config.gpu_file import read_gpu_files  # noqa: PLC0415 - for these commands alone
    from projector.report import catalog  # noqa: PLC0415 - for these commands alone

    files: tuple[Path, ...] = said.switches.get("gpu_files", ())
    document = catalog.devices_document(read_gpu_files(_texts(files))) if files else catalog.DOCUMENTS[what]()
    _print(said, lambda: document, lambda: catalog.REPORTS[what](document))
    return exit_codes.ANSWERED


def _texts(files: Iterable[Path]) -> dict[str, str]:
    return {str(path): read_text(path) for path in files}


def _print(said: Said, document: Callable[[], Mapping[str, Any]], text: Callable[[], str]) -> None:
    form = said.switches.get("output", "text")
    if form == "text":
        answer = text()
    else:
        from projector.report.machine import FORMS  # noqa: PLC0415 - not for text

        answer = FORMS[form](document())
    write(answer)
