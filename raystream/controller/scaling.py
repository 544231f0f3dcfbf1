"""Scaling by itself: what a policy finds in a running job, as wishes for moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from raystream.controller.detector import Detector, Owner
from raystream.controller.members import Member
from raystream.controller.moves import Move, Wanted
from raystream.controller.policy import Policy
from raystream.dataflow.plan import Plan


class Wishes(NamedTuple):
    """wanted: what is to change. notes: what is to be said, for people, and was not before."""

    wanted: tuple[Wanted, ...]
    notes: tuple[str, ...]


class Scaling:
    """Judges the load of a running job and says what is to change.

    Args:
        bounds: by operator how few and how many instances it may have; see `Detector`.

    Raises:
        ConfigError: the bounds do not fit the plan.
    """

    def __init__(
        self, plan: Plan, policy: Policy, bounds: Mapping[str, tuple[int, int]] | None = None
    ) -> None:
        self._detector = Detector(plan, policy, bounds, cooldown=2 * policy.interval)
        self._operators = tuple(v.name for v in plan.vertices)

    def look(self, owners: Iterable[Member], moves: Iterable[Move], now: float) -> Wishes:
        """What follows from what the owners of all ranges said last.

        Args:
            moves: those under way. now: seconds from the start of the job.
        """
        mine: dict[str, list[Owner]] = {name: [] for name in self._operators}
        changing = {move.operator for move in moves}
        for m in sorted(owners, key=lambda m: m.seat.place.keys):
            place = m.seat.place
            mine[place.operator].append(Owner(m.name, place.keys))
            if m.dead or m.progress is None or m.progress.ended:
                changing.add(place.operator)
            else:
                self._detector.heard(m.progress, place.keys, now)
        found = self._detector.decide(mine, changing, now)
        wanted = tuple(Wanted(t.operator, t.ranges, t.because) for t in found.targets)
        return Wishes(wanted, found.notes)
