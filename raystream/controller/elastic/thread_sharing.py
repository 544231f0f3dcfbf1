"""Shared threads: which instance leaves one that has no time left, and which comes back to one that
has.

An instance leaves as soon as the thread was too busy between two looks, if that helps: what it then
sends and takes through the network costs the thread time too. It comes back only when the
thread, with it, would have had much time left for a while, and after each time that it has left
this takes twice as long. So a load that rises and falls moves it a few times, and then hardly ever.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from raystream.controller.protocol.members import BundleThread, Member
from raystream.controller.protocol.move_requests import RescaleRequest, ThreadUse, elsewhere
from raystream.dataflow.plan import Plan
from raystream.dataflow.progress import Spent

LOOK_SECONDS = 5.0
"""How often the controller checks how busy shared threads are."""
BUSY_SHARE = 0.5
"""A thread that is busy for more than this part of the time is shared by too many."""
ROUND_SECONDS = 0.0003
"""What a thread needs at most to send a message to another process, and to take one. An instance
that works for less at a time costs the thread no more than its absence would: it stays."""
CALM_SHARE = 0.3
"""An instance comes back to a thread that would be busy for less than this part of the time."""
CALM_SECONDS = 60.0
"""For how long that must have been so if the instance has left the thread once."""
CALM_SECONDS_MAX = 3600.0
"""For how long at most, however often it has left."""


class ThreadPart(NamedTuple):
    """What an instance takes of a thread's time, or would take."""

    instance: str
    """Its name."""
    operator: str
    """The name of its operator, source or sink."""
    kind: str
    """"source", "operator" or "sink"."""
    share: float | None
    """The part of the time, 0 to 1, for which it was busy between the last two looks; None if it
    was not there at the first of these."""
    left: int = 0
    """How many times it has left the thread."""
    round_seconds: float = math.inf
    """For how many seconds it worked at a time, between two waits for input."""


class Turn(NamedTuple):
    """An instance that is to leave a shared thread, or to come back to it."""

    part: ThreadPart
    """The instance that is moved."""
    thread: ThreadUse
    """Where it is to be."""
    because: str
    """Why."""

    def request(self, owners: Iterable[Member]) -> RescaleRequest:
        """The request for it. owners: of all ranges of the job."""
        owned = {m.name: (m.record.place.operator, m.record.place.keys) for m in owners}
        wanted = elsewhere(self.part.instance, "", owned, self.because, "handover")
        return replace(wanted, thread=self.thread)


def calm_seconds(left: int) -> float:
    """How long a thread must have had time before an instance comes back that has left it so
    often."""
    return min(CALM_SECONDS * 2.0 ** (left - 1), CALM_SECONDS_MAX)


def leaving(here: Sequence[ThreadPart]) -> Turn | None:
    """Where the thread is too busy, the busiest of the instances whose absence helps leaves it. A
    source stays. A sink is ended before another one begins in its place, so an operator goes rather
    than a sink."""
    busy = sum(p.share or 0.0 for p in here)
    movable = [p for p in here if p.kind != "source" and p.round_seconds > ROUND_SECONDS]
    if busy <= BUSY_SHARE or len(here) < 2 or not movable:
        return None
    of = [p for p in movable if p.kind == "operator"] or movable
    because = f"the thread that it shares is busy for {busy:.0%} of the time"
    return Turn(max(of, key=lambda p: p.share or 0.0), "apart", because)


def is_calm(here: Sequence[ThreadPart], part: ThreadPart) -> bool:
    """Whether a thread would have enough time with one more instance."""
    shares = [p.share for p in (*here, part)]
    return bool(here) and None not in shares and sum(filter(None, shares)) < CALM_SHARE


def returning(apart: Iterable[ThreadPart], calm: Mapping[str, float]) -> Turn | None:
    """The first instance that may come back to its thread.

    Args:
        calm: by instance, the seconds for which its thread would have had time with it.
    """
    for part in apart:
        if calm.get(part.instance, 0.0) >= (least := calm_seconds(part.left)):
            because = (
                f"the thread that it has left would have been busy with it for less than"
                f" {CALM_SHARE:.0%} of the time, for {least:g} s"
            )
            return Turn(part, "together", because)
    return None


class ThreadSharing:
    """Looks at the shared threads of a running job, and requests moves."""

    def __init__(self, plan: Plan) -> None:
        self._kinds = [v.kind for v in plan.vertices]
        self._spent: dict[str, Spent] = {}
        """By instance, what it had done with its time at the last look."""
        self._calm: dict[str, float] = {}
        """By instance that has left its thread, since when this would have had time with it."""
        self._looked = 0.0

    def is_due(self, now: float) -> bool:
        """Whether it is time for the next look, in seconds."""
        return now >= self._looked + LOOK_SECONDS

    def look(
        self, threads: Iterable[BundleThread], now: float, busy: Collection[str] = ()
    ) -> tuple[Turn, ...]:
        """What follows from what instances said last: one move at most, none before it is due.

        Args:
            now: in seconds.
            busy: operators that are not to be moved now.
        """
        if not self.is_due(now):
            return ()
        self._looked = now
        before, self._spent = self._spent, {}
        leave, back, calm = list[Turn | None](), list[Turn | None](), dict[str, float]()
        for thread in threads:
            here = [self._part(m, before) for m in thread.here]
            apart = [self._part(m, before) for m in thread.apart]
            if any(m.dead for m in (*thread.here, *thread.apart)):
                continue
            leave.append(leaving(here))
            for part in apart:
                if is_calm(here, part):
                    calm[part.instance] = self._calm.get(part.instance, now)
            back.append(returning(apart, {name: now - since for name, since in calm.items()}))
        self._calm = calm
        return tuple(t for t in (*leave, *back) if t and t.part.operator not in busy)[:1]

    def _part(self, m: Member, before: Mapping[str, Spent]) -> ThreadPart:
        """What an instance takes."""
        place = m.record.place
        if (p := m.progress) is not None:
            self._spent[m.name] = Spent(p.seconds, p.busy, p.blocked, p.rounds)
        now, then = self._spent.get(m.name), before.get(m.name)
        part = ThreadPart(m.name, place.operator, self._kinds[place.vertex], None, place.left)
        if now is None or then is None or now.seconds <= then.seconds:
            return part
        busy, rounds = now.busy - then.busy, now.rounds - then.rounds
        return part._replace(
            share=busy / (now.seconds - then.seconds), round_seconds=busy / max(rounds, 1)
        )
