"""Replication: a keeper on every node, and for every instance enough keepers of its checkpoints.

An instance that loses a keeper gets another one, and stores a full checkpoint at once, in an
on-demand checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from raystream.controller.protocol.job import Job
from raystream.controller.protocol.journal import NOBODY, InstanceRecord, KeeperRecord
from raystream.controller.protocol.members import Member
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.calls import KeeperUse
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.parts.checkpoints import OnDemandCheckpoints
from raystream.controller.protocol.parts.keeper_choice import keepers_of, zones_short
from raystream.controller.protocol.parts.register import BoundaryRegister
from raystream.controller.protocol.shortage import no_room

KEEPER = "keeper-"
"""How the names of keepers begin."""
LASTING_SECONDS = 10.0
"""A keeper that dies sooner than this after it was asked for could not begin."""
REST_SECONDS = 0.5
"""How long a node is left alone on which two keepers in a row could not begin. The time doubles
with each further one."""
REST_MAX_SECONDS = 30.0
"""The longest time for which such a node is left alone."""

FULL_SECONDS = 60.0
"""How long a keeper may have no room, without anything being committed, before the job ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failing:
    """A node where keepers do not begin."""

    times: int = 0
    """How many keepers in a row died as they began."""
    rest: float = 0.0
    """For how many seconds the node is left alone."""
    until: float = 0.0
    """The time until which it is left alone."""
    why: str = ""
    """Why the last keeper died."""


class Replication:
    """Starts keepers, and chooses which of them hold the checkpoints of which instance."""

    def __init__(
        self, job: Job, checkpoints: OnDemandCheckpoints, register: BoundaryRegister
    ) -> None:
        self._job = job
        self._checkpoints = checkpoints
        self._register = register
        self._asked: dict[str, float] = {}  # when a keeper was asked for
        self._failing: dict[str, Failing] = {}  # by node
        self._uses: dict[str, KeeperUse] = {}  # what keepers said last
        self._full: dict[str, tuple[float, int]] = {}  # since when one has no room, and what was
        # committed then

    @property
    def under_replicated(self) -> int:
        """How many ranges have fewer copies of their checkpoint than they should. The boundary
        register counts as one."""
        job = self._job
        return sum(is_under_replicated(job, m) for m in job.members) + (not self._register.settled)

    @property
    def short_of_zones(self) -> int:
        """How many ranges have their copies in fewer zones than they could."""
        return sum(is_short_of_zones(self._job, m.record) for m in self._job.members)

    @property
    def unstored(self) -> str:
        """Why a checkpoint that should be stored is not, or why a node has no keeper; empty if
        neither is so."""
        job = self._job
        said = ((m.name, m.progress.unstored) for m in job.members if m.progress)
        refused = [f"{name} could not store a checkpoint: {why}" for name, why in said if why]
        refused += [f"a keeper has no room: {u.why}" for u in self._uses.values() if u.why]
        lacking = {*job.nodes} - {p.node for p in job.entry.keepers}
        refused += [
            f"node {node[:8]} has no keeper, {f.times} died as they began: {f.why}"
            for node, f in self._failing.items()
            if node in lacking
        ]
        return next(iter(refused), "")

    def said(self, process: str, use: KeeperUse) -> None:
        """A keeper says what its images take, and whether it can store more.

        Raises:
            StateError: it cannot, and nothing was committed for long.
        """
        job = self._job
        keeper = next((k for k in job.entry.keepers if k.process == process), None)
        if keeper is None:
            return
        self._uses[process] = use
        since, committed = self._full.pop(process, (job.now, job.entry.committed))
        if not use.why:
            return
        if job.entry.committed > committed:
            since, committed = job.now, job.entry.committed
        self._full[process] = since, committed
        if job.now - since > FULL_SECONDS:
            raise no_room(keeper.node, use, FULL_SECONDS)

    @property
    def kept(self) -> KeeperUse:
        """What the checkpoints take at all keepers."""
        keepers = {k.process for k in self._job.entry.keepers}
        self._uses = {p: use for p, use in self._uses.items() if p in keepers}
        uses = self._uses.values()
        return KeeperUse(sum(u.memory for u in uses), sum(u.disk for u in uses))

    def start_keepers(self, nodes: Iterable[str]) -> list[Command]:
        """Start a keeper on every node that has none, unless none could begin there just now."""
        job, entry = self._job, self._job.entry
        held = {p.node for p in entry.keepers} | entry.drained
        held |= {node for node, failing in self._failing.items() if job.now < failing.until}
        new = tuple(
            KeeperRecord(n, KEEPER + job.journal.new_name()) for n in sorted({*nodes} - held)
        )
        if not new and entry.number:
            return []
        self._asked |= {p.process: job.now for p in new}
        starts: list[Command] = [do.Keep(p.process, p.node) for p in new]
        return starts + job.journal.write(keepers=entry.keepers + new)

    def keeper_gone(self, process: str, why: str) -> list[Command]:
        """A keeper died. Its node gets another one, if it is alive."""
        job, entry = self._job, self._job.entry
        keeper = next(p for p in entry.keepers if p.process == process)
        job.journal.amend(keepers=tuple(p for p in entry.keepers if p is not keeper))
        self._count(keeper, why)
        commands = self.start_keepers([keeper.node]) if keeper.node in job.nodes else []
        if job.entry.number == entry.number:
            commands += job.journal.write()
        commands.append(do.Kill(process, "its place is another's"))
        commands += self.choose()
        if self.under_replicated:
            commands += self._checkpoints.want()
        return commands

    def _count(self, keeper: KeeperRecord, why: str) -> None:
        """Count the keepers of a node that could not begin."""
        now = self._job.now
        known = self._failing.pop(keeper.node, Failing())
        if now - self._asked.pop(keeper.process, -LASTING_SECONDS) < LASTING_SECONDS:
            rest = min(REST_MAX_SECONDS, 2 * known.rest or REST_SECONDS) if known.times else 0.0
            self._failing[keeper.node] = Failing(
                times=known.times + 1, rest=rest, until=now + rest, why=why
            )

    def choose(self) -> list[Command]:
        """Choose other keepers for instances that lost one, or whose copies could lie in more
        zones, and have these instances store a new checkpoint at once."""
        job = self._job
        keepers = {p.process for p in job.entry.lasting}
        full = min(job.options.copies, len(keepers))
        kept_by = {m.name: {*m.record.keepers} for m in job.members}
        lacking = [m for m in job.members
                   if not kept_by[m.name] <= keepers or len(kept_by[m.name]) < full
                   or is_short_of_zones(job, m.record)]  # fmt: skip
        if not lacking:
            return []
        kept = job.entry.kept + 1
        for m in lacking:
            nobody = [NOBODY] * (len(m.record.keepers) < full)
            held = m.record.held.union(m.record.keepers, nobody)
            chosen = keepers_for(job, m.record)
            m.record = replace(m.record, keepers=chosen, kept=kept, held=held)
        commands = job.journal.write(instances=tuple(m.record for m in job.members), kept=kept)
        told = [m.record for m in lacking if not m.dead]
        commands += [do.KeptBy(r.process, r.keepers, r.kept) for r in told]
        return commands + self._checkpoints.want()

    def vacate(self) -> list[Command]:
        """End the keepers on nodes that are to be left, once others hold all that they hold."""
        job = self._job
        stay = job.entry.lasting
        gone = [p.process for p in job.entry.keepers if p not in stay]
        if not gone or any(is_under_replicated(job, m) for m in job.members):
            return []
        if {*gone} & {k for m in job.members for k in (*m.record.keepers, *m.record.held)}:
            return []
        kills = [do.Kill(p, "its node is to be left") for p in gone]
        return [*job.journal.write(keepers=stay), *kills]

    def after_the_end(self, event: on.Tick | on.Gone) -> list[Command]:
        """Keep the journal of a job that has ended: its end has to be written too."""
        job = self._job
        if isinstance(event, on.Tick):
            job.nodes = event.nodes
            return self.start_keepers(event.nodes)
        keepers = tuple(p for p in job.entry.keepers if p.process != event.process)
        return job.journal.write(keepers=keepers) if keepers != job.entry.keepers else []


def is_under_replicated(job: Job, member: Member) -> bool:
    """Whether a copy of a member's range is missing at the committed checkpoint."""
    living = {p.process for p in job.entry.keepers}
    return job.strategy.stores_checkpoints and not member.record.held <= living


def is_short_of_zones(job: Job, record: InstanceRecord) -> bool:
    """Whether an instance's checkpoints could lie in more zones than they do."""
    zones = _zones(job)
    nodes = [p.node for p in job.entry.lasting if p.process in record.keepers]
    return zones_short(nodes, zones, job.options.copies)


def _zones(job: Job) -> dict[str, str]:
    """The zones of all nodes with a keeper that lasts."""
    return {p.node: job.zones.get(p.node, "") for p in job.entry.lasting}


def keepers_for(job: Job, record: InstanceRecord) -> tuple[str, ...]:
    """The keepers that are to hold an instance's checkpoints."""
    place = record.place
    producers = {e.producer for e in job.plan.vertices[place.vertex].inputs}
    upstream = [m.record.node for m in job.members if m.record.place.vertex in producers]
    keepers = {p.node: p.process for p in job.entry.lasting}
    source = job.plan.vertices[place.vertex].kind == "source"
    copies = job.options.copies
    nodes = keepers_of(place, record.node, upstream, _zones(job), copies, source=source)
    return tuple(keepers[n] for n in nodes)
