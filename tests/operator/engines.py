"""Engines that misbehave, to be run in the engine's process."""

import os
import sys
import threading

from projector.api import Question
from projector.errors import BatchIndivisible
from projector.projection import Projection
from tests.operator.builders import projection


def answering(_: Question) -> Projection:
    return projection()


def refusing(_: Question) -> Projection:
    raise BatchIndivisible("24 does not divide", place="global_batch_size", expected="the nearest is 192")


def breaking(_: Question) -> Projection:
    raise ZeroDivisionError("one\ntwo")


def recursing(question: Question) -> Projection:
    return recursing(question)


def printing(_: Question) -> Projection:
    print("noise on standard output", flush=True)
    return projection()


def dying(_: Question) -> Projection:
    os._exit(7)


def hanging(_: Question) -> Projection:
    threading.Event().wait()
    raise AssertionError


def devouring(_: Question) -> Projection:
    kept = []
    while True:
        kept.append(bytearray(1 << 20))


def nibbling(_: Question) -> Projection:
    """Leaves no room for the smallest object while its frame lives."""
    chain: tuple[object, ...] = ()
    while True:
        chain = (chain,)


def numbered(_: Question) -> Projection:
    return projection(model=str(os.getpid()))


def growing(_: Question) -> Projection:
    kept = [bytearray(1 << 20) for _ in range(200)]
    return projection(model=f"{os.getpid()} {len(kept)}")


def environment(_: Question) -> Projection:
    known = {"PYTHONPATH", "LC_CTYPE"}
    return projection(model=f"{sorted(set(os.environ) - known)} {sys.stdin.isatty()}")


def moody(question: Question) -> Projection:
    """Behaves as the question's text says."""
    behaviours = {"die": dying, "hang": hanging, "devour": devouring, "break": breaking}
    return behaviours.get(question.text, answering)(question)
