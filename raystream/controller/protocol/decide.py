"""What the controller decides from what it knows of the job: a pure function.

A view holds what every instance last reported, and which instances died. The answer is decisions,
each with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from raystream.dataflow.checkpoint_epochs import newest_regular
from raystream.dataflow.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """What is known of a running job."""

    progress: tuple[Progress, ...]
    """The last progress of every instance that the assignment names."""
    dead: frozenset[str]
    """The names of those instances whose process is gone."""
    left: frozenset[str] = frozenset()
    """Of the dead the names of those whose keepers are alive, and are those that they knew of."""
    finished: frozenset[str]
    """The names of those instances that said that their work is done."""
    failed: tuple[tuple[str, str], ...]
    """What users' functions raised: (name of the instance, error)."""
    committed: int
    """The newest committed checkpoint."""
    checkpoint_every: int
    """Every epoch whose number is a multiple of this is a checkpoint."""
    sources: frozenset[str] = frozenset()
    """The names of the instances of sources."""
    checkpoints: tuple[int, ...] = ()
    """The on-demand checkpoints."""
    stateless: bool = False
    """Whether the job takes no checkpoints: then nothing is committed before its end."""
    pinned: bool = False
    """Whether a new instance is being given state at `committed`: nothing newer is committed
    meanwhile."""


@dataclass(frozen=True, slots=True)
class Commit:
    """The checkpoint at `epoch` is stored for every range: it is committed now."""

    epoch: int
    because: str


@dataclass(frozen=True, slots=True)
class Recover:
    """Replace these instances by new ones that start from the checkpoint at `committed`."""

    instances: tuple[str, ...]
    committed: int
    because: str


@dataclass(frozen=True, slots=True)
class Stop:
    """End the job; `failed` says whether this is because it could not go on."""

    failed: bool
    because: str


Decision = Commit | Recover | Stop


def decide(view: JobView) -> list[Decision]:
    """The decisions that follow from a view."""
    if view.failed:
        name, reason = view.failed[0]
        return [Stop(True, f"{name}: {reason}")]
    recover = recoveries(view)
    if recover and (committed := newest_left(view)) > view.committed:
        return [_commit(committed), *recoveries(replace(view, committed=committed))]
    if recover:
        return list(recover)
    if view.progress and all(p.name in view.finished | view.dead for p in view.progress):
        return [Stop(False, "all input was processed")]
    committed = newest_stored(view)
    if committed > view.committed and not view.pinned:
        return [_commit(committed)]
    return []


def _commit(epoch: int) -> Commit:
    return Commit(epoch, f"every range is stored at checkpoint {epoch}")


def recoveries(view: JobView) -> list[Recover]:
    """The dead instances that new ones have to replace, by the epoch from which these start.

    The replacement of an instance whose end was committed starts from that end; that of a source
    starts from the committed checkpoint, and announces its end again. Nobody reads from such an
    instance any more, but it is still needed: its range may be moved, and every checkpoint that is
    saved includes its final state. Once the ends of all instances are committed, only a sink that
    was not closed is replaced.
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


def newest_stored(view: JobView) -> int:
    """The newest checkpoint that every instance has applied and stored; at the end, the last epoch.

    An instance that has ended keeps its final state, which counts for every later checkpoint. A
    checkpoint that some instance could not store is skipped: the next one that all have stored
    counts.
    """
    if not view.progress:
        return view.committed
    going = [p for p in view.progress if not (p.ended and p.stored >= p.position)]
    if not going:
        return max(p.position for p in view.progress)
    if view.stateless:
        return view.committed
    reached = min(min(p.position, p.stored) for p in going)
    skipped = [run for p in view.progress for run in p.skipped]
    regular = newest_regular(view.checkpoint_every, reached, view.committed, skipped)
    checkpoint = max(regular, *(e for e in view.checkpoints if e <= reached), 0)
    if any(checkpoint < p.since for p in view.progress):
        return view.committed
    return max(view.committed, checkpoint)


def newest_left(view: JobView) -> int:
    """The newest checkpoint that can be committed although instances are dead: every instance has
    stored it, also the dead, and their keepers have it still. It is as if these had only been slow
    to die. The new instances begin from there, unless they are being given state already.

    Without it, a job whose instances die faster than all of them are there again at one time would
    begin again and again from the same checkpoint.
    """
    committed = newest_stored(view)
    dead = [p for p in view.progress if p.name in view.dead]
    if view.pinned or len(dead) < len(view.dead) or not view.dead <= view.left:
        return view.committed
    for p in dead:
        over = p.ended and p.position <= committed and p.name not in view.sources
        if over or p.kept_at >= min(committed, p.position):
            return view.committed  # one that is over begins from its end
    return committed


class Untold(NamedTuple):
    """What an instance did not know when it last reported."""

    assignment: bool
    """Whether it did not know the newest assignment."""
    committed: bool
    """Whether it did not know the committed checkpoint, or up to where sinks may publish."""
    keepers: bool
    """Whether it did not know the newest choice of its keepers."""


def behind(
    progress: Progress, version: int, committed: int, published_upto: int, kept: int
) -> Untold:
    """What an instance has to be told again, because a call may be lost with its connection.

    Args:
        version: of the newest assignment.
        committed: the committed checkpoint.
        published_upto: the epoch up to which sinks may publish what they wrote.
        kept: the number of the newest choice of its keepers.
    """
    committed = progress.committed < committed or progress.published_upto < published_upto
    return Untold(progress.version < version, committed, progress.kept < kept)
