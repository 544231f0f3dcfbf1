"""Checking mode: an instance is replaced after each commit, as if it had died. What its successor
sends is compared with what it had sent."""

from __future__ import annotations

from raystream.controller.protocol.decide import Recover
from raystream.controller.protocol.job import Job
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.parts.placements import Placements


class Drill:
    """Replaces one instance after each commit of a job in checking mode."""

    def __init__(self, job: Job, placements: Placements) -> None:
        self._job = job
        self._placements = placements
        self._times, self._last = 0, job.plan.begins

    def tick(self) -> list[Command]:
        """Replace an instance, if a checkpoint was committed since the last one was."""
        job, committed = self._job, self._job.entry.committed
        if not job.plan.check or self._last == committed or job.placements:
            return []
        if job.entry.moves:
            return []
        self._last = committed
        kinds = job.plan.vertices
        fit = [m for m in job.members if kinds[m.record.place.vertex].outputs and m.progress]
        fit = [m for m in fit if m.progress and not m.progress.ended and not m.dead]
        if not fit:
            return []
        self._times += 1
        member = fit[self._times % len(fit)]
        member.dead = "it is replaced on purpose, to be checked"
        return self._placements.recover(Recover((member.name,), committed, "checking"))
