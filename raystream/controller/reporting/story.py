"""The story of a job: what was decided, why, and how long it took, in order and in words."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from raystream.controller.protocol.history import MoveRecord, Recovery, UpgradeRecord

NOTES_MAX = 100
"""How many notes are kept of a job: the newest."""
AGAIN_SECONDS = 60.0
"""A note that was not repeated for this long is shown again when it comes back."""


class Notes:
    """What a story has besides recoveries, moves and upgrades.

    A note that is repeated over and over is shown once, and again only after `AGAIN_SECONDS`
    without it.
    """

    def __init__(self) -> None:
        self._told: deque[tuple[float, str]] = deque(maxlen=NOTES_MAX)
        self._last: dict[str, float] = {}  # when each text was noted last, in that order

    @property
    def said(self) -> tuple[tuple[float, str], ...]:
        """The notes: seconds since the start, and the text."""
        return tuple(self._told)

    def say(self, text: str, t: float) -> None:
        """Note a text, t seconds after the start."""
        before = self._last.pop(text, None)
        if before is None or t - before > AGAIN_SECONDS:
            self._told.append((t, text))
        self._last[text] = t
        while len(self._last) > NOTES_MAX:
            del self._last[next(iter(self._last))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One thing that happened to a job."""

    t: float
    """Seconds since the job's start."""
    kind: str
    """One of "recovery", "scale out", "scale in", "move", "upgrade" and "note"."""
    what: str
    """What happened, in words."""
    because: str = ""
    """Why."""
    phases: tuple[tuple[str, float], ...] = ()
    """The names and seconds of its phases, in order."""
    failed: bool = False
    """Whether it was given up."""
    nbytes: int = 0
    """Bytes of state that moved."""


def story(
    recoveries: Iterable[Recovery] = (),
    moved: Iterable[MoveRecord] = (),
    notes: Iterable[tuple[float, str]] = (),
    upgraded: Iterable[UpgradeRecord] = (),
) -> tuple[Told, ...]:
    """All that happened, in order.

    Args:
        notes: seconds since the start, and the text.
    """
    told = [*map(_recovery, recoveries), *map(_move, moved), *map(_upgrade, upgraded)]
    told += [Told(t=t, kind="note", what=text) for t, text in notes]
    return tuple(sorted(told, key=lambda x: x.t))


def moved_line(moved: MoveRecord) -> str:
    """Which instances took over from which, and how long each phase took."""
    line = f"{moved.t:6.1f} s  {moved.operator} ({moved.because}): "
    if moved.failed:
        return f"{line}not moved, {moved.failed}"
    took = moved.place + moved.restore + moved.replay
    phases = f"place {moved.place:.1f}, restore {moved.restore:.1f}, replay {moved.replay:.1f}"
    new = ", ".join(moved.new) or "others"
    took_over = f"took over from {', '.join(moved.gone)}" if moved.gone else "were ready"
    began = f"{line}{new} began at checkpoint {moved.committed:,}"
    return f"{began} and {took_over} after {took:.1f} s ({phases})"


def _recovery(r: Recovery) -> Told:
    what = f"{_names(r.gone)} replaced by {_names(r.new)}, which went on from epoch {r.committed:,}"
    return Told(
        t=r.t, kind="recovery", what=what, because=r.because, phases=(("restore", r.seconds),)
    )


def _move(m: MoveRecord) -> Told:
    before, after = len(m.gone), len(m.new)
    kind = "scale out" if after > before else "scale in" if after < before else "move"
    if m.failed:
        return Told(
            t=m.t,
            kind="move",
            what=f"{m.operator} stays as it is: {m.failed}",
            because=m.because,
            failed=True,
        )
    if after == len(m.ranges):
        into = ", ".join(f"{n} {k}" for n, k in zip(m.new, sorted(m.ranges), strict=True))
    else:  # other ranges of the operator stayed with their owners
        into = _names(m.new)
    what = f"{_names(m.gone)} became {into}, from epoch {m.committed:,} ({m.mode})"
    what += f", at the {m.tries}. attempt" if m.tries > 1 else ""
    phases = (("place", m.place), ("restore", m.restore), ("replay", m.replay))
    return Told(t=m.t, kind=kind, what=what, because=m.because, phases=phases, nbytes=m.nbytes)


def _upgrade(u: UpgradeRecord) -> Told:
    what = f"the job keeps its code: {u.failed}"
    if not u.failed:
        what = f"other code from epoch {u.after + 1:,} on"
        what += f", the {u.tries}. that was proposed" if u.tries > 1 else ""
    return Told(
        t=u.t,
        kind="upgrade",
        what=f"{u.name}: {what}",
        because="asked for",
        phases=() if u.failed else (("settle", u.seconds),),
        failed=bool(u.failed),
    )


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names)
