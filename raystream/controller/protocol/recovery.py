"""Recovery: the places of the instances that replace a dead one, and when to give up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from raystream.dataflow.plan import Plan
from raystream.errors import JobError, LostError, lost
from raystream.schema.types import KeyRange
from raystream.state.keys import even_ranges

ATTEMPTS_MAX = 5
"""How many attempts a placement has when the processes that take its places die as well."""
DEATHS_MAX = 10
"""With more deaths of one range than this since the last commit, the job stops: that is no bad
luck."""

ALONE = -1
"""The bundle of a place that shares a process with no other one."""


@dataclass(frozen=True, slots=True)
class Place:
    """What an instance is to be."""

    vertex: int
    """The number of its vertex in the plan."""
    operator: str
    """The name of that vertex."""
    keys: KeyRange
    """The key groups that it serves."""
    index: int
    """The number that tells it from the other instances of the vertex."""
    number: int = 0
    """How many instances have had the place before it."""
    bundle: int = ALONE
    """The number of its bundle: places of one bundle share a process and its thread."""
    apart: bool = False
    """Whether it has a process of its own for now, because the thread of its bundle was busy."""
    left: int = 0
    """How many times it has left that thread."""

    @property
    def name(self) -> str:
        """The identity of the instance that has the place, never used again."""
        return f"{self.operator}/{self.index}" + (f".{self.number}" if self.number else "")


def successors(place: Place, into: int, free: int) -> tuple[Place, ...]:
    """The places of the instances that replace one: they share its range evenly.

    Args:
        into: how many there are to be, at most one for each key group of the range.
        free: the least index that no instance of the operator has ever had.
    """
    lo = place.keys.lo
    shares = even_ranges(len(place.keys), min(into, len(place.keys)))
    first, *others = [KeyRange(lo + share.lo, lo + share.hi) for share in shares]
    return (
        replace(place, keys=first, number=place.number + 1),
        *(Place(place.vertex, place.operator, keys, free + i) for i, keys in enumerate(others)),
    )


def passed_on(plan: Plan, positions: Mapping[int, int]) -> dict[int, int]:
    """By vertex, the epoch up to which all its consumers have applied its output; without sources,
    and without vertices from which nobody reads.

    Args:
        positions: by vertex, the least position of its instances.
    """
    between = [v for v in plan.vertices if v.kind != "source" and v.outputs]
    return {v.id: min(positions.get(e.consumer, 0) for e in v.outputs) for v in between}


class Deaths:
    """Counts the deaths of each range since the last commit."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, KeyRange], int] = {}

    def moved(self) -> None:
        """A newer checkpoint was committed."""
        self._counts.clear()

    def died(self, places: Iterable[Place], committed: int, because: str) -> None:
        """The instances of these places died.

        Raises:
            JobError: instances of one of the ranges died too often since the last commit.
        """
        for place in places:
            at = (place.vertex, place.keys)
            self._counts[at] = self._counts.get(at, 0) + 1
            if self._counts[at] > DEATHS_MAX:
                raise JobError(
                    f"{place.operator} {place.keys} died {DEATHS_MAX + 1} times without"
                    f" getting past epoch {committed}: {because}"
                )


def checkpoint_lost(place: Place, committed: int) -> LostError:
    """The error when no keeper has the checkpoint of a range."""
    return lost(
        f"the checkpoint of {place.operator} {place.keys} at epoch {committed} is lost: the"
        " processes that held it are gone too"
    )
