"""The time half of the answer: how long an iteration takes, and where the time goes.

Layers' operations become passes (`passes`), passes model chunks (`stages`), chunks a pipeline phase
(`projector.schedule`); gradients, optimizer and weights end the iteration (`data_parallel`, `tail`). Measured runs and
what was left open decide the interval (`interval`).
"""

from projector.performance.clock import at_clock
from projector.performance.interval import Unstated, with_unstated
from projector.performance.project import project_performance
from projector.performance.stated import stated_figures

__all__ = ["Unstated", "at_clock", "project_performance", "stated_figures", "with_unstated"]
