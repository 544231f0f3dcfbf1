"""Recovery: who takes the place of an instance that died, and when to give up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from raystream.errors import JobError
from raystream.schema.types import KeyRange

ATTEMPTS_MAX = 5
"""So often other actors are tried when those that take a place die as well."""
DEATHS_MAX = 10
"""So many deaths of one range without a new floor in between are not bad luck: the job stops."""


@dataclass(frozen=True, slots=True)
class Place:
    """What an instance is to do. number: how many had the place before it."""

    vertex: int
    operator: str
    keys: KeyRange
    index: int
    number: int = 0

    @property
    def name(self) -> str:
        """The identity of the instance that has the place, never used again."""
        return f"{self.operator}/{self.index}" + (f".{self.number}" if self.number else "")

    def next(self) -> Place:
        """For the instance that comes after this one."""
        return replace(self, number=self.number + 1)


class Deaths:
    """Deaths of each range since the floor last moved."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, KeyRange], int] = {}

    def moved(self) -> None:
        """There is a new floor."""
        self._counts.clear()

    def died(self, places: Iterable[Place], floor: int, because: str) -> None:
        """The instances of these places died.

        Raises:
            JobError: one did so again and again.
        """
        for place in places:
            at = (place.vertex, place.keys)
            self._counts[at] = self._counts.get(at, 0) + 1
            if self._counts[at] > DEATHS_MAX:
                raise JobError(
                    f"{place.operator} {place.keys} died {DEATHS_MAX + 1} times without"
                    f" getting past epoch {floor}: {because}"
                )


def checkpoint_lost(place: Place, floor: int) -> JobError:
    """No keeper has the checkpoint of a range."""
    return JobError(
        f"the checkpoint of {place.operator} {place.keys} at epoch {floor} is lost: the"
        " processes that held it are gone too",
        hint="Keep more copies (copies=2), on nodes that do not fail together.",
    )
