"""Writes docs/cli.md, the reference of the command, from its option table, so that the two cannot differ.

Run `python -m docs.cli_reference` in the root of the repository after a change of the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from projector.cli.options import TABLE
from projector.cli.parser import COMMANDS
from projector.cli.row import PROJECTIONS, Fate, Row

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAGE = Path(__file__).resolve().parent / "cli.md"

INTRODUCTION = """\
# The command

    projector COMMAND --config FILE [options] [key=value ...]

This page is written by `python -m docs.cli_reference` from `projector/cli/options.py`. `python -m projector` is the
same command.

| command | question |
| --- | --- |
{commands}

## Configuration overrides

`key=value`, `--key=value`, `--key value` and `--flag` (true) override values of the configuration by name; dots name
nested values. `true`, `false` and `null` in any of YAML's usual spellings, numbers, and lists such as `[0,1]` are read
as such; everything else is text, and nothing is evaluated. Sizes may also be given by the [names that work in every
format](formats.md#names-that-work-everywhere). An unknown name is an error that names the nearest known
ones. Names of options have hyphens and names of values have underscores, so a misspelt option is never taken for a
value. An option and an override, or two options, that contradict each other are an error.

An option speaks louder than its environment variable. An empty variable counts as not set.
Variables that set torch's allocator, such as `PYTORCH_CUDA_ALLOC_CONF`, count as those of the run
([memory](memory.md#what-the-allocator-reserves)).

## Output

`--output text` (the default) is a report of 80 columns of plain text. `--output json` is the contract of
[`projection.schema.json`](../projector/projection.schema.json): ratios 0-1, times in milliseconds, sizes in bytes; the
half that was not asked for is null. `yaml` holds the same. `csv` has two columns, `path` and `value`, one line for each
value of the document, such as `memory.stages.0.device_bytes,136012345678`. `projector show` prints the same document
with both halves null. `projector schedule` has pictures and a document of its own ([schedules](schedule.md)). GiB is
2^30 bytes everywhere.

Memory ([how it is projected](memory.md)) is told at four levels for every pipeline stage: persistent, peak allocated,
peak reserved, and what the device shows. `memory.stages[].components` are parts with the level at which each is added,
so that those up to a level add up to it; `tree` has parameters and saved activations by component; `uncertainties` add
up to the interval; `peak_cause` says what goes on at the peak and what is in flight; `first_iteration_allocated_bytes`
is the peak before the optimizer's state is there. `memory.activations` is what one micro batch keeps in one layer of
each kind under the recomputation of the job, and `memory.confidence_reasons` say why the figures can be trusted as far
as they can.

## Exit codes

| code | meaning |
| --- | --- |
| 0 | answered |
| 1 | a defect of projector; `--debug` shows the traceback |
| 2 | wrong input or usage, or an option that is not available yet; one line on standard error says what |
| 3 | the verdict is `DoesNotFit`; only with `--check` |
| 4 | a benchmark was asked for and no usable device is there |
| 130 | ended by Ctrl-C |
| 141 | the reader of the output went away |

With `--check`, `AtRisk` and `Unknown` exit with 0 and a warning on standard error: neither says that the job does not
fit. A script that wants certainty reads `memory.verdict` of `--output json`.

## Uneven routing to experts

Where a router decides how many rows a GPU's experts receive, memory depends on what nobody knows before the run. The
factor is the rows that the experts of the busiest GPU receive over the balanced share: 1 is balanced, and no more than
`expert parallel x min(1, local experts / top-k)` is possible. Without `--routing-imbalance F` (or
`software.routing_imbalance` in the project's own YAML) the expected value is that of the highest step of a usual run,
the interval goes from balance to that of an unlucky one, and all three factors are listed under `assumed`. They fall
with less expert parallelism, with more layers and with more micro batches in memory at a time. A stated factor removes
that part of the interval. Forced balance, a padded capacity and sync-free stage 3 leave nothing to the router.

## Differences from the Primus projection command

Every option of `primus projection` (AMD-AGI/Primus fd1eeabb) is taken with the same name and meaning, except that

- `--memory-mode` and `--profiling-mode` default to `simulate`, which needs no GPU;
- `--gemm-backend` defaults to `analytical`, and `--gpu-clock-mhz` to the clock that the GPU sustains, against which a
  stated one scales matrix products and attention ([rates and backends](backends.md));
- `PRIMUS_HW_PROFILE_DIR` reaches matrix products too, and a mistake in its files is an error;
- `--target-nodes` works for memory too, and batch and layout options work for all commands;
- `--memory-safety-margin` widens the upper end of the projected interval and defaults to 0;
- `--enable-zero-bubble` also sets `patch_zero_bubble`, without which Primus does not run the schedule;
- an unknown override is an error, overrides are not evaluated as Python, and options cannot be abbreviated;
- every pipeline stage is reported, so `RANK` has no effect;
- what has no effect is named in the result, and what is not available yet is refused;
- `--export_config`, which Primus takes and does nothing with, writes the [project's own format](formats.md).
"""


def render() -> str:
    """The whole page, as Markdown."""
    commands = "\n".join(f"| `{name}` | {question} |" for name, question in COMMANDS.items())
    groups = dict.fromkeys(row.group for row in TABLE)
    sections = (section for group in groups for section in _section(group, [r for r in TABLE if r.group == group]))
    return "\n".join([INTRODUCTION.format(commands=commands), *sections]) + "\n"


def _section(group: str, rows: Sequence[Row]) -> Iterator[str]:
    yield f"## {group}\n"
    yield "| name | meaning | default | commands | what becomes of it |"
    yield "| --- | --- | --- | --- | --- |"
    for row in rows:
        commands = "projections" if row.commands == PROJECTIONS else ", ".join(row.commands)
        becomes = row.becomes if row.fate is Fate.WORKS else f"**{row.fate}**: {row.becomes}"
        cells = (_names(row), row.meaning, row.default, commands, becomes)
        yield f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"
    yield ""


def _names(row: Row) -> str:
    """Every spelling, with the placeholder of the value."""
    value = ""
    if row.is_option and row.value is not None:
        value = f" [{row.value}]" if row.optional_value else f" {row.value}"
    return ", ".join(f"`{name}{value}`" for name in (row.name, *row.aliases))


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
