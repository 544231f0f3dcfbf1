"""Decisions: what is known of the job as a whole, and what follows from it. Also when a job is
given up because its state has filled a node."""

from __future__ import annotations

from raystream.controller.protocol.decide import Decision, JobView, decide
from raystream.controller.protocol.job import Job
from raystream.controller.protocol.members import Member
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.parts.checkpoints import OnDemandCheckpoints
from raystream.controller.protocol.shortage import Holder, shortage
from raystream.errors import RaystreamError
from raystream.native.memory import UNKNOWN
from raystream.schema.types import KeyRange

NEARLY = 0.95
"""A process that dies when its node used this share of what it may use has died of that."""


class Decisions:
    """Decides when to commit a checkpoint, which instances to replace, and when the job ends."""

    def __init__(self, job: Job, checkpoints: OnDemandCheckpoints) -> None:
        self._job = job
        self._checkpoints = checkpoints
        self._finished: set[str] = set()
        self._failed: list[tuple[str, RaystreamError]] = []
        self.memory = MemoryGuard(job)

    @property
    def failure(self) -> RaystreamError | None:
        """What the first instance that could not go on said; None while all can."""
        return self._failed[0][1] if self._failed else None

    def done(self, process: str, error: RaystreamError | None) -> bool:
        """The work of an instance is done, or it could not go on. Returns whether it was known to
        be at work."""
        member = self._job.member(process)
        if member is None or member.dead:
            return False
        if error is None:
            self._finished.add(member.name)
        else:
            self._failed.append((member.name, error))
        return True

    def due(self) -> list[Decision]:
        """The decisions that follow from what is known; none while a member was never heard."""
        members = self._job.members
        known = members and all(m.progress or m.dead for m in members)
        return decide(self.view()) if known else []

    def view(self) -> JobView:
        """What is known of the job."""
        job = self._job
        return JobView(
            progress=tuple(m.progress for m in job.members if m.progress is not None),
            dead=frozenset(m.name for m in job.members if m.dead),
            left=frozenset(m.name for m in job.members if m.dead and self._left(m)),
            finished=frozenset(self._finished),
            failed=tuple((name, str(error)) for name, error in self._failed),
            committed=job.entry.committed,
            checkpoint_every=job.plan.checkpoint_every,
            sources=frozenset(m.name for m in job.sources),
            checkpoints=self._checkpoints.known(),
            stateless=not job.strategy.stores_checkpoints,
            pinned=any(p.processes for p in job.placements),
        )

    def _left(self, dead: Member) -> bool:
        """Whether the keepers of a dead instance live and are those that it knew of."""
        living = {k.process for k in self._job.entry.keepers}
        known = dead.progress is not None and dead.progress.kept == dead.record.kept
        return known and bool(dead.record.keepers) and {*dead.record.keepers} <= living


class MemoryGuard:
    """Gives a job up when a node has no memory left because of the job's state. Otherwise Ray or
    the system kills processes of that node, the controller and keepers among them, and the ranges
    that were too large for one node go to the next."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._killed: set[tuple[int, KeyRange]] = set()
        self.kills: list[Command] = []
        """Ends the process that takes most of a node that is almost full, once the end of the job
        is written."""

    def look(self, process: str) -> None:
        """Look at what a process said last.

        Raises:
            StateError: its node is almost full, and this job takes at least half of that.
        """
        member = self._job.member(process)
        if member is None or member.progress is None or member.dead:
            return
        use = member.progress.memory
        if use.node <= use.limit:
            return
        node = member.record.node
        there = [m for m in self._job.members if m.record.node == node and not m.dead]
        if 2 * sum(map(_taken, there)) >= use.node:
            most = max(there, key=_taken)
            self.kills = [do.Kill(most.record.process, "its node has no memory left")]
            raise shortage(self._holder(most), most.progress.memory if most.progress else UNKNOWN)

    def died(self, member: Member, no_memory: bool) -> None:
        """A process of the job has died. Commits in between do not count: state that has outgrown
        its node outgrows the next one, too.

        Args:
            no_memory: whether Ray says that its node had no memory left. The node may have been
                almost full when the process spoke last: the system kills without a word.

        Raises:
            StateError: the instance before it, with the same range, died of that as well.
        """
        use = UNKNOWN if member.progress is None else member.progress.memory
        if no_memory or use.node > NEARLY * use.limit:
            at = (member.record.place.vertex, member.record.place.keys)
            if at in self._killed:
                raise shortage(self._holder(member), use, died=True)
            self._killed.add(at)

    def _holder(self, member: Member) -> Holder:
        place, said = member.record.place, member.progress
        where = self._job.plan.vertices[place.vertex].where
        rows, nbytes = (said.state_rows, said.table_bytes) if said else (0, 0)
        return Holder(place.operator, where, place.name, rows, nbytes)


def _taken(member: Member) -> int:
    """About how many bytes of its node's memory an instance takes, with a copy of its state, which
    a keeper there may hold."""
    said = member.progress
    return said.memory.own + said.state_bytes if said else 0
