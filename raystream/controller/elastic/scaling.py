"""Automatic scaling: what a policy finds in a running job, as requests for moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from raystream.controller.elastic.detector import Detector, Owner, interval_of
from raystream.controller.elastic.policy import Policy
from raystream.controller.protocol.members import Member
from raystream.controller.protocol.move_requests import Move, RescaleRequest
from raystream.dataflow.plan import Plan


class Wishes(NamedTuple):
    """What is to be done for the load of a job."""

    wanted: tuple[RescaleRequest, ...]
    """What is to change."""
    notes: tuple[str, ...]
    """What people should be told, and were not told before."""


class Scaling:
    """Judges the load of a running job and requests changes.

    Args:
        bounds: by operator, the least and the greatest number of its instances; see `Detector`.

    Raises:
        ConfigError: the bounds do not fit the plan.
    """

    def __init__(
        self, plan: Plan, policy: Policy, bounds: Mapping[str, tuple[int, int]] | None = None
    ) -> None:
        self._detector = Detector(plan, policy, bounds, cooldown=2 * interval_of(policy))
        self._operators = tuple(v.name for v in plan.vertices)

    def look(self, owners: Iterable[Member], moves: Iterable[Move], now: float) -> Wishes:
        """What follows from what the owners of all ranges said last.

        Args:
            owners: of all ranges of the job.
            moves: those under way.
            now: seconds from the start of the job.
        """
        mine: dict[str, list[Owner]] = {name: [] for name in self._operators}
        changing = {move.operator for move in moves}
        for m in sorted(owners, key=lambda m: m.record.place.keys):
            place = m.record.place
            mine[place.operator].append(Owner(m.name, place.keys))
            if m.dead or m.progress is None or m.progress.ended:
                changing.add(place.operator)
            else:
                self._detector.heard(m.progress, place.keys, now)
        found = self._detector.decide(mine, changing, now)
        wanted = tuple(RescaleRequest(t.operator, t.ranges, t.because) for t in found.targets)
        return Wishes(wanted, found.notes)
