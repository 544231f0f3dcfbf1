"""What must hold of a simulated job, whenever something is decided, trimmed or refused."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import chain

from raystream.controller.protocol.journal import InstanceRecord, JournalEntry
from raystream.controller.protocol.machine import Machine
from raystream.controller.protocol.members import ProtocolOptions, process_of, sharing
from raystream.controller.protocol.recovery import Place
from raystream.dataflow.plan import Plan
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.schema.types import KeyRange
from raystream.simulation.processes.instances import SimulatedInstance
from raystream.simulation.processes.keepers import SimulatedKeeper
from raystream.simulation.processes.streams import Reading
from raystream.simulation.processes.tier import Tier
from raystream.simulation.world import Wrong
from raystream.state.keys import cover


class Laws:
    """Watches over a job."""

    plan: Plan
    options: ProtocolOptions
    ships: bool
    """Whether checkpoints are taken."""
    tier: Tier | None
    """The durable tier, if there is one."""
    at: dict[str, SimulatedInstance]
    """Every instance ever, by address."""
    takers: dict[str, SimulatedInstance]
    """Every instance ever, by process."""
    keepers: dict[str, SimulatedKeeper]
    """Every keeper ever, by process."""

    def __init__(self) -> None:
        self.entry = JournalEntry()
        """The newest entry of the journal that was written."""
        self.at_committed: set[tuple[int, KeyRange]] = set()
        """The ranges that were served when the newest checkpoint was committed. Of what others
        stored before nothing has to be kept."""
        self.versions: tuple[CodeVersion, ...] = ()
        """All versions of the code that are settled. An assignment forgets the old ones."""
        self.decisions = 0
        """How many entries were written."""

    def members(self) -> list[tuple[InstanceRecord, SimulatedInstance]]:
        """The instances that have a place, by their records."""
        return [(s, self.takers[s.process]) for s in self.entry.instances]

    def _is_member(self, process: SimulatedInstance) -> bool:
        return any(s.process == process.process for s in self.entry.instances)

    def check_trimmed(self, producer: SimulatedInstance) -> None:
        """Check that no log is trimmed beyond what a living instance still needs of it."""
        serving = self.entry.assignment.instance(producer.name)
        if not self._is_member(producer) or serving is None or serving.candidate:
            return  # what a candidate lacks its owner has
        for edge, log in producer.machine.outlets.logs.items():
            consumer = self.plan.edges[edge].consumer
            for record, process in self.members():
                at = process.machine
                needs = record.place.vertex == consumer and process.alive and not at.ended
                if needs and at.position + 1 < log.first:
                    raise Wrong(
                        f"{producer.name} holds edge {edge} from {log.first} on, but"
                        f" {record.name} needs {at.position + 1}"
                    )

    def check_refused(self, consumer: SimulatedInstance, reading: Reading, first: int) -> None:
        """Check that only an instance that was replaced is refused."""
        producer = self.at[reading.address]
        if self._is_member(consumer) and self._is_member(producer):
            raise Wrong(
                f"{consumer.name} asked {producer.name} for epoch {reading.asked} of edge"
                f" {reading.edge.id}, whose log begins at {first}"
            )

    def check_entry(self, entry: JournalEntry) -> None:
        """Check a new entry of the journal."""
        if entry.committed > self.entry.committed:
            self.at_committed = {(s.vertex, s.keys) for s in entry.assignment.serving}
        self.entry = entry
        settled = entry.assignment.settled
        before = (v for v in self.versions if settled and v.number < settled[0].number)
        self.versions = (*before, *settled)
        self.decisions += 1
        if entry.assignment.serving:
            for vertex in self.plan.vertices:
                entry.assignment.check(vertex.id, entry.committed + 1, self.plan.groups)
        if entry.committed > self.plan.begins and self.ships:
            self._check_committed(entry)
            self._check_copies(entry)

    def _check_committed(self, entry: JournalEntry) -> None:
        """Check law L4: all instances have reached the committed checkpoint, and it is stored."""
        committed = entry.committed
        for record, process in self.members():
            at = process.machine
            if at.position < committed and not at.ended and process.alive:
                raise Wrong(f"{committed} was committed, and {record.name} is at {at.position}")
            checkpoint = min(committed, at.position) if at.ended else committed
            if not any(self._of(k, record.place, checkpoint) for k in self.keepers.values()):
                raise Wrong(f"{committed} was committed, and {record.name} is not stored")

    def _check_copies(self, entry: JournalEntry) -> None:
        """Where no copy is said to be missing, none is: of the keepers that are known to live, as
        many as there should be hold the state of a range at the committed checkpoint."""
        keepers = {p.process for p in entry.keepers}
        for record in entry.instances:
            if not record.held <= keepers:
                continue
            machine = self.takers[record.process].machine
            checkpoint = (
                min(entry.committed, machine.position) if machine.ended else entry.committed
            )
            held = [
                {g for keys in self._of(k, record.place, checkpoint) for g in range(*keys)}
                for k in self.keepers.values()
                if k.process in keepers
            ]
            kept = Counter(chain.from_iterable(held))
            full = min(self.options.copies, len(record.keepers))
            if lacking := [group for group in range(*record.place.keys) if kept[group] < full]:
                raise Wrong(
                    f"no copy of {record.name} is said to be missing, and key groups {lacking} are"
                    f" not stored {full} times at {checkpoint}"
                )

    def check_published(self, published_upto: int) -> None:
        """Check that with a durable tier no sink publishes what would be lost with the cluster. The
        end of all input is excepted if it cannot be saved any more."""
        if self.tier is None:
            return
        saved = self.plan.begins if self.tier.saved is None else self.tier.saved.checkpoint
        end = all(p.machine.ended for _, p in self.members())
        if published_upto > saved and not (end and published_upto == self.entry.committed):
            raise Wrong(f"{saved} is saved, and sinks are to show {published_upto}")

    def held(self, place: Place, checkpoint: int) -> list[SimulatedKeeper]:
        """All keepers that ever held a checkpoint, or a part of it."""
        return [k for k in self.keepers.values() if self._of(k, place, checkpoint)]

    def _of(self, keeper: SimulatedKeeper, place: Place, checkpoint: int) -> list[KeyRange]:
        """The ranges of which a keeper ever held what a place had at a checkpoint, perhaps after
        the end of its range."""
        vertex = place.vertex
        there = keeper.ever.get((vertex, checkpoint), ())
        over = [keys for keys, end in keeper.ends.get(vertex, ()) if end < checkpoint]
        return [keys for keys in (*there, *over) if keys.overlaps(place.keys)]

    def check_lost(self, place: Place, committed: int) -> None:
        """Check that a checkpoint is called lost only when all keepers that held it are dead."""
        keepers = {p.process for p in self.entry.keepers}
        held = [k for k in self.held(place, committed) if k.process in keepers]
        found = [
            keys
            for k in held
            for keys in self._of(k, place, committed)
            if k.alive and (place.vertex, keys) not in k.spoilt
        ]
        parts = [keys for keys in found if (place.vertex, keys) in self.at_committed]
        whole = cover(parts, place.keys)
        if whole is not None:
            raise Wrong(
                f"{place.name} at {committed} is not lost: {[(k.name, k.alive) for k in held]}"
            )


def check_together(machine: Machine) -> None:
    """Check that the instances of a bundle share a process, and that no others do.

    Nothing is checked while an instance is dead: one that had nothing left to do is not replaced.
    Operators that are being moved are left out: a sink is ended before its successor begins, and a
    process that was taken for dead may have lived.
    """
    if any(m.dead for m in machine.members):
        return
    moving = {move.operator for move in machine.journal.moves}
    members = [m for m in machine.members if m.record.place.operator not in moving]
    shared: dict[str, set[str]] = defaultdict(set)
    for m in members:
        shared[process_of(m.record.process)].add(m.name)
    groups = sharing((m.record.place for m in members), machine.moves.job.elsewhere)
    expected = [{place.name for place in group} for group in groups]
    for names in shared.values():
        if names not in expected:
            raise Wrong(f"{sorted(names)} share a process, and not {expected}")
