"""Options that state of a run what its configuration leaves open, a part of the table in `options.py`."""

from functools import partial

from projector.cli.row import PROJECTIONS, REMEMBERED, TIMED, Fate, Row, count, factor, multiple, one_of, sets, share

_run = partial(Row, group="Method")

RUNS: tuple[Row, ...] = (
    _run(
        name="--routing-imbalance",
        value="F",
        default="what the file states, else an interval whose expected value is listed as assumed",
        fate=Fate.WORKS,
        meaning="Rows that the experts of the busiest GPU receive over the balanced share; 1 is balanced.",
        becomes="`Question.routing_imbalance`",
        commands=PROJECTIONS,
        effect=sets("routing_imbalance", factor),
    ),
    _run(
        name="--host-factor",
        value="F",
        default="what the file states, else 1",
        fate=Fate.WORKS,
        meaning="Time of the host's work over the catalog's: 0.8 for processes bound to the cores beside their GPU.",
        becomes="`Question.host_factor`",
        commands=TIMED,
        effect=sets("host_factor", multiple),
    ),
    _run(
        name="--packed-length",
        value="N",
        default="what the file states, else attention over whole sequences",
        fate=Fate.WORKS,
        meaning="Tokens of the samples that sequences are packed with: sum of squared lengths over sum of lengths.",
        becomes="`Question.packed_length`",
        commands=TIMED,
        effect=sets("packed_length", count),
    ),
    _run(
        name="--expandable-segments",
        value="BOOL",
        default="what PYTORCH_ALLOC_CONF and its like state, else torch's default (listed as assumed)",
        fate=Fate.WORKS,
        meaning="Whether segments of torch's caching allocator grow: true or false.",
        becomes="`Question.expandable_segments`",
        commands=REMEMBERED,
        effect=sets("expandable_segments", lambda text: one_of("true", "false")(text) == "true"),
    ),
    _run(
        name="--memory-safety-margin",
        value="F",
        default="0 (Primus: 0.05, on benchmarks only)",
        fate=Fate.WORKS,
        meaning="Share by which the upper end of the memory interval is widened.",
        becomes="`Question.memory_safety_margin`",
        commands=REMEMBERED,
        effect=sets("memory_safety_margin", share),
    ),
)
"""Rows of the table."""
