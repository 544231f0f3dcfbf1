"""Commits: what members are told of what is committed, and when sinks may publish what they
wrote."""

from __future__ import annotations

from dataclasses import replace

from raystream.controller.protocol.decide import behind
from raystream.controller.protocol.job import Job
from raystream.controller.protocol.members import Member, positions
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.recovery import passed_on
from raystream.controller.protocol.saving import LAST_SECONDS, Saver
from raystream.controller.protocol.totals import RunningTotals
from raystream.dataflow.progress import Progress, older
from raystream.errors import Stopped


class Commits:
    """Commits checkpoints, has them saved, and keeps all members informed."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self.saver = Saver(job.plan)
        """Saves committed checkpoints in the durable tier."""
        self._totals = RunningTotals(job.plan, job.entry.totals)
        self.committed_at = 0.0
        """When the newest checkpoint was committed, as far as this controller knows."""
        self._last_since: float | None = None  # since when the end of the job is not saved
        self._waived = False  # whether sinks do not wait for that any more

    @property
    def published_upto(self) -> int:
        """The epoch up to which sinks may publish what they wrote: as far as it is committed; with
        a durable tier, as far as it is saved, because the cluster may be lost with all the rest."""
        entry = self._job.entry
        waits = self._job.plan.durable is not None and not self._waived
        return entry.saved if waits else entry.committed

    @property
    def stopped(self) -> Stopped | None:
        """How a job ends that was asked to stop; None until its last checkpoint is there."""
        return self.saver.stopped(self._job.entry)

    def commit(self, epoch: int) -> list[Command]:
        """A checkpoint is stored for every range: it is committed."""
        job = self._job
        self.committed_at = job.now
        job.stand_by_from = min(job.stand_by_from, job.settled + job.options.stand_by)
        for m in job.members:
            if m.progress is not None and m.progress.ended:
                m.record = replace(m.record, last=m.progress)
            m.note_held(epoch)
        instances = tuple(m.record for m in job.members)
        self._totals.stored(self._said())
        self.add_up()
        commands = job.journal.write(committed=epoch, instances=instances)
        commands += self._tell()
        commands += self._save()
        return commands + self.saver.trims(job.entry.keepers)

    def saved(self, event: on.CheckpointSaved) -> list[Command]:
        """A checkpoint was saved in the durable tier, or could not be."""
        checkpoint, after = self.saver.saved(event, self._job.now)
        if not checkpoint:
            return after
        # A controller that was overtaken must drop nothing, so the journal is written first.
        commands = self._job.journal.write(saved=checkpoint)
        commands += self._tell()
        return commands + self.saver.trims(self._job.entry.keepers) + after

    def tick(self) -> list[Command]:
        """Time has passed. Saving a checkpoint is given up if it takes too long. Saving the end of
        the job is tried again if it failed, because no other commit comes; after `LAST_SECONDS`
        sinks publish their last output all the same."""
        commands: list[Command] = []
        if self._totals.due(self._job.now):
            self.add_up()
            commands += self._job.journal.write()
        return commands + self.saver.tick(self._job.now) + self._save_last()

    def add_up(self) -> None:
        """Have the next entry of the journal hold the totals of now."""
        self._job.journal.amend(totals=self._totals.summed(self._said(), self._job.now))

    def _said(self) -> list[Progress]:
        return [m.progress for m in self._job.owners if m.progress is not None]

    def _save_last(self) -> list[Command]:
        job, entry = self._job, self._job.entry
        if self.published_upto >= entry.committed or self.saver.busy:
            return []
        if entry.assignment.stop_at == entry.committed > 0:
            return self._save()  # no other commit comes: the sources have stopped
        last = [m.progress for m in job.members if m.progress is not None and m.progress.ended]
        if len(last) < len(job.members) or any(p.position > entry.committed for p in last):
            return []
        if self._last_since is None:
            self._last_since = job.now
        if job.now - self._last_since > LAST_SECONDS:
            self._waived = True
            return self._tell()
        return self._save()

    def _save(self) -> list[Command]:
        entry, owners = self._job.entry, [m.record for m in self._job.owners]
        settled = entry.assignment.settled
        return self.saver.committed(
            entry.committed, owners, entry.instances, self._job.now, settled
        )

    def _tell(self) -> list[Command]:
        epoch, upto = self._job.entry.committed, self.published_upto
        told = [m.record.process for m in self._job.members if not m.dead]
        return [do.CommitTo(process, epoch, upto) for process in told]

    # ------------------------------------------------------------ what members say

    def heard(self, process: str, progress: Progress) -> list[Command]:
        """A call may be lost with its connection: a member that was not told what is newest is told
        again."""
        member = self._job.member(process)
        if member is None or member.dead or older(progress, member.progress):
            return []
        if member.progress is None or progress.position > member.progress.position:
            member.stays = None
        member.progress = progress
        self._job.furthest = max(self._job.furthest, progress.position, progress.written)
        if progress.marks and member.name not in self._job.candidates:
            self._totals.heard(member.record.place.keys, progress, self._job.now)
        entry, upto = self._job.entry, self.published_upto
        member.note_held(entry.committed)
        version, kept = entry.assignment.version, member.record.kept
        untold = behind(progress, version, entry.committed, upto, kept)
        commands: list[Command] = []
        if untold.assignment:
            commands.append(do.Assign(process, entry.assignment))
        if untold.committed:
            commands.append(do.CommitTo(process, entry.committed, upto))
        if untold.keepers:
            commands.append(do.KeptBy(process, member.record.keepers, member.record.kept))
        return commands + self._forget(member) if self._job.strategy.forgets_logs else commands

    def _forget(self, member: Member) -> list[Command]:
        """Let an operator drop what its consumers have. While an instance is dead nothing is
        dropped: its successor begins from the start, and needs all of it."""
        job = self._job
        if any(m.dead for m in job.members):
            return []
        passed = passed_on(job.plan, positions(job.members))
        epoch = passed.get(member.record.place.vertex, 0)
        return [do.Forget(member.record.process, epoch)] if epoch else []
