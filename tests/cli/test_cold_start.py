"""A cold command costs a small multiple of a bare interpreter, in time and memory."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.lines import SAMPLE

LIMIT = 6.0
"""Cold `projector both` over a bare interpreter that imports what every command line tool does."""
ROUNDS = 30
"""Most repeats; the fastest of each counts, so a busy machine only makes the test longer."""
BARE = "import json, argparse, dataclasses, decimal"
OURS = "import sys; from projector.cli import main; sys.exit(main())"
HEAVY = {"torch", "numpy", "kubernetes", "jsonschema", "kopf", "aiohttp", "pydantic", "transformers", "asyncio"}
# Not getrusage: its peak includes what the parent had when it forked.
PROBE = f"""
import json, sys
from projector.cli import main
code = main()
with open("/proc/self/status") as status:
    peak = next(line.split()[1] for line in status if line.startswith("VmHWM:"))
print(json.dumps([code, sorted({HEAVY!r} & sys.modules.keys()), int(peak)]), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Modules are compiled once, as an installer does; a cold start is a new process, not a new installation."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PRIMUS_"))}
    return {**kept, "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("bytecode"))}


def seconds(code: str, environment: dict[str, str]) -> float:
    command = [sys.executable, "-c", code, "both", "--config", SAMPLE]
    start = time.perf_counter()
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, cwd=Path(__file__).parents[2])
    return time.perf_counter() - start


def test_a_cold_command_takes_at_most_six_bare_interpreters(environment: dict[str, str]) -> None:
    seconds(OURS, environment)
    bare, ours = [], []
    for _ in range(ROUNDS):
        bare.append(seconds(BARE, environment))
        ours.append(seconds(OURS, environment))
        if len(ours) > 4 and min(ours) <= LIMIT * min(bare):
            break
    ratio = min(ours) / min(bare)
    print(f"bare {min(bare) * 1e3:.0f} ms, projector both {min(ours) * 1e3:.0f} ms, ratio {ratio:.2f}")
    assert ratio <= LIMIT


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("command", ["memory", "performance", "both", "show", "convert"])
def test_no_heavy_module_is_loaded_and_memory_stays_small(
    environment: dict[str, str], command: str, output: str
) -> None:
    tokens = [sys.executable, "-c", PROBE, command, "--config", SAMPLE, "--output", output]
    done = subprocess.run(tokens, env=environment, capture_output=True, check=True, cwd=Path(__file__).parents[2])
    code, heavy, peak_kib = json.loads(done.stderr)
    assert code == 0
    assert heavy == []
    print(f"{command} {output}: peak {peak_kib / 1024:.1f} MiB")
    assert peak_kib * 1024 < 80e6
