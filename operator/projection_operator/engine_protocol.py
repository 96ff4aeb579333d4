"""What the operator and the process of its engine say to each other: pickles, each after its length."""

import struct
from dataclasses import dataclass

from projection_operator.reconcile.observed import Result

HEADER = struct.Struct("!Q")
"""Length of the pickle that follows, in bytes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What became of a question."""

    result: Result
    """The answer."""
    out_of_memory: bool = False
    """The run hit the bound of its address space; the result says nothing."""
    spent: bool = False
    """This process has grown too large to be used again."""
