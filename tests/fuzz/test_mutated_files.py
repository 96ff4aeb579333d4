"""No file, however damaged, breaks a reader, takes long, takes much, or reaches beyond itself."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.campaign import LARGEST_BYTES, ROOT, campaign
from tests.fuzz.mutations import SEEDS, seeds
from tests.fuzz.worker import reading

SECONDS = 8.0
"""Time that CI gives the search; the long run is done by hand (docs/fuzzing.md)."""


def test_mutated_files_break_no_promise() -> None:
    figures = campaign(1_000_000, seed=20, seconds=SECONDS)
    assert figures.failures == []
    assert figures.peak_bytes < LARGEST_BYTES
    # A search whose files are all read, or all refused, looks in the wrong place.
    assert figures.read.total() > figures.files / 50
    assert figures.refused.total() > figures.files / 5


@pytest.mark.parametrize("name", sorted(path.name for path in SEEDS.iterdir()))
def test_every_seed_is_read_as_it_stands(name: str, tmp_path: Path) -> None:
    hand_in = reading(tmp_path)
    hand_in(next(seed for seed in seeds() if seed.name == name))


GUARDED = {
    "opens a file elsewhere": "open('/etc/hostname')",
    "opens a file by its bytes": "open(b'/etc/hostname')",
    "opens a file in a folder of a similar name": "open(sys.argv[1] + 'x')",
    "lists a folder": "os.listdir('/etc')",
    "looks at the environment": "os.environ.get('HOME')",
    "starts a program": "subprocess.run(['true'])",
    "runs a shell": "os.system('true')",
    "evaluates text": "eval('1')",
    "opens a socket": "socket.socket()",
}


@pytest.mark.parametrize("deed", GUARDED.values(), ids=GUARDED.keys())
def test_the_guard_catches_a_reader_that(deed: str, tmp_path: Path) -> None:
    script = tmp_path / "deed.py"
    script.write_text(
        "import os, socket, subprocess, sys\nfrom pathlib import Path\nfrom tests.fuzz.guard import forbid\n"
        f"forbid(root=Path(sys.argv[1]))\n{deed}\n",
        encoding="utf-8",
    )
    run = [sys.executable, str(script), str(tmp_path)]
    ended = subprocess.run(run, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False)
    assert "ForbiddenError" in ended.stderr
