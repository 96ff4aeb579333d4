"""The memory that a process of a test has reached.

`getrusage` does not tell: a new process inherits the figure of the one that started it.
"""

from pathlib import Path
from typing import TextIO

STATUS = Path("/proc/self/status")
"""Linux's account of the running process (proc_pid_status(5))."""


def peak_bytes(status: TextIO) -> int:
    """Largest resident memory so far; `status` is the open file, so that one opened early can be read late."""
    status.seek(0)
    kibibytes = next(line.split()[1] for line in status if line.startswith("VmHWM:"))
    return int(kibibytes) * 1024
