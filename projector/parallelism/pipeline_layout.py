"""Megatron's pipeline layout strings, such as `Et*3|(tt|)*28,m|L`.

Grammar (Megatron-LM megatron/core/transformer/pipeline_parallel_layer_layout.py): `E` embedding, `t` decoder layer,
`m` multi-token-prediction layer, `L` loss, `|` between stages, `x*n` repeats a symbol, `(...)*n` repeats a group;
commas and white space mean nothing.
"""

from projector.errors import LayoutImpossible

MAX_SYMBOLS = 100_000
"""Expanded length at which a string is refused; the largest published layouts have about 200 symbols."""

MAX_DEPTH = 32
"""Brackets inside one another."""

_PLACE = "pipeline_model_parallel_layout"
_EXPECTED = "symbols E t m L |, repetition x*n and (...)*n, such as `Et*3|(tt|)*28,m|L`"


def parse(text: str) -> tuple[str, ...]:
    """Stages of a layout string, each as its symbols in order: `E|tt|L` gives `("E", "tt", "L")`.

    Raises `LayoutImpossible` for anything outside the grammar.
    """
    compact = "".join(text.split()).replace(",", "")
    expanded, end = _sequence(compact, 0, text)
    if end != len(compact):
        raise _wrong(text, "has a `)` without `(`")
    return tuple(expanded.split("|"))


def _sequence(text: str, start: int, whole: str, depth: int = 0) -> tuple[str, int]:
    """Expand from `start` to the end or an unmatched `)`; returns the expansion and where it stopped."""
    if depth > MAX_DEPTH:
        raise _wrong(whole, f"has brackets nested deeper than {MAX_DEPTH}")
    parts: list[str] = []
    length = 0
    at = start
    while at < len(text) and text[at] != ")":
        if text[at] == "(":
            item, at = _sequence(text, at + 1, whole, depth + 1)
            if at >= len(text):
                raise _wrong(whole, "has a `(` without `)`")
            at += 1
        elif text[at] in "EtmL|":
            item, at = text[at], at + 1
        else:
            raise _wrong(whole, f"has an unknown symbol `{text[at]}`")
        count, at = _repetition(text, at, whole)
        length += len(item) * count
        if length > MAX_SYMBOLS:
            raise _wrong(whole, f"expands to more than {MAX_SYMBOLS} symbols")
        parts.append(item * count)
    return "".join(parts), at


def _repetition(text: str, at: int, whole: str) -> tuple[int, int]:
    """Read an optional `*n`; returns n (1 without one) and the position after it."""
    if at >= len(text) or text[at] != "*":
        return 1, at
    end = at + 1
    while end < len(text) and text[end] in "0123456789":
        end += 1
    digits = text[at + 1 : end]
    if not digits or len(digits) > len(str(MAX_SYMBOLS)):
        raise _wrong(whole, "has a `*` without a sensible count")
    return int(digits), end


def _wrong(text: str, why: str) -> LayoutImpossible:
    return LayoutImpossible(f"layout `{_short(text)}` {why}", place=_PLACE, expected=_EXPECTED)


def _short(text: str) -> str:
    """The layout as messages quote it."""
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004 - keeps messages on one line


def check(stages: tuple[str, ...], *, text: str, layers: int, mtp_layers: int, pipeline: int) -> None:
    """Refuse what Megatron-LM refuses: symbol counts, places of E and L, stages against pipeline ranks."""
    symbols, text = "".join(stages), _short(text)
    wanted = {"E": 1, "L": 1, "t": layers, "m": mtp_layers}
    names = {"E": "embedding (E)", "L": "loss (L)", "t": "decoder layers (t)", "m": "MTP layers (m)"}
    for symbol, want in wanted.items():
        have = symbols.count(symbol)
        if have != want:
            raise LayoutImpossible(
                f"layout `{text}` has {have} {names[symbol]} where the model has {want}",
                place=_PLACE,
                expected=f"exactly {want}, as Megatron-LM requires",
            )
    if not stages[0].startswith("E") or not stages[-1].endswith("L"):
        raise LayoutImpossible(f"layout `{text}` must start with E and end with L", place=_PLACE)
    after_mtp = symbols[symbols.index("m") :] if mtp_layers else "L"
    if "t" in after_mtp or sum("m" in stage for stage in stages) > 1:
        raise LayoutImpossible(f"layout `{text}` must keep its MTP layers together behind the decoder", place=_PLACE)
    if len(stages) % pipeline:
        raise LayoutImpossible(
            f"layout `{text}` has {len(stages)} stages, not a multiple of pipeline parallel {pipeline}", place=_PLACE
        )
