"""Beginning: the processes of a placement become members, in one new assignment."""

from __future__ import annotations

from dataclasses import replace

from raystream.controller.protocol.history import Recovery
from raystream.controller.protocol.job import Job
from raystream.controller.protocol.journal import InstanceRecord
from raystream.controller.protocol.members import Member
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.parts.replication import keepers_for
from raystream.controller.protocol.placement import Placement
from raystream.controller.protocol.recovery import Place
from raystream.dataflow.assignment import Assignment, Serving

RECORDS_MAX = 1000
"""How many recoveries, and how many moves, are kept of a job: the newest."""


class Beginning:
    """Lets the processes of a placement begin to work."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def replace(self, p: Placement, **changes: object) -> list[Command]:
        """The processes of a placement begin in the places of those that are gone."""
        job, new = self._job, self.members_of(p)
        recoveries = job.entry.recoveries
        if p.gone and not p.operator:
            found = Recovery(
                t=p.began - job.started(),
                gone=tuple(m.name for m in p.gone),
                new=tuple(m.name for m in new),
                committed=p.committed,
                seconds=job.now - p.began,
                because=p.because,
            )
            recoveries = (*recoveries, found)[-RECORDS_MAX:]
        return self.take_over(p, new, recoveries=recoveries)

    def members_of(self, p: Placement) -> list[Member]:
        """The members that the processes of a placement become, in the order of their ranges,
        whichever was ready first."""
        job = self._job
        ready = sorted(p.ready.values(), key=lambda r: (r[1].vertex, r[1].keys))
        new = []
        for spare, place, address in ready:
            record = InstanceRecord(
                place=place,
                process=spare.process,
                node=spare.node,
                pid=spare.pid,
                address=address,
                kept=job.entry.kept,
                held=self._held(place),
            )
            new.append(Member(replace(record, keepers=keepers_for(job, record))))
        return new

    def _held(self, place: Place) -> frozenset[str]:
        """The keepers that hold the checkpoint this place starts from."""
        records = [m.record for m in self._job.members_of(place.vertex)]
        before = [r for r in records if r.place.keys.overlaps(place.keys)]
        return frozenset(k for r in before for k in (*r.keepers, *r.held))

    def take_over(self, p: Placement, new: list[Member], **changes: object) -> list[Command]:
        """New members begin in the places of those that are gone, in a new assignment."""
        job, names = self._job, [m.name for m in p.gone]
        job.members = [m for m in job.members if m not in p.gone] + new
        serving = [serving_of(m.record, p.committed + 1) for m in new]
        return self.begin(new, job.entry.assignment.replaced(names, serving), **changes)

    def begin(self, new: list[Member], assignment: Assignment, **changes: object) -> list[Command]:
        """New members begin to work."""
        job = self._job
        job.settled = job.now
        instances, started = tuple(m.record for m in job.members), job.started()
        commands = job.assign(assignment, instances=instances, started=started, **changes)
        return commands + [do.Begin(m.record, assignment, started) for m in new]


def serving_of(record: InstanceRecord, first: int) -> Serving:
    """What an instance serves as an owner from an epoch on."""
    place = record.place
    return Serving(place.vertex, place.keys, place.name, record.address, first=first)
