"""`python -m tests.fuzz`: a long run by hand; prints its figures and every broken promise."""

import argparse
import os
import time
from pathlib import Path

from tests.fuzz.campaign import campaign
from tests.fuzz.mutations import mutated, seeds


def main() -> int:
    """Run a campaign, or print one file of it."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", type=int, metavar="NUMBER", help="print this file of the series and stop")
    parser.add_argument("folders", type=Path, nargs="*", help="more good files: folders with YAML")
    said = parser.parse_args()
    if said.show is not None:
        print(mutated(said.show, seed=said.seed, good=seeds(*said.folders)).text)
        return 0
    start = time.monotonic()
    figures = campaign(said.files, seed=said.seed, processes=said.processes, folders=said.folders)
    print(f"files                     {figures.files} in {time.monotonic() - start:.0f} s")
    print(f"read                      {figures.read.total()}")
    for name, count in sorted(figures.read.items()):
        print(f"  {name:24}{count}")
    print(f"refused in one line       {figures.refused.total()}")
    for name, count in sorted(figures.refused.items()):
        print(f"  {name:24}{count}")
    print(f"slowest file              {figures.slowest_seconds:.3f} s (number {figures.slowest})")
    print(f"largest process           {figures.peak_bytes / 1e6:.0f} MB")
    print(f"broken promises           {len(figures.failures)}")
    for failure in figures.failures[:50]:
        print(f"  {failure['number']} ({failure['file']}): {failure['broken']}")
    return 1 if figures.failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
