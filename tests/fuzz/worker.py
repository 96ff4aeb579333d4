"""One process that reads mutated files and says what became of them; `campaign` starts it."""

import argparse
import json
import os
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from projector.config import LoadedConfiguration, overrides_from_pairs, read, read_hardware_file
from projector.errors import InputError
from tests.fuzz.guard import ForbiddenError, forbid
from tests.fuzz.mutations import CANARY, COMPANIONS, HARDWARE, SEEDS, Seed, mutated, seeds
from tests.peak import STATUS, peak_bytes

LONGEST_SECONDS = 1.0
"""Processor time that one file may take."""
HANG_SECONDS = 10.0
"""Processor time after which a file is given up."""
LONGEST_LINE = 1000
"""Characters of a complaint that still reads as one line."""
LARGEST_BYTES = 1 << 30
"""Address space of the process, far above what may be used, so that a bomb ends the process and not the machine."""


@dataclass(slots=True)
class Tally:
    """What became of the files so far."""

    files: int = 0
    read: Counter[str] = field(default_factory=Counter)
    """Files that were read, by seed."""
    refused: Counter[str] = field(default_factory=Counter)
    """Files that got an error, by its class."""
    slowest_seconds: float = 0.0
    slowest: int = -1
    failures: list[dict[str, object]] = field(default_factory=list)
    """Number and kind of every file that broke a promise."""

    def document(self, peak: int) -> dict[str, object]:
        """As JSON takes it, with the memory that the process has reached."""
        return {
            "files": self.files,
            "read": dict(self.read),
            "refused": dict(self.refused),
            "slowest_seconds": self.slowest_seconds,
            "slowest": self.slowest,
            "peak_bytes": peak,
            "failures": self.failures,
        }


def reading(root: Path) -> Callable[[Seed], object]:
    """How a file is handed in, by its kind."""
    texts = {name: (SEEDS / name).read_text(encoding="utf-8") for name in COMPANIONS.values()}
    needed = [("micro_batch_size", "1"), ("seq_length", "2048"), ("global_batch_size", "64"), ("bf16", "true")]

    def hand_in(file: Seed) -> object:
        if file.name == HARDWARE:
            return read_hardware_file(file.text)
        name = COMPANIONS.get(file.name, file.name)
        given = needed if name == "config.json" else []
        return read(
            texts[name] if file.name in COMPANIONS else file.text,
            name=name,
            variables={"PRIMUS_TP": "2"},
            overrides=overrides_from_pairs([*given, *file.overrides]),
            companions={file.name: file.text} if file.name in COMPANIONS else {},
            root=root,
        )

    return hand_in


def judge(file: Seed, hand_in: Callable[[Seed], object], secret: str) -> tuple[str | None, str | None]:
    """The class of the error that a file got, and the promise that was broken, if any."""
    try:
        loaded = hand_in(file)
    except InputError as error:
        line = str(error)
        if "\n" in line or len(line) > LONGEST_LINE:
            return type(error).__name__, f"not one line: {line[:300]!r}"
        return type(error).__name__, "the environment shows" if secret in line else None
    except (Exception, ForbiddenError) as error:  # noqa: BLE001 - whatever it is, it is the finding
        return None, f"{type(error).__name__}: {str(error)[:300]}"
    shown = repr(loaded.values) if isinstance(loaded, LoadedConfiguration) else ""
    return None, "the environment shows" if secret in shown else None


def _hang(*_: object) -> None:
    raise TimeoutError(f"more than {HANG_SECONDS:g} s")


def run(first: int, last: int, *, seed: int, root: Path, folders: list[Path], until: float) -> Tally:
    """Read the files `first` to `last` - 1 of a series, or as many as the time allows."""
    good, hand_in, secret, tally = seeds(*folders), reading(root), os.environ[CANARY], Tally()
    for file in good:  # imports whatever is imported on first use
        judge(file, hand_in, secret)
    resource.setrlimit(resource.RLIMIT_AS, (LARGEST_BYTES, LARGEST_BYTES))
    signal.signal(signal.SIGPROF, _hang)
    forbid(root=root)
    for number in range(first, last):
        if time.monotonic() > until:
            break
        file = mutated(number, seed=seed, good=good)
        signal.setitimer(signal.ITIMER_PROF, HANG_SECONDS)
        start = time.process_time()
        refusal, broken = judge(file, hand_in, secret)
        seconds = time.process_time() - start
        signal.setitimer(signal.ITIMER_PROF, 0)
        tally.files += 1
        if refusal is not None:
            tally.refused[refusal] += 1
        elif broken is None:
            tally.read[file.name] += 1
        if seconds > tally.slowest_seconds:
            tally.slowest_seconds, tally.slowest = seconds, number
        if broken is None and seconds > LONGEST_SECONDS:
            broken = f"took {seconds:.2f} s"
        if broken is not None:
            tally.failures.append({"number": number, "file": file.name, "broken": broken})
    return tally


def main() -> None:
    """Read a share of the series and print the tally as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--last", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("folders", type=Path, nargs="*")
    said = parser.parse_args()
    until = time.monotonic() + said.seconds
    with STATUS.open() as status:
        tally = run(said.first, said.last, seed=said.seed, root=said.root, folders=said.folders, until=until)
        json.dump(tally.document(peak_bytes(status)), sys.stdout)


if __name__ == "__main__":
    main()
