"""The command `projector`.

`options.py` is the table of everything that can be said, `parser.py` reads a command line by it, `question.py` turns
what was said into a question for the engine, and `commands.py` asks it and prints the answer. Only what a command
needs is imported, so that a cold start stays a fraction of a second.
"""

import gc
import os
import sys
from collections.abc import Mapping, Sequence

from projector.cli import exit_codes, output
from projector.errors import DeviceMissing, InputError

COLLECT_EVERY = 100_000
"""Objects between two garbage collections of the command's own process: it ends before garbage matters, and Python's
default of 700 costs a sixteenth of a cold start."""


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> int:
    """Run the command and return its exit code; None takes the process's own arguments and environment."""
    if arguments is None:
        gc.set_threshold(COLLECT_EVERY)
    tokens = sys.argv[1:] if arguments is None else list(arguments)
    output.open_closed()
    try:
        code = _run(tokens, os.environ if environment is None else environment)
        sys.stdout.flush()
    except BrokenPipeError:
        output.discard()
        return exit_codes.BROKEN_PIPE
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    return code


def _run(tokens: Sequence[str], environment: Mapping[str, str]) -> int:
    try:
        from projector.cli.commands import run  # noqa: PLC0415 - a Ctrl-C while it loads is handled as well

        return run(tokens, environment)
    except SystemExit as stop:  # argparse ends `--help` this way
        return stop.code if isinstance(stop.code, int) else exit_codes.ANSWERED
    except InputError as error:
        _complain(error)
        return exit_codes.WRONG_INPUT
    except DeviceMissing as error:
        _complain(error)
        return exit_codes.NO_DEVICE
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, a person reads one line
        if "--debug" in tokens:
            import traceback  # noqa: PLC0415 - for this alone

            traceback.print_exc()
        _complain(
            f"unexpected {type(error).__name__}: {error}. This is a defect of projector: please report it together with"
            " the configuration and with what the same command prints with --debug"
        )
        return exit_codes.UNEXPECTED


def _complain(what: object) -> None:
    """One line on standard error."""
    line = " ".join(str(what).split())
    print("projector:", "".join(mark if mark.isprintable() else "?" for mark in line), file=sys.stderr)
