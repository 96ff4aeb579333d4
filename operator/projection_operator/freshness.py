"""Is the watch still telling what happens?

A watch can end without an error and leave a process that lives and hears nothing (nolar/kopf#1276). The proof that
it hears: whatever a list shows is also delivered by the watch, sooner or later. What a list shows and the watch has
not delivered is *overdue*; the age of the oldest overdue object is the lag. Versions are compared for equality only,
and any later delivery about the object settles it.
"""

from collections.abc import Mapping

from projection_operator.api.names import Key


class Freshness:
    """Compares lists of one kind with what its watch delivers. Times are seconds of one clock that does not jump."""

    def __init__(self) -> None:
        """Nothing listed or delivered yet."""
        self._delivered: dict[Key, tuple[str, float]] = {}
        self._overdue: dict[Key, float] = {}

    def delivered(self, key: Key, resource_version: str, now: float) -> None:
        """The watch has shown `key` in this version."""
        self._delivered[key] = (resource_version, now)
        self._overdue.pop(key, None)

    def deleted(self, key: Key) -> None:
        """The watch has shown that `key` is gone."""
        self._delivered.pop(key, None)
        self._overdue.pop(key, None)

    def listed(self, versions: Mapping[Key, str], *, began: float, now: float) -> list[Key]:
        """A list that began at `began` has shown these objects; returns those that the watch has not delivered.

        What was delivered while the list was under way may be newer than the list and proves nothing against it.
        """
        unseen = [key for key, version in versions.items() if not self._heard(key, version, began)]
        self._overdue = {key: self._overdue.get(key, now) for key in unseen}
        # Objects that vanished while the watch was between two connections are never reported deleted.
        self._delivered = {
            key: (version, heard)
            for key, (version, heard) in self._delivered.items()
            if key in versions or heard >= began
        }
        return unseen

    def _heard(self, key: Key, version: str, began: float) -> bool:
        delivered, heard = self._delivered.get(key, ("", began - 1.0))
        return delivered == version or heard >= began

    def lag_seconds(self, now: float) -> float:
        """Age of the oldest overdue object, 0 when nothing is overdue."""
        return max((now - since for since in self._overdue.values()), default=0.0)
