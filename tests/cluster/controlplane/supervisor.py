"""The process that owns a control plane's components and outlives nobody.

Started by `processes.Supervisor` as a program of its own, with the standard library only. It reads orders, one
JSON object a line, from standard input and reports on standard output:

    {"start": NAME, "argv": [...]}   ->  nothing, but perhaps some day {"ended": NAME, "code": N}
    {"report": true}                 ->  {"reported": true}, after the end of every component that is dead by then
    {"detach": true}                 ->  {"detached": true}

When standard input ends, because its owner said so or died of whatever cause, it kills every component, removes
the folder and exits. A detached supervisor does so on SIGTERM instead. Should it be killed itself, the kernel
kills the components (PR_SET_PDEATHSIG), and the folder, whose lock it held, is swept by the next start.

Components are killed, not asked: everything they could save is thrown away with the folder.
"""

import contextlib
import ctypes
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
"""Option of prctl(2); linux/prctl.h."""

NOT_STARTED = 127
"""Exit code of a shell for a command that cannot be found."""


def die_with_parent(signal_number: int = signal.SIGKILL) -> None:
    """Have the kernel send `signal_number` to this process when its parent's thread ends; Linux only.

    For the moment between fork and exec.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0)


def supervise(folder: Path) -> None:
    """Obey the orders on standard input until they end, then leave nothing behind."""
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    stop_signals: list[int] = []
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: stop_signals.append(received))
    components: dict[str, subprocess.Popen[bytes]] = {}
    try:
        _serve(folder, wake_read, components, stop_signals)
    finally:
        for process in components.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in components.values():
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _serve(folder: Path, wake: int, components: dict[str, subprocess.Popen[bytes]], stop_signals: list[int]) -> None:
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(wake, selectors.EVENT_READ)
    pending = b""
    detached = False
    while not stop_signals:
        ready = {key.fd for key, _ in selector.select()}
        if wake in ready:
            os.read(wake, 4096)
            _report_ended(components)
        if 0 not in ready:
            continue
        received = os.read(0, 65536)
        if not received:
            if not detached:
                return
            selector.unregister(0)
        *lines, pending = (pending + received).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "detach" in order:
                detached = True
                _report(detached=True)
            elif "report" in order:
                _report_ended(components)
                _report(reported=True)
            else:
                _start(folder, components, order["start"], order["argv"])


def _start(folder: Path, components: dict[str, subprocess.Popen[bytes]], name: str, argv: list[str]) -> None:
    with (folder / f"{name}.log").open("ab", buffering=0) as log:
        try:
            components[name] = subprocess.Popen(
                argv,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - this program has one thread
            )
        except OSError as error:
            log.write(f"{error}\n".encode())
            _report(ended=name, code=NOT_STARTED)


def _report_ended(components: dict[str, subprocess.Popen[bytes]]) -> None:
    for name, process in list(components.items()):
        if process.poll() is not None:
            # What the component itself had started is killed with its group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            del components[name]
            _report(ended=name, code=process.returncode)


def _report(**event: object) -> None:
    # A detached supervisor has nobody to report to.
    with contextlib.suppress(BrokenPipeError):
        os.write(1, json.dumps(event).encode() + b"\n")


if __name__ == "__main__":
    supervise(Path(sys.argv[1]))
