"""The simulated cluster: a job's processes, its controllers, and what must hold."""

from __future__ import annotations

from collections import Counter
from typing import Any

from raystream.controller import commands as do
from raystream.controller.commands import Event
from raystream.controller.journal import Entry, newest
from raystream.controller.members import Options
from raystream.controller.recovery import ATTEMPTS_MAX, Place
from raystream.dataflow.plan import Plan
from raystream.errors import LostError, RaystreamError
from raystream.testing.simcontrol import NOTICE, Controller
from raystream.testing.simlaws import Laws
from raystream.testing.simprocess import Blank, Instances
from raystream.testing.simregister import Ledger
from raystream.testing.simshipping import LINK, Keeper
from raystream.testing.simsinks import Checked, Deferred, Reference, Written
from raystream.testing.simtier import Tier
from raystream.testing.simworld import World, Wrong

STRIKES_MAX = ATTEMPTS_MAX - 2
"""So often faults strike who takes a place: one process less than the job gives up after, since one
may have died before it was given the place."""


class Job(Laws):
    """A job in a simulated cluster, and the laws that it has to keep.

    again: how often a new connection asks for what came already. fragile: how often processes die
    while they take a place. part_bytes, image_bytes: see `Scenario`. blanks: processes
    without a place. over: the job has ended; error: why, if it failed. answers: to requests, by
    kind. ledger: where epochs ended that were cut by arrival; their sinks are judged at the end.
    acted_on: the order of the newest entry of the journal that was written wherever it should be,
    so that something may have followed from it.
    """

    def __init__(
        self,
        world: World,
        plan: Plan,
        reference: Reference | None,
        *,
        options: Options,
        nodes: int,
        operator_nodes: int,
        ahead: int,
        again: float,
        fragile: float,
        part_bytes: int,
        image_bytes: int,
        tier: Tier | None = None,
    ) -> None:
        super().__init__()
        self.world, self.tier, self.plan, self.options = world, tier, plan, options
        self.reference: Reference = reference or {}
        self.ledger = Ledger()
        self.acted_on = (0, 0)
        self.deferred: list[tuple[Place, str, tuple[Any, ...]]] = []
        self.ahead, self.again, self.fragile = ahead, again, fragile
        self.part_bytes, self.image_bytes = part_bytes, image_bytes
        self.ships = options.recovery == "state"
        self.nodes = tuple(f"node-{i}" for i in range(nodes))
        self.for_operators = frozenset(self.nodes[nodes - operator_nodes :])
        self.at: dict[str, Instances] = {}
        self.blanks: dict[str, Blank] = {}
        self.takers: dict[str, Instances] = {}
        self.keepers: dict[str, Keeper] = {}
        self.written = Written()
        self.over = False
        self.error: RaystreamError | None = None
        self.troubles: Counter[Place] = Counter()
        self.answers: Counter[str] = Counter()
        self.controllers = 0
        self.controller: Controller
        self.new_controller()

    def new_controller(self) -> None:
        """A controller that goes on from the journal, where there is one."""
        self.controllers += 1
        claims = [k.journal.claim(self.controllers) for k in self.keepers.values() if k.alive]
        entry = newest((order, entry) for _, order, entry in claims)
        if entry is None and self.entry.seats:
            self.end(LostError("the journal is lost"))
            return
        if self.controllers > 1 and self.lost_journal(entry):
            raise Wrong(
                f"an old journal was taken: {entry and entry.order}, not {self.entry.order}"
            )
        if entry is not None and entry.order < self.entry.order:
            self.entry = entry  # what only the dead held is undecided again: nobody acted on it
        self.controller = Controller(self, self.controllers, entry)

    def lost_journal(self, entry: Entry | None) -> bool:
        """Whether an entry is not the newest that was written, although some copy of that lives, or
        although it was acted on. Without any, while nobody has a seat, the job begins anew."""
        if entry is not None and entry.order >= self.entry.order:
            return False
        kept = [k.journal for k in self.keepers.values() if k.alive and k.journal.entry is not None]
        there = any(j.order >= self.entry.order for j in kept)
        return there or (entry is not None and (0, 0) < self.entry.order <= self.acted_on)

    def end(self, error: RaystreamError | None) -> None:
        """The job has ended. The boundary register may be called lost when its places are gone."""
        posts = {p.process for p in self.entry.posts}
        if error and "register is lost" in error.message and posts & set(self.entry.told.places):
            raise Wrong(f"it is not lost: {error}")
        self.over, self.error = True, error

    def goes_on(self, before: Job, cut: int) -> None:
        """This job begins at a saved cut of another: what sinks were given after that is discarded,
        and epochs that are cut by arrival may end elsewhere."""
        self.written = before.written.upto(cut)
        self.deferred += [c for c in before.deferred if c[1] != "close" and c[2][0] <= cut]
        published = before.ledger.published.items()
        self.ledger.published |= {at: b for at, b in published if at[1] <= cut}

    def all_dead(self) -> None:
        """Nothing of this job lives any more."""
        self.over = True
        every = (self.controller, *self.at.values(), *self.blanks.values(), *self.keepers.values())
        for box in every:
            box.alive = False

    # ------------------------------------------------------------ what instances see

    def register(self, process: Instances) -> str:
        """The address of a new process."""
        address = f"{process.name}@{len(self.at)}"
        self.at[address] = process
        return address

    def sink_of(self, place: Place) -> Checked | Deferred | None:
        """A new copy of the sink of a place, if it is one."""
        if self.plan.clock is None and self.plan.vertices[place.vertex].kind == "sink":
            return Deferred(place, self.deferred)
        expected = self.reference.get(place.vertex)
        return None if expected is None else Checked(place, expected, self.written)

    def judge(self, reference: Reference) -> None:
        """What each sink is to be given is known now."""
        self.reference = reference
        for place, method, args in self.deferred:
            getattr(Checked(place, reference[place.vertex], self.written), method)(*args)

    def say_done(self, process: Instances, error: RaystreamError | None) -> None:
        """The work of an instance is done, or it failed. One that was replaced may well."""
        if error is not None:
            self.world.tell(process.name, "failed:", error)
        self._say(do.Done(process.process, error), LINK)

    def died(self, process: str) -> None:
        """A process is dead: the controller of that time is told."""
        self._say(do.Gone(process, "died"), NOTICE)

    def may_die(self, process: Instances) -> bool:
        """Whoever is about to take a place does not die so often that the job gives up."""
        begun = any(s.process == process.process for s in self.entry.seats)
        return begun or self.troubled(process.place, STRIKES_MAX)

    def may_lose(self, process: str) -> bool:
        """The same of a process without a place, if it was given one."""
        engagement = self.controller.machine.engaged(process)
        given = None if engagement is None else engagement.preparing.get(process)
        return given is None or self.troubled(given[1], STRIKES_MAX)

    def troubled(self, place: Place, most: int) -> bool:
        """Note that the taking of a place goes wrong, unless it went wrong so often already."""
        happens = self.troubles[place] < most
        self.troubles[place] += happens
        return happens

    def _say(self, event: Event, mean: float) -> None:
        self.world.after(mean, self.controller, self.controller.hear, event)
