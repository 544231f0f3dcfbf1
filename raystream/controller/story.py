"""The story of a job: what was decided, why, and how long it took, in order, as words."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from raystream.controller.report import Moved, Recovery

NOTES_MAX = 100
"""So many notes are kept of a job, the newest."""
AGAIN_SECONDS = 60.0
"""What was not said for so long is told again."""


class Notes:
    """What is said beside recoveries and moves.

    What is said again and again is told once; and again if it was not said for a while.
    said: seconds since the start, and what was told then.
    """

    def __init__(self) -> None:
        self._told: deque[tuple[float, str]] = deque(maxlen=NOTES_MAX)
        self._last: dict[str, float] = {}  # when each thing was said last, in that order

    @property
    def said(self) -> tuple[tuple[float, str], ...]:
        return tuple(self._told)

    def say(self, text: str, t: float) -> None:
        """Say something at t seconds after the start."""
        before = self._last.pop(text, None)
        if before is None or t - before > AGAIN_SECONDS:
            self._told.append((t, text))
        self._last[text] = t
        while len(self._last) > NOTES_MAX:
            del self._last[next(iter(self._last))]


@dataclass(frozen=True, slots=True)
class Told:
    """One thing that happened to a job.

    t: seconds since the start. kind: "recovery", "scale out", "scale in", "move" or "note". what:
    what came of it; because: why. phases: (name, seconds), one after the other. failed: it was
    given up. nbytes: of state that moved.
    """

    t: float
    kind: str
    what: str
    because: str
    phases: tuple[tuple[str, float], ...] = ()
    failed: bool = False
    nbytes: int = 0


def story(
    recoveries: Iterable[Recovery] = (),
    moved: Iterable[Moved] = (),
    notes: Iterable[tuple[float, str]] = (),
) -> tuple[Told, ...]:
    """All that happened, in order. notes: seconds since the start, and what was said then."""
    told = [*map(_recovery, recoveries), *map(_move, moved)]
    told += [Told(t, "note", text, "") for t, text in notes]
    return tuple(sorted(told, key=lambda x: x.t))


def _recovery(r: Recovery) -> Told:
    what = f"{_names(r.gone)} replaced by {_names(r.new)}, which went on from epoch {r.floor:,}"
    return Told(r.t, "recovery", what, r.because, (("restore", r.seconds),))


def _move(m: Moved) -> Told:
    before, after = len(m.gone), len(m.new)
    kind = "scale out" if after > before else "scale in" if after < before else "move"
    if m.failed:
        return Told(m.t, "move", f"{m.operator} stays as it is: {m.failed}", m.because, (), True)
    if after == len(m.ranges):
        into = ", ".join(f"{n} {k}" for n, k in zip(m.new, sorted(m.ranges), strict=True))
    else:  # other ranges of the operator stayed with their owners
        into = f"{_names(m.new)} of {' '.join(map(str, m.ranges))}"
    what = f"{_names(m.gone)} became {into}, from epoch {m.floor:,} ({m.mode})"
    what += f", at the {m.tries}. attempt" if m.tries > 1 else ""
    phases = (("place", m.place), ("restore", m.restore), ("replay", m.replay))
    return Told(m.t, kind, what, m.because, phases, nbytes=m.nbytes)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(names)
