"""Recovery: who takes the place of an instance that died, and when to give up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from raystream.dataflow.plan import Plan
from raystream.errors import JobError, LostError, lost
from raystream.schema.types import KeyRange
from raystream.state.keys import even_ranges

ATTEMPTS_MAX = 5
"""So often other processes are tried when those that take a place die as well."""
DEATHS_MAX = 10
"""So many deaths of one range without a new floor in between are not bad luck: the job stops."""

Mode = Literal["state", "upstream", "source"]
"""What a recovery starts from, in the words of SEEP (SIGMOD 2013): checkpointed state, and what
came after it from the upstream logs ("state"); all that the upstream logs hold, from the first
epoch on ("upstream"); the sources alone, through all that is between ("source")."""


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


def successors(place: Place, into: int, free: int) -> tuple[Place, ...]:
    """The places of those that come after an instance, which share its range evenly.

    Args:
        into: how many there are to be, as long as the range has key groups for them.
        free: the least index that no instance of the operator ever had.
    """
    lo = place.keys.lo
    shares = even_ranges(len(place.keys), min(into, len(place.keys)))
    first, *others = [KeyRange(lo + share.lo, lo + share.hi) for share in shares]
    return (
        replace(place, keys=first, number=place.number + 1),
        *(replace(place, keys=k, index=free + i, number=0) for i, k in enumerate(others)),
    )


def widened(gone: Iterable[Place], places: Iterable[Place], plan: Plan, mode: Mode) -> set[str]:
    """The names of all that have to be made again when these are gone.

    Where only sources keep what they sent, whatever is between them and the dead is made again.
    """
    names = {p.name for p in gone}
    if mode != "source":
        return names
    again: set[int] = set()
    front = [p.vertex for p in gone]
    while front:
        for edge in plan.vertices[front.pop()].inputs:
            if edge.producer not in again and plan.vertices[edge.producer].kind != "source":
                again.add(edge.producer)
                front.append(edge.producer)
    return names | {p.name for p in places if p.vertex in again}


def passed_on(plan: Plan, positions: Mapping[int, int]) -> dict[int, int]:
    """By vertex, sources left out, the epoch up to which all its consumers have its output.

    Args:
        positions: by vertex the least position of its instances.
    """
    between = [v for v in plan.vertices if v.kind != "source" and v.outputs]
    return {v.id: min(positions.get(e.consumer, 0) for e in v.outputs) for v in between}


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


def checkpoint_lost(place: Place, floor: int) -> LostError:
    """No keeper has the checkpoint of a range."""
    return lost(
        f"the checkpoint of {place.operator} {place.keys} at epoch {floor} is lost: the"
        " processes that held it are gone too"
    )
