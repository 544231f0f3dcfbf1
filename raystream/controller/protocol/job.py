"""What all parts of the controller's machine look at: the plan, the journal, the members, the
nodes, the time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from raystream.controller.protocol.journal import JournalEntry
from raystream.controller.protocol.members import (
    BundleThread,
    Member,
    ProtocolOptions,
    home_of,
    process_of,
    sharing,
)
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.parts.journal import Journal
from raystream.controller.protocol.placement import Placement
from raystream.controller.protocol.recovery import ALONE, Place
from raystream.controller.protocol.strategies import RecoveryStrategy
from raystream.dataflow.asking.claiming import claiming
from raystream.dataflow.assignment import Assignment
from raystream.dataflow.plan import Plan

START_DELAY = 0.2
"""Seconds between the last instance's readiness and the first row of a paced run."""


@dataclass(eq=False, kw_only=True)
class Job:
    """One job, as its controller knows it now."""

    plan: Plan
    """What is to be run."""
    options: ProtocolOptions
    """How it is to be run."""
    strategy: RecoveryStrategy
    """What a recovery starts from."""
    journal: Journal
    """What is written."""
    members: list[Member]
    """All instances that have a place: owners and candidates."""
    placements: list[Placement] = field(default_factory=list)
    """The placements that are not over, in the order in which they began."""
    nodes: tuple[str, ...] = ()
    """The nodes that are alive."""
    for_operators: frozenset[str] = frozenset()
    """Those of them that are meant for operators, if some are."""
    zones: Mapping[str, str] = field(default_factory=dict)
    """The zones of nodes, as far as they are known."""
    furthest: int = 0
    """The greatest epoch that an instance is known to have applied, dead ones too."""
    now: float = 0.0
    """The time of the event at hand."""
    ended: bool = False
    """Whether the job has ended."""
    stand_by_from: float = float("inf")
    """The time from which spare processes are kept."""
    settled: float = field(default=0.0)
    """When places were taken last."""

    @property
    def entry(self) -> JournalEntry:
        """The newest entry of the journal."""
        return self.journal.entry

    @property
    def candidates(self) -> frozenset[str]:
        """The names of the instances that catch up to own a range."""
        return frozenset(n for move in self.entry.moves for n in move.new)

    @property
    def owners(self) -> list[Member]:
        """The instances that own a range."""
        candidates = self.candidates
        return [m for m in self.members if m.name not in candidates]

    @property
    def sources(self) -> list[Member]:
        """The instances of sources."""
        kinds = self.plan.vertices
        return [m for m in self.members if kinds[m.record.place.vertex].kind == "source"]

    @property
    def claiming(self) -> list[Member]:
        """The instances that need the boundary register."""
        return [m for m in self.members if m.record.place.vertex in self.claiming_vertices]

    @cached_property
    def claiming_vertices(self) -> frozenset[int]:
        """Their vertices."""
        return claiming(self.plan)

    @property
    def ending(self) -> bool:
        """Whether all instances have come to the end of the input. An operator may have ended
        before all others, and its node may still have to be left."""
        return all(m.progress is not None and m.progress.ended for m in self.members)

    def first_places(self) -> list[Place]:
        """The places with which the job begins."""
        return [
            Place(
                vertex=v.id,
                operator=v.name,
                keys=keys,
                index=index,
                bundle=index if self.options.together else ALONE,
            )
            for v in self.plan.vertices
            for index, keys in enumerate(self.plan.ranges[v.id])
        ]

    def member(self, process: str) -> Member | None:
        """The instance that a process is."""
        for m in self.members:  # a loop, because this is asked for with all that is heard
            if m.record.process == process:
                return m
        return None

    def lost(self, member: Member, why: str) -> None:
        """The process of an instance is gone: this instance is dead, and all that share it."""
        shared = process_of(member.record.process)
        for m in self.members:
            if process_of(m.record.process) == shared:
                m.dead = m.dead or why

    def members_of(self, vertex: int) -> list[Member]:
        """The instances of a vertex, owners and candidates."""
        return [m for m in self.members if m.record.place.vertex == vertex]

    def free_index(self, vertex: int) -> int:
        """The least index that no instance of a vertex ever had."""
        taken = [m.record.place for m in self.members]
        taken += [place for p in self.placements for place in p.places]
        known = [place.index for place in taken if place.vertex == vertex]
        return max(self.entry.indices.get(vertex, 0), 1 + max(known, default=-1))

    def is_operator(self, place: Place) -> bool:
        """Whether a place is one of a keyed operator."""
        return self.plan.vertices[place.vertex].kind == "operator"

    def sharing(self, places: Iterable[Place]) -> list[list[Place]]:
        """The places, in groups that share a process each."""
        return sharing(places, self.elsewhere)

    @property
    def elsewhere(self) -> frozenset[int]:
        """The vertices whose instances belong on other nodes than the rest."""
        operators = frozenset(v.id for v in self.plan.vertices if v.kind == "operator")
        return operators if self.for_operators else frozenset()

    def home_of(self, place: Place) -> Member | None:
        """A living owner on the thread of a place's bundle."""
        return home_of(place, self.owners, self.elsewhere)

    def at_work(self, process: str) -> Member | None:
        """A living instance in the process of this name, or of a seat of it."""
        shared = process_of(process)
        at = (m for m in self.members if process_of(m.record.process) == shared and not m.dead)
        return next(at, None)

    def threads(self) -> list[BundleThread]:
        """The threads that instances share."""
        found: dict[str, BundleThread] = {}
        owners = [m for m in self.owners if m.record.place.bundle != ALONE]
        for m in sorted(owners, key=lambda m: m.record.place.apart):
            apart = m.record.place.apart
            home = self.home_of(m.record.place) if apart else m
            if home is not None:
                thread = found.setdefault(process_of(home.record.process), BundleThread([], []))
                (thread.apart if apart else thread.here).append(m)
        return [*found.values()]

    def used(self) -> Counter[str]:
        """How many instances there are on each node."""
        return Counter([m.record.node for m in self.members if not m.dead])

    def started(self) -> float:
        """The Unix time at which the first row of a paced run is released, whatever epoch it begins
        with; of an unpaced run the time at which the job began, which may be now."""
        clock = self.plan.clock
        if self.entry.started or clock is None or clock.speed is None:
            return self.entry.started or self.now
        return self.now + START_DELAY - self.plan.begins * clock.seconds / clock.speed

    def assign(self, assignment: Assignment, **changes: object) -> list[Command]:
        """Write a new assignment, with other changes of the journal, and tell it to all members."""
        commands = self.journal.write(assignment=assignment, **changes)
        told = [m.record.process for m in self.members if not m.dead]
        return [*commands, *(do.Assign(process, assignment) for process in told)]
