"""What the controller does with a view of the job: a pure function.

First reflect what is reported, then decide. A view holds what every instance last said and which
died; the answer is commands, each with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from raystream.controller.report import Progress


@dataclass(frozen=True, slots=True)
class View:
    """What is known of a running job.

    progress: the last report of every instance that the assignment names. dead: those of them whose
    process is gone. finished: those that said that their work is done. failed: what a user's
    function raised, by instance. committed: the newest committed cut. sources: those instances that
    are of sources. cuts: cuts beside every `cut_every`-th epoch. stateless: no checkpoints are
    taken, so there is no cut before the end. pinned: somebody is given state at `committed`, so
    that stays the floor.
    """

    progress: tuple[Progress, ...]
    dead: frozenset[str]
    finished: frozenset[str]
    failed: tuple[tuple[str, str], ...]
    committed: int
    cut_every: int
    sources: frozenset[str] = frozenset()
    cuts: tuple[int, ...] = ()
    stateless: bool = False
    pinned: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """The cut at `epoch` is stored for every range: it is the new floor."""

    epoch: int
    because: str


@dataclass(frozen=True, slots=True)
class Recover:
    """Put other instances into the place of these, from the cut at `floor` on."""

    instances: tuple[str, ...]
    floor: int
    because: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End the job; `failed` says whether it could not go on."""

    failed: bool
    because: str


Command = Commit | Recover | Stop


def decide(view: View) -> list[Command]:
    """The commands that follow from a view."""
    if view.failed:
        name, reason = view.failed[0]
        return [Stop(True, f"{name}: {reason}")]
    recover = recoveries(view)
    if recover:
        return list(recover)
    if view.progress and all(p.name in view.finished | view.dead for p in view.progress):
        return [Stop(False, "all input was processed")]
    floor = floor_of(view)
    if floor > view.committed and not view.pinned:
        return [Commit(floor, f"every range is stored at the cut {floor}")]
    return []


def recoveries(view: View) -> list[Recover]:
    """The dead that others have to replace, by where these begin.

    Who had ended and is committed goes on from its end, a source at the floor, to say so once more.
    Others need nothing of it; but its range may be moved, and every cut that is saved has what it
    was. Once all are over only a sink is missed that was not closed.
    """
    over = {p.name: p for p in view.progress if p.ended and p.position <= view.committed}
    ending = len(over) == len(view.progress)
    begin: dict[int, list[str]] = {}
    for name in sorted(view.dead):
        end = over.get(name)
        if ending and end is not None and (end.closed or name in view.finished):
            continue
        at = view.committed if end is None or name in view.sources else end.position
        begin.setdefault(at, []).append(name)
    return [Recover(tuple(ns), at, f"{', '.join(ns)} died") for at, ns in begin.items()]


def floor_of(view: View) -> int:
    """The newest cut that every instance has applied and stored; at the end, the last epoch.

    An instance that has ended is at every later cut as it was at its end. A cut that one of them
    could not store is given up: the next that all have is the floor.
    """
    if not view.progress:
        return view.committed
    going = [p for p in view.progress if not (p.ended and p.stored >= p.position)]
    if not going:
        return max(p.position for p in view.progress)
    if view.stateless:
        return view.committed
    reached = min(min(p.position, p.stored) for p in going)
    regular = reached // view.cut_every * view.cut_every
    cut = max(regular, *(e for e in view.cuts if e <= reached), 0)
    if any(cut < p.since for p in view.progress):
        return view.committed
    return max(view.committed, cut)


class Untold(NamedTuple):
    """What an instance was not told, as far as it said last."""

    assignment: bool
    floor: bool
    keepers: bool


def behind(progress: Progress, version: int, committed: int, shown: int, kept: int) -> Untold:
    """What to tell an instance again: a call may be lost with its connection.

    Args:
        version, committed, kept: the newest assignment, floor and choice of keepers. shown: up to
            which epoch sinks may show what they wrote.
    """
    floor = progress.floor < committed or progress.shown < shown
    return Untold(progress.version < version, floor, progress.kept < kept)
