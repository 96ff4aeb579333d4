"""The table of optimizers that all readers share: what each keeps, by the names that a framework calls it.

The facts are `catalog/frameworks/optimizers.yaml`.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from projector import catalog
from projector.catalog.facts import read_mapping
from projector.config.notes import Notes
from projector.job import Optimizer, OptimizerKind, ParameterClass, Precision

FILE = Path("frameworks") / "optimizers.yaml"
"""The data file, relative to the catalog's folder."""


class OptimizerRule(NamedTuple):
    """What an optimizer keeps of a parameter, and how it is counted."""

    first_moment_bytes: float
    """Bytes of the first moment in fp32 training; 0 for none."""
    second_moment_bytes: float
    """Bytes of the second moment in fp32 training; 0 for none."""
    optimizer: Optimizer
    """The update rule and the parameters that it treats apart."""
    foreach_copies: float
    """Tensors as large as all of a rank's parameters that torch's multi-tensor step makes on the way."""
    lacking: str
    """What the answer lacks because of a difference to the rule that is counted; empty for none."""
    decides: bool
    """Whether memory may be wrong because of it."""

    def moments(self, first: float, second: float) -> tuple[float, float]:
        """Bytes of the two moments where a framework stores them in types of these widths.

        A narrower rule keeps to its own width, and one with two moments of a kind has both.
        """
        return _width(self.first_moment_bytes, first), _width(self.second_moment_bytes, second)

    def flattened(self) -> "OptimizerRule":
        """The rule over parameters that a framework joins to one vector: nothing is apart, and there are no columns."""
        optimizer = replace(self.optimizer, exempt_classes=(), quantized_from_elements=0, factored=False)
        second = self.optimizer.exempt_second_bytes if self.optimizer.factored else self.second_moment_bytes
        return self._replace(optimizer=optimizer, second_moment_bytes=second)

    def noted(self, name: str, notes: Notes, *, where: str) -> "OptimizerRule":
        """The rule, once what is lacking is said of the optimizer with this `name`."""
        if self.lacking:
            notes.not_modelled(f"the optimizer {name}", where=where, effect=self.lacking, decides=self.decides)
        return self

    def foreach_bytes(self, precision: Precision) -> float:
        """Bytes per parameter that torch's multi-tensor step makes on the way, as wide as what it updates."""
        return self.foreach_copies * (precision.master_weight_bytes or precision.weight_bytes)


_FP32_BYTES = 4
"""Width of a moment that follows what the framework stores."""


def _width(rule: float, stored: float) -> float:
    return rule * stored / _FP32_BYTES if rule >= _FP32_BYTES else min(rule, stored)


@cache
def optimizers(framework: str) -> Mapping[str, OptimizerRule]:
    """Every optimizer that a framework has, by its names for it."""
    found: dict[str, OptimizerRule] = {}
    # The file ships with the package; the tests hold it to this shape.
    items: Mapping[str, Any] = read_mapping(Path(catalog.__file__).parent / FILE)
    for item in items.values():
        rule = _rule(item)
        found.update(dict.fromkeys(item["names"].get(framework, ()), rule))
    return found


def _rule(item: Mapping[str, Any]) -> OptimizerRule:
    exempt: Mapping[str, Any] = item.get("exempt", {})
    return OptimizerRule(
        first_moment_bytes=item["first"],
        second_moment_bytes=item["second"],
        optimizer=Optimizer(
            kind=OptimizerKind(item.get("kind", OptimizerKind.ADAM)),
            exempt_classes=tuple(ParameterClass(name) for name in exempt.get("classes", ())),
            exempt_first_bytes=exempt.get("first", float(item["first"] and _FP32_BYTES)),
            exempt_second_bytes=exempt.get("second", float(item["second"] and _FP32_BYTES)),
            block_elements=item.get("block", 0),
            quantized_from_elements=item.get("quantized_from", 0),
            factored=item.get("factored", False),
            whole_tensors=item.get("whole_tensors", False),
        ),
        foreach_copies=item.get("foreach", 0),
        lacking=item.get("lacking", ""),
        decides=item.get("decides", False),
    )
