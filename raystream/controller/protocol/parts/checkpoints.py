"""On-demand checkpoints: a checkpoint as soon as it can be, besides every n-th epoch."""

from __future__ import annotations

from raystream.controller.protocol.job import Job
from raystream.controller.protocol.members import Member
from raystream.controller.protocol.messages.commands import Command
from raystream.dataflow.sinks import shows_at_once

CHECKPOINT_AHEAD = 16
"""How many epochs after the newest known one an on-demand checkpoint is asked for at first. If it
is too near, some source has passed the epoch before it hears of it."""

LAST_SECONDS = 10.0
"""How long the checkpoint with which a job is stopped may take at first, before another one is
asked for."""
STILL_SECONDS = 2.0
"""How long nobody may have come further than that."""
LAST_SECONDS_MOST = 300.0
"""How long it may take later."""


class OnDemandCheckpoints:
    """Asks for on-demand checkpoints.

    Args:
        wanted: the committed checkpoint after which one is wanted from the start; -1 for none.
    """

    def __init__(self, job: Job, wanted: int) -> None:
        self._job = job
        self._wanted: tuple[int, int] | None = None  # after which committed one, how far ahead
        if wanted >= 0:
            self._wanted = (wanted, CHECKPOINT_AHEAD)
        self._still_since: float | None = None
        self._patience = LAST_SECONDS  # how long the last checkpoint may take to be committed
        self._patient_until = job.now + self._patience
        assignment = job.entry.assignment
        self._named = dict.fromkeys(assignment.checkpoints, assignment.version)
        """The version of an assignment that names it, by on-demand checkpoint."""

    def want(self) -> list[Command]:
        """Ask for a checkpoint as soon as it can be, unless one is asked for already."""
        if self._wanted is not None and self._job.entry.committed > self._wanted[0]:
            self._wanted = None  # that one is there
        if self._job.strategy.stores_checkpoints and self._wanted is None:
            self._wanted = (self._job.entry.committed, CHECKPOINT_AHEAD)
            return self._ask()
        return []

    def want_last(self) -> list[Command]:
        """Ask for the checkpoint with which the job is stopped."""
        if not self._stopping or self._job.entry.assignment.stop_at:
            return self.want()
        self._wanted = (self._job.entry.committed, CHECKPOINT_AHEAD)
        return self._ask()

    def _tick_last(self) -> list[Command]:
        """Ask again, for a later epoch, if some source heard of the last checkpoint too late, or if
        it was not stored for long: a keeper may have died meanwhile. Sources that have stopped go
        on then, and stop there."""
        entry = self._job.entry
        stop_at = entry.assignment.stop_at
        saved = self._job.plan.durable is None or entry.saved == stop_at
        if entry.committed == stop_at and saved and self._quiet():
            return []
        passed = any(m.progress and m.progress.since > stop_at for m in self._job.sources)
        early = self._job.now < self._patient_until
        if stop_at and entry.committed <= stop_at and not passed and early:
            return []
        self._patience = min(2 * self._patience, LAST_SECONDS_MOST)
        return self._ask()

    def stands_still(self) -> bool:
        """Whether the job may be stopped: where sinks show epochs at once, a source waits at the
        checkpoint with which it is stopped, and no sink has come further for a while, nor one
        that died before. Then nothing comes after it. (What a source that died had sent before
        comes within the while.)"""
        if not self._stopping:
            return True
        if not self._quiet():
            self._still_since = None
            return False
        if self._still_since is None:
            self._still_since = self._job.now
        return self._job.now >= self._still_since + STILL_SECONDS

    def _quiet(self) -> bool:
        stop_at = self._job.entry.assignment.stop_at
        if not stop_at or stop_at not in self.known():
            return False
        sinks = [m for m in self._job.members if self._kind(m) == "sink"]
        waits = any(
            m.progress and m.progress.position == stop_at and not m.progress.ended
            for m in self._job.sources
        )
        at = [max(m.progress.position, m.progress.written) for m in sinks if m.progress]
        return waits and len(at) == len(sinks) and all(epoch <= stop_at for epoch in at)

    def _kind(self, member: Member) -> str:
        return self._job.plan.vertices[member.record.place.vertex].kind

    def tick(self) -> list[Command]:
        """Ask again, for a later epoch, if some source heard of the checkpoint too late."""
        if self._stopping:
            return self._tick_last()
        if self._wanted is None:
            return []
        before, ahead = self._wanted
        checkpoints = self._job.entry.assignment.checkpoints
        if self._job.entry.committed > before:
            self._wanted = None
        elif not checkpoints or all(
            m.progress and m.progress.stored > checkpoints[-1] for m in self._job.sources
        ):
            self._wanted = (before, 4 * ahead)
            return self._ask()
        return []

    @property
    def _stopping(self) -> bool:
        """Whether the job is to be stopped so that nothing comes after its last checkpoint."""
        job = self._job
        stores = job.strategy.stores_checkpoints
        return job.entry.stop_after >= 0 and shows_at_once(job.plan) and stores

    def known(self) -> tuple[int, ...]:
        """The on-demand checkpoints of which all members have been told. A member that was not told
        cannot say yet whether it passed the epoch without a checkpoint."""
        members = self._job.members
        told = min((m.progress.version for m in members if m.progress), default=0)
        return tuple(e for e in self._job.entry.assignment.checkpoints if told >= self._named[e])

    def _ask(self) -> list[Command]:
        assert self._wanted is not None
        at = [m.progress for m in self._job.sources if m.progress is not None]
        if not at or all(p.ended for p in at):
            return []  # the last epoch is a checkpoint
        reached = self._job.furthest if self._stopping else 0
        epoch = max(reached, *(p.position for p in at)) + self._wanted[1]
        entry = self._job.entry
        self._patient_until = self._job.now + self._patience
        commands = self._job.assign(
            entry.assignment.checkpoint_at(epoch, entry.committed, stop=self._stopping)
        )
        assignment = self._job.entry.assignment
        version = assignment.version
        self._named = {e: self._named.get(e, version) for e in assignment.checkpoints}
        return commands
