"""The command `projection-operator`."""

import argparse
import asyncio
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from projection_operator import logs
from projection_operator.options import Options
from projection_operator.version import version

logger = logging.getLogger(__name__)

USAGE_ERROR = 2
FAILURE = 1

RESTART_SECONDS = 1.0
"""Pause before everything is started anew after a watch has broken."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parsed = _parser().parse_args(arguments)
    if parsed.command == "webhook":
        return _complain("webhook: not available yet")
    return _run(_options(parsed), parsed.log_level)


def _run(options: Options, log_level: str) -> int:
    # A help text or a usage error does not wait for kopf, aiohttp and the engine.
    import kopf  # noqa: PLC0415

    from projection_operator.cluster.credentials import CredentialsError, load_credentials  # noqa: PLC0415
    from projection_operator.handlers import make_registry  # noqa: PLC0415
    from projection_operator.runtime import Runtime  # noqa: PLC0415

    try:
        credentials = load_credentials(options.kubeconfig)
        credentials.token()
    except CredentialsError as error:
        return _complain(str(error))
    logs.configure(log_level)
    while True:
        runtime = Runtime(options, credentials)
        try:
            asyncio.run(
                kopf.operator(
                    registry=make_registry(runtime, credentials),
                    clusterwide=not options.namespaces,
                    namespaces=options.namespaces,
                    standalone=True,
                    stop_flag=runtime.stop,
                )
            )
        except Exception as error:
            if runtime.blocked:
                logger.critical(runtime.blocked)
                return FAILURE
            if runtime.failed or not runtime.started:
                logger.critical("The operator cannot go on", exc_info=True)
                return FAILURE
            # kopf ends with any of its watches, such as when the CustomResourceDefinition or a right is taken away.
            logger.warning("A watch broke, starting anew", extra={"error": str(error)})
            time.sleep(RESTART_SECONDS)
        else:
            return FAILURE if runtime.failed else 0


def _complain(message: str) -> int:
    sys.stderr.write(f"projection-operator: {message}\n")
    return USAGE_ERROR


def _options(parsed: argparse.Namespace) -> Options:
    return Options(
        namespaces=tuple(dict.fromkeys(parsed.namespace)),
        kubeconfig=parsed.kubeconfig,
        host=parsed.host,
        metrics_port=parsed.metrics_port,
        resync_seconds=parsed.resync_seconds,
        probe_seconds=parsed.probe_seconds,
        deaf_seconds=parsed.deaf_seconds,
        primus_root=parsed.primus_root,
        workers=parsed.workers,
        engine_processes=parsed.engine_processes,
        engine_seconds=parsed.engine_seconds,
        engine_memory_mib=parsed.engine_memory_mib,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="projection-operator",
        description="Answers ProjectionRequests: does a training job fit, and how fast will it run?",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {version()}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("webhook", help="serve the admission webhook (not available yet)")
    run = commands.add_parser("run", help="watch and answer", formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    _add_run_options(run, Options())
    return parser


def _add_run_options(run: argparse.ArgumentParser, defaults: Options) -> None:
    run.add_argument(
        "--namespace",
        action="append",
        default=[],
        metavar="NAME",
        help="serve only this namespace (may be repeated); needs no rights over the cluster. All when absent",
    )
    run.add_argument(
        "--kubeconfig", type=_file, metavar="FILE", help="credentials; the pod's service account when absent"
    )
    run.add_argument("--host", default=defaults.host, help="address of /healthz, /readyz and /metrics")
    run.add_argument(
        "--metrics-port",
        type=_port,
        default=defaults.metrics_port,
        metavar="PORT",
        help="their port; 0 takes a free one",
    )
    for name, what in (
        ("resync-seconds", "everything is looked at again after this time"),
        ("probe-seconds", "the watch is checked against a list after this time"),
        ("engine-seconds", "longest that a run of the engine may take"),
        ("deaf-seconds", "/healthz fails when the watch has missed changes for this time"),
    ):
        default = getattr(defaults, name.replace("-", "_"))
        run.add_argument(f"--{name}", type=_positive_seconds, default=default, metavar="SECONDS", help=what)
    run.add_argument(
        "--primus-root", type=_folder, metavar="FOLDER", help="a Primus checkout with presets; the catalog when absent"
    )
    for name, unit, what in (
        ("workers", "N", "requests looked at concurrently"),
        ("engine-processes", "N", "runs of the engine at once"),
        ("engine-memory-mib", "MIB", "address space of one run of the engine"),
    ):
        default = getattr(defaults, name.replace("-", "_"))
        run.add_argument(f"--{name}", type=_count, default=default, metavar=unit, help=what)
    run.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="info", help="least level logged"
    )


def _file(text: str) -> Path:
    path = Path(text)
    if not os.access(path, os.R_OK) or not path.is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is not a readable file")
    return path


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is not a folder")
    return Path(text)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:  # noqa: PLR2004 - the highest port of TCP
        raise argparse.ArgumentTypeError(f"{text!r} is not a port, 0 to 65535")
    return int(text)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _positive_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds
