"""How layouts of one job rank, beside how they were measured to: Kendall's tau over pairs of runs."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import NamedTuple

from tests.accuracy.rows import Row
from tests.accuracy.scoring import Figure, ScoredRow

LEAST = 3
"""Runs of a group; two say little of a ranking."""


class Ranking(NamedTuple):
    """Pairs of runs of the same job."""

    groups: int = 0
    """Jobs with several runs."""
    concordant: int = 0
    """Pairs whose faster run is projected to be the faster one."""
    discordant: int = 0
    """Pairs the other way round."""

    @property
    def tau(self) -> float:
        """1 for the measured order, -1 for the reverse."""
        return (self.concordant - self.discordant) / (self.concordant + self.discordant)

    def plus(self, other: "Ranking") -> "Ranking":
        """Both together."""
        return Ranking(*(one + another for one, another in zip(self, other, strict=True)))


def rankings(figures: Iterable[Figure], rows: Iterable[Row]) -> dict[str, Ranking]:
    """By source: runs of one model on as many GPUs of a kind, with equal sequences and global batch."""
    by_id = {(row.source, row.id): row for row in rows}
    found: dict[str, Ranking] = {}
    for figure in figures:
        jobs: dict[str, list[ScoredRow]] = defaultdict(list)
        for scored in figure.rows:
            jobs[_job(by_id[figure.source, scored.id])].append(scored)
        several = [ranked(runs) for runs in jobs.values() if len(runs) >= LEAST]
        for each in several:
            if each.concordant + each.discordant:
                found[figure.source] = found.get(figure.source, Ranking()).plus(each)
    return found


def ranked(runs: Iterable[ScoredRow]) -> Ranking:
    """Every pair of a group; pairs that were measured or are projected alike count for neither side."""
    signs = [
        (one.measured - other.measured) * (one.projected - other.projected) for one, other in combinations(runs, 2)
    ]
    return Ranking(1, sum(sign > 0 for sign in signs), sum(sign < 0 for sign in signs))


def _job(row: Row) -> str:
    return repr((row.model, row.hardware, row.devices, row.train.get("seq"), row.train.get("gbs")))


def table(found: dict[str, Ranking]) -> Iterator[str]:
    """Lines of the accuracy page."""
    yield "| source | jobs | pairs | tau |"
    yield "| --- | ---: | ---: | ---: |"
    together = Ranking()
    for each in found.values():
        together = together.plus(each)
    for name, each in {**found, "all": together}.items():
        yield f"| {name} | {each.groups} | {each.concordant + each.discordant} | {each.tau:.2f} |"
