"""The assignment: routing state. Which instance serves which range of which vertex since when.

Assignments are values with a version; the newest wins. Owners of one vertex tile its key groups
for every epoch; candidates catch up beside them and own nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from raystream.errors import InternalError
from raystream.schema.types import KeyRange

FOREVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Serving:
    """An instance that serves a range: its owner for epochs `first` to `last`, or a candidate.

    instance: its identity, never used again. address: where its logs are served.
    """

    vertex: int
    keys: KeyRange
    instance: str
    address: str
    first: int = 1
    last: int = FOREVER
    candidate: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """Who serves what. The empty assignment has version 0.

    cuts: epochs at whose end there is a checkpoint, besides every n-th.
    """

    version: int = 0
    serving: tuple[Serving, ...] = ()
    cuts: tuple[int, ...] = ()

    def of(self, vertex: int) -> tuple[Serving, ...]:
        """Everybody who serves ranges of a vertex, owners and candidates, by range."""
        return tuple(sorted((s for s in self.serving if s.vertex == vertex), key=_by_range))

    def owners(self, vertex: int, epoch: int) -> tuple[Serving, ...]:
        """The owners of a vertex for an epoch, by range."""
        return tuple(s for s in self.of(vertex) if not s.candidate and s.first <= epoch <= s.last)

    def instance(self, name: str) -> Serving | None:
        """What an instance serves."""
        return next((s for s in self.serving if s.instance == name), None)

    def with_candidates(self, new: Iterable[Serving]) -> Assignment:
        """The next version: these instances catch up."""
        added = tuple(replace(s, candidate=True) for s in new)
        return self._next(self.serving + added)

    def handed_over(self, names: Iterable[str], epoch: int, groups: int) -> Assignment:
        """The next version: these candidates own their ranges after `epoch`; who served any of them
        before is gone.

        Raises:
            InternalError: the owners would not tile the key groups.
        """
        taking = {s.instance: s for s in self.serving if s.instance in set(names)}
        ranges = [(s.vertex, s.keys) for s in taking.values()]
        kept = tuple(
            s
            for s in self.serving
            if s.instance not in taking
            and not any(v == s.vertex and overlap(s.keys, keys) for v, keys in ranges)
        )
        owners = tuple(replace(s, first=epoch + 1, candidate=False) for s in taking.values())
        after = self._next(kept + owners)
        for vertex in {v for v, _ in ranges}:
            after.check(vertex, epoch + 1, groups)
        return after

    def replaced(self, gone: Iterable[str], new: Iterable[Serving]) -> Assignment:
        """The next version: `new` serve instead of those who are gone."""
        return self._next(self.without(gone).serving + tuple(new))

    def without(self, names: Iterable[str]) -> Assignment:
        """The next version: these instances are gone; their ranges may be nobody's."""
        gone = set(names)
        return self._next(tuple(s for s in self.serving if s.instance not in gone))

    def cut_at(self, epoch: int, floor: int) -> Assignment:
        """The next version: there is a checkpoint at `epoch` too; cuts up to the floor are over."""
        cuts = {epoch, *(e for e in self.cuts if e > floor)}
        return replace(self, version=self.version + 1, cuts=tuple(sorted(cuts)))

    def _next(self, serving: tuple[Serving, ...]) -> Assignment:
        return replace(self, version=self.version + 1, serving=serving)

    def check(self, vertex: int, epoch: int, groups: int) -> None:
        """Assert that the owners of a vertex tile its key groups.

        Raises:
            InternalError: they do not; it names the hole or overlap.
        """
        at = 0
        for s in self.owners(vertex, epoch):
            if s.keys.lo != at:
                raise InternalError(
                    f"vertex {vertex} at epoch {epoch}: key groups from {min(at, s.keys.lo)} have"
                    f" {'no owner' if s.keys.lo > at else 'two owners'}"
                )
            at = s.keys.hi
        if at != groups:
            raise InternalError(f"vertex {vertex} at epoch {epoch}: nobody owns [{at}, {groups})")


def overlap(a: KeyRange, b: KeyRange) -> bool:
    """Whether two ranges have a key group in common."""
    return a.lo < b.hi and b.lo < a.hi


def _by_range(s: Serving) -> tuple[int, int, str]:
    return s.keys.lo, s.keys.hi, s.instance
