"""Carries an upgrade out: all instances go over to other code after one epoch h.

    prepare   the code is proposed without an epoch: every instance gets it, and nobody waits
    propose   an epoch h is proposed a little ahead of all instances; each that has not passed it
              says so, and will not pass it before it is told
    settle    all have said so: the journal names h, then everybody is told
    done      a checkpoint after h is committed: nobody begins with the old code any more

If an instance had passed h before it heard of it, had asked the world for a later epoch, or a sink
had shown later epochs before it died, a later epoch is proposed; the others go on. An instance that
dies meanwhile is replaced as always: its successor begins with the version that made the committed
checkpoint, is told of the others before its first step, and goes over to them where all do. No
range is moved during an upgrade, because deltas do not go from one version to another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from raystream.controller.protocol.history import UpgradeRecord
from raystream.controller.protocol.job import Job
from raystream.controller.protocol.members import Member
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.parts.beginning import RECORDS_MAX
from raystream.controller.protocol.upgrading.requests import (
    AHEAD_LEAST,
    TRIES_MAX,
    UPGRADE_SECONDS,
    Upgrade,
    UpgradeRequest,
)
from raystream.dataflow.assignment import FOREVER
from raystream.dataflow.progress import Progress
from raystream.dataflow.upgrading.versions import CodeVersion


class Upgrades:
    """Carries upgrades out, one at a time."""

    def __init__(self, job: Job) -> None:
        self._job = job

    # ------------------------------------------------------------ asked

    def take_up(self, wanted: UpgradeRequest) -> tuple[str, list[Command]]:
        """Take a request up. Returns why it is refused, empty if it is not; and the commands that
        follow."""
        job, entry = self._job, self._job.entry
        if not job.members or job.ended:
            return "the job has not begun" if not job.members else "the job has ended", []
        if refusal := _never(job):
            return refusal, []
        if entry.upgrade is not None:
            return "the job is being upgraded already: wait until that has ended", []
        if job.ending:
            return "the job has come to the end of its input", []
        newest = max((v.number for v in entry.assignment.settled), default=0)
        if wanted.base != newest:
            return "the job was upgraded meanwhile: compare your flow with that version", []
        return "", job.journal.write(upgrade=Upgrade(wanted=wanted, began=job.now))

    # ------------------------------------------------------------ what is due

    def look(self) -> list[Command]:
        """Do what is due of an upgrade."""
        job, upgrade = self._job, self._job.entry.upgrade
        if upgrade is None:
            return []
        versions = job.entry.assignment.versions
        now = next((v for v in versions if v.number == upgrade.proposed), None)
        if now is not None and now.settled:
            return self._done(now)
        if job.ending:
            return self._give_up(upgrade, "the job has come to the end of its input")
        if job.now - upgrade.began > UPGRADE_SECONDS:
            return self._give_up(upgrade, self._late(upgrade, now))
        if now is None:
            moving = job.candidates or any(p.operator for p in job.placements)
            return [] if moving else self._propose(upgrade, FOREVER)
        return self._proposed(upgrade, now)

    def _proposed(self, upgrade: Upgrade, now: CodeVersion) -> list[Command]:
        """See what instances say of a proposal."""
        job = self._job
        said = [m.progress for m in job.members if m.progress is not None]
        lacking = [p for p in said if p.no_code[0] == now.number]
        if lacking:
            return self._give_up(upgrade, f"{lacking[0].name}: {lacking[0].no_code[1]}")
        if any(_passed(p) > now.after for p in said if p.version >= upgrade.told):
            if upgrade.tries < TRIES_MAX:
                return self._propose(upgrade, self._ahead(upgrade))
            return self._give_up(upgrade, "instances passed each epoch before they heard of it")
        if any(m.dead or not _waits(m, now) for m in job.members):
            return []
        if now.after == FOREVER:
            return self._propose(upgrade, self._ahead(upgrade))
        return job.assign(job.entry.assignment.settling(), upgraded=self._records(upgrade, now))

    def _ahead(self, upgrade: Upgrade) -> int:
        """The next epoch to propose: about as far ahead as the job comes until all have answered.
        Each is further ahead than the one before."""
        job, furthest = self._job, self._furthest()
        took = max(job.now - upgrade.since, job.options.switch_seconds)
        came = max(0, furthest - upgrade.furthest)
        ahead = came * job.options.switch_seconds / took if took else 0.0
        return furthest + int((AHEAD_LEAST + ahead) * 2**upgrade.tries)

    def _furthest(self) -> int:
        """The greatest epoch that the code that runs is known to have worked at."""
        said = [m.progress for m in self._job.members if m.progress is not None]
        return max([self._job.furthest, *map(_passed, said)])

    def _propose(self, upgrade: Upgrade, after: int) -> list[Command]:
        job, wanted = self._job, upgrade.wanted
        number = job.entry.versions + 1
        version = CodeVersion(
            number=number, after=after, code=wanted.code, name=wanted.name, shapes=wanted.shapes
        )
        entry = job.entry
        since = entry.committed if job.plan.durable is None else entry.saved
        assignment = entry.assignment.proposing(version, since)
        now = replace(
            upgrade,
            proposed=number,
            told=assignment.version,
            since=job.now,
            furthest=self._furthest(),
            tries=upgrade.tries + (after != FOREVER),
        )
        return job.assign(assignment, upgrade=now, versions=number)

    def _done(self, version: CodeVersion) -> list[Command]:
        if self._job.entry.committed <= version.after and not self._job.ending:
            return []
        return self._job.journal.write(upgrade=None)

    def _give_up(self, upgrade: Upgrade, why: str) -> list[Command]:
        job = self._job
        upgraded = self._records(upgrade, None, why)
        assignment = job.entry.assignment
        if assignment.versions == assignment.settled:
            return job.journal.write(upgrade=None, upgraded=upgraded)
        return job.assign(assignment.taking_back(), upgrade=None, upgraded=upgraded)

    def _late(self, upgrade: Upgrade, now: CodeVersion | None) -> str:
        if now is None:
            return f"ranges were being moved for {UPGRADE_SECONDS:g} s"
        waits = [m.name for m in self._job.members if m.dead or not _waits(m, now)]
        return f"not all instances had the code within {UPGRADE_SECONDS:g} s: {_some(waits)}"

    def _records(
        self, upgrade: Upgrade, version: CodeVersion | None, failed: str = ""
    ) -> tuple[UpgradeRecord, ...]:
        job = self._job
        record = UpgradeRecord(
            t=upgrade.began - job.entry.started,
            name=upgrade.wanted.name,
            number=0 if version is None else version.number,
            after=0 if version is None else version.after,
            tries=upgrade.tries,
            seconds=job.now - upgrade.began,
            failed=failed,
        )
        return (*job.entry.upgraded, record)[-RECORDS_MAX:]


_INSTEAD = (
    "With --durable: `raystream stop --save`, then `raystream run --resume` with the new flow"
)
"""What to do where a job cannot be upgraded."""


def _never(job: Job) -> str:
    """Why a job cannot be upgraded at all; empty if it can."""
    if not job.strategy.stores_checkpoints:
        return "a job that takes no checkpoints cannot be upgraded"
    if job.plan.check:
        return (
            f"a job in checking mode cannot be upgraded: other code sends other pieces. {_INSTEAD}"
        )
    return ""


def _passed(said: Progress) -> int:
    """The last epoch that other code cannot make any more: an instance has made something of it,
    or a sink has shown it."""
    return max(said.position, said.reached, said.written)


def _waits(member: Member, version: CodeVersion) -> bool:
    """Whether an instance will not pass the last epoch before a version that is proposed: it has
    said so, or that was its end."""
    said: Progress | None = member.progress
    if said is None:
        return False
    return said.code == version.number or (said.ended and said.position <= version.after)


def _some(names: Iterable[str]) -> str:
    *few, last = list(names)[:4] or ["none"]
    return ", ".join([*few, last])
