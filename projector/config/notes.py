"""What a reader found out beside the job: assumptions and what the engine will not model."""

from dataclasses import dataclass, field

from projector.provenance import Assumption, Unmodelled


@dataclass(slots=True)
class Notes:
    """Collects notes while the values of a file are mapped to a job."""

    assumed: list[Assumption] = field(default_factory=list)
    """What nothing stated and the answer needs."""
    unmodelled: list[Unmodelled] = field(default_factory=list)
    """What was not understood."""

    def assume(self, what: str, why: str) -> None:
        """Note a value that was not stated."""
        self.assumed.append(Assumption(what=what, why=why))

    def not_modelled(self, what: str, *, where: str, effect: str, decides: bool, overstates: bool = False) -> None:
        """Note a part of the job that the engine does not model."""
        note = Unmodelled(what=what, where=where, effect=effect, decides=decides, overstates=overstates)
        if note not in self.unmodelled:
            self.unmodelled.append(note)
