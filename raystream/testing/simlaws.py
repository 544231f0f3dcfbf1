"""What must hold of a simulated job, whenever something is decided, trimmed or refused."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from raystream.controller.journal import Entry, Seat
from raystream.controller.members import Options
from raystream.controller.recovery import Place
from raystream.dataflow.plan import Plan
from raystream.schema.types import KeyRange
from raystream.state.assignment import overlap
from raystream.state.keys import cover
from raystream.testing.simprocess import Instances, Reading
from raystream.testing.simshipping import Keeper
from raystream.testing.simtier import Tier
from raystream.testing.simworld import Wrong


class Laws:
    """Watches over a job.

    entry: the newest that was written. at_floor: the ranges that were served when the newest cut
    was committed: of what others stored before nothing has to be kept. decisions: how many entries
    were written. at: every instance ever, by address; takers: by process. ships: whether
    checkpoints are taken.
    """

    plan: Plan
    options: Options
    ships: bool
    tier: Tier | None
    at: dict[str, Instances]
    takers: dict[str, Instances]
    keepers: dict[str, Keeper]

    def __init__(self) -> None:
        self.entry = Entry()
        self.at_floor: set[tuple[int, KeyRange]] = set()
        self.decisions = 0

    def members(self) -> list[tuple[Seat, Instances]]:
        """Who has a place."""
        return [(s, self.takers[s.process]) for s in self.entry.seats]

    def _is_member(self, process: Instances) -> bool:
        return any(s.process == process.process for s in self.entry.seats)

    def check_trimmed(self, producer: Instances) -> None:
        """No log may be trimmed below what a living instance still needs of it."""
        serving = self.entry.assignment.instance(producer.name)
        if not self._is_member(producer) or serving is None or serving.candidate:
            return  # what a candidate lacks its owner has
        for edge, log in producer.machine.outlets.logs.items():
            consumer = self.plan.edges[edge].consumer
            for seat, process in self.members():
                at = process.machine
                needs = seat.place.vertex == consumer and process.alive and not at.ended
                if needs and at.position + 1 < log.first:
                    raise Wrong(
                        f"{producer.name} holds edge {edge} from {log.first} on, but"
                        f" {seat.name} needs {at.position + 1}"
                    )

    def check_refused(self, consumer: Instances, reading: Reading, first: int) -> None:
        """Only who was replaced may be refused."""
        producer = self.at[reading.address]
        if self._is_member(consumer) and self._is_member(producer):
            raise Wrong(
                f"{consumer.name} asked {producer.name} for epoch {reading.asked} of edge"
                f" {reading.edge.id}, whose log begins at {first}"
            )

    def check_entry(self, entry: Entry) -> None:
        """What a new entry must keep to."""
        if entry.committed > self.entry.committed:
            self.at_floor = {(s.vertex, s.keys) for s in entry.assignment.serving}
        self.entry = entry
        self.decisions += 1
        if entry.assignment.serving:
            for vertex in self.plan.vertices:
                entry.assignment.check(vertex.id, entry.committed + 1, self.plan.groups)
        if entry.committed > self.plan.begins and self.ships:
            self._check_floor(entry)
            self._check_copies(entry)

    def _check_floor(self, entry: Entry) -> None:
        """Law L4: everybody has reached the floor, and it was stored."""
        floor = entry.committed
        for seat, process in self.members():
            at = process.machine
            if at.position < floor and not at.ended and process.alive:
                raise Wrong(f"{floor} was committed, and {seat.name} is at {at.position}")
            cut = min(floor, at.position) if at.ended else floor
            if not any(self._of(k, seat.place, cut) for k in self.keepers.values()):
                raise Wrong(f"{floor} was committed, and {seat.name} is not stored")

    def _check_copies(self, entry: Entry) -> None:
        """Where no copy is said to be missing there is none: of those who are known to live, as
        many as there should be hold what a range was at the floor."""
        posts = {p.process for p in entry.posts}
        for seat in entry.seats:
            if not seat.held <= posts:
                continue
            machine = self.takers[seat.process].machine
            cut = min(entry.committed, machine.position) if machine.ended else entry.committed
            held = [
                {g for keys in self._of(k, seat.place, cut) for g in range(*keys)}
                for k in self.keepers.values()
                if k.process in posts
            ]
            kept = Counter(chain.from_iterable(held))
            full = min(self.options.copies, len(seat.keepers))
            if lacking := [group for group in range(*seat.place.keys) if kept[group] < full]:
                raise Wrong(
                    f"no copy of {seat.name} is said to be missing, and key groups {lacking} are"
                    f" not stored {full} times at {cut}"
                )

    def check_shown(self, shown: int) -> None:
        """With a durable tier no sink shows what is lost with the cluster; but for the end of all
        input, where that cannot be saved any more."""
        if self.tier is None:
            return
        saved = self.plan.begins if self.tier.saved is None else self.tier.saved.cut
        end = all(p.machine.ended for _, p in self.members())
        if shown > saved and not (end and shown == self.entry.committed):
            raise Wrong(f"{saved} is saved, and sinks are to show {shown}")

    def held(self, place: Place, cut: int) -> list[Keeper]:
        """All keepers that ever held a checkpoint, or a part of it."""
        return [k for k in self.keepers.values() if self._of(k, place, cut)]

    def _of(self, keeper: Keeper, place: Place, cut: int) -> list[KeyRange]:
        """The ranges of which a keeper ever held what a place had at a cut, which may be after the
        end of its range."""
        vertex = place.vertex
        there = keeper.ever.get((vertex, cut), ())
        over = [keys for keys, end in keeper.ends.get(vertex, ()) if end < cut]
        return [keys for keys in (*there, *over) if overlap(keys, place.keys)]

    def check_lost(self, place: Place, floor: int) -> None:
        """A checkpoint may be called lost when those who held it are dead."""
        posts = {p.process for p in self.entry.posts}
        held = [k for k in self.held(place, floor) if k.process in posts]
        found = [keys for k in held if k.alive for keys in self._of(k, place, floor)]
        parts = [keys for keys in found if (place.vertex, keys) in self.at_floor]
        whole = cover(parts, place.keys)
        if whole is not None:
            raise Wrong(f"{place.name} at {floor} is not lost: {[(k.name, k.alive) for k in held]}")
