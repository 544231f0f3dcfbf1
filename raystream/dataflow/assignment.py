"""The assignment, or routing state: which instance serves which range of a vertex, from when on.

Assignments are values with a version; the newest wins. Owners of one vertex tile its key groups
for every epoch; candidates catch up beside them and own nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, replace

from raystream.dataflow.upgrading.versions import CodeVersion, version_at
from raystream.errors import InternalError
from raystream.schema.types import KeyRange

FOREVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Serving:
    """An instance that serves a range, as its owner or as a candidate."""

    vertex: int
    keys: KeyRange
    """The range."""
    instance: str
    """The name of the instance, which is never used again."""
    address: str
    """Where its logs are served."""
    _: KW_ONLY
    first: int = 1
    """The first epoch that it owns the range for."""
    last: int = FOREVER
    """The last epoch that it owns the range for."""
    candidate: bool = False
    """Whether it only catches up to own the range later."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which instances serve which ranges. The empty assignment has version 0."""

    version: int = 0
    serving: tuple[Serving, ...] = ()
    checkpoints: tuple[int, ...] = ()
    """On-demand checkpoints: epochs at whose end there is a checkpoint, besides every n-th."""
    stop_at: int = 0
    """The on-demand checkpoint with which the job is to be stopped: a source that comes to it emits
    nothing after it. 0: none. A later assignment may name a later one."""
    versions: tuple[CodeVersion, ...] = ()
    """The versions of the code from which instances may have to begin or to go on, the oldest
    first; none before the first upgrade. Only the last may be one that is not settled."""

    def of(self, vertex: int) -> tuple[Serving, ...]:
        """The instances that serve ranges of a vertex, owners and candidates, by range."""
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
        """The next version: these candidates own their ranges after `epoch`, and the instances that
        served any part of them before are gone.

        Raises:
            InternalError: the owners would not tile the key groups.
        """
        taking = {s.instance: s for s in self.serving if s.instance in set(names)}
        ranges = [(s.vertex, s.keys) for s in taking.values()]
        kept = tuple(
            s
            for s in self.serving
            if s.instance not in taking
            and not any(v == s.vertex and s.keys.overlaps(keys) for v, keys in ranges)
        )
        owners = tuple(replace(s, first=epoch + 1, candidate=False) for s in taking.values())
        after = self._next(kept + owners)
        for vertex in {v for v, _ in ranges}:
            after.check(vertex, epoch + 1, groups)
        return after

    def replaced(self, gone: Iterable[str], new: Iterable[Serving]) -> Assignment:
        """The next version: the instances `new` serve instead of those that are gone."""
        return self._next(self.without(gone).serving + tuple(new))

    def without(self, names: Iterable[str]) -> Assignment:
        """The next version: these instances are gone; their ranges may be left without an owner."""
        gone = set(names)
        return self._next(tuple(s for s in self.serving if s.instance not in gone))

    def checkpoint_at(self, epoch: int, committed: int, *, stop: bool = False) -> Assignment:
        """The next version: there is a checkpoint at `epoch` too. On-demand checkpoints up to the
        committed one are dropped from it. stop: whether sources emit nothing after it."""
        checkpoints = {epoch, *(e for e in self.checkpoints if e > committed)}
        return replace(
            self,
            version=self.version + 1,
            checkpoints=tuple(sorted(checkpoints)),
            stop_at=epoch if stop else self.stop_at,
        )

    def proposing(self, version: CodeVersion, since: int) -> Assignment:
        """The next version: this version of the code is proposed; none that was before is. Of the
        settled ones those stay from which an instance may begin.

        Args:
            since: the oldest checkpoint from which one may.
        """
        begun = version_at(self.settled, since)
        first = 0 if begun is None else begun.number
        stay = tuple(v for v in self.settled if v.number >= first)
        return replace(self, version=self.version + 1, versions=(*stay, version))

    def settling(self) -> Assignment:
        """The next version: the version of the code that was proposed is settled."""
        *before, last = self.versions
        versions = (*before, replace(last, settled=True))
        return replace(self, version=self.version + 1, versions=versions)

    def taking_back(self) -> Assignment:
        """The next version: no version of the code is proposed any more."""
        return replace(self, version=self.version + 1, versions=self.settled)

    @property
    def settled(self) -> tuple[CodeVersion, ...]:
        """The versions of the code that are settled."""
        return tuple(v for v in self.versions if v.settled)

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


def _by_range(s: Serving) -> tuple[int, int, str]:
    return s.keys.lo, s.keys.hi, s.instance
