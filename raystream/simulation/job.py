"""The simulated cluster: the processes of a job, its controllers, and the laws that must hold."""

from __future__ import annotations

from collections import Counter
from typing import Any

from raystream.api.row_shapes import shape_of
from raystream.controller.protocol.journal import JournalEntry, newest
from raystream.controller.protocol.machine import Machine
from raystream.controller.protocol.members import ProtocolOptions, process_of
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.events import Event
from raystream.controller.protocol.recovery import ATTEMPTS_MAX, Place
from raystream.controller.protocol.strategies import strategy_of
from raystream.dataflow.asking.claiming import claiming
from raystream.dataflow.plan import Plan
from raystream.dataflow.sinks import shows_at_once
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.errors import LostError, RaystreamError, Stopped
from raystream.simulation.controller import SimulatedController
from raystream.simulation.laws import Laws
from raystream.simulation.processes.database import DiedAmid, JudgedSink, SimulatedDatabase
from raystream.simulation.processes.disks import RowDisks, SimulatedDisk
from raystream.simulation.processes.instances import Blank, SimulatedInstance
from raystream.simulation.processes.keepers import LINK, SimulatedKeeper
from raystream.simulation.processes.register import Ledger
from raystream.simulation.processes.sinks import (
    Checked,
    Deferred,
    Reference,
    SinkCall,
    WrittenParts,
    confirmed,
)
from raystream.simulation.processes.tier import Tier
from raystream.simulation.world import NOTICE, World, Wrong
from raystream.state.tiers.row_folder import RowFolder

FIND = 3.0
"""How long a new controller waits for keepers that are cut off."""
AGAIN = 0.3
"""How soon it asks them again."""
STRIKES_MAX = ATTEMPTS_MAX - 2
"""At most how many faults strike processes that are about to take one place. It is less than the
number of attempts after which the job gives up, and one less again, because one process may have
died before it was given the place."""


class SimulatedJob(Laws):
    """A job in a simulated cluster, and the laws that it has to keep.

    Args:
        reference: what its sinks are to be given; None if that is known only at the end.
        ahead: how many epochs a producer may be ahead.
        again: the share of new connections that ask for what came already.
        fragile: the share of processes that die while they take a place.
        part_bytes, image_bytes, budget: see `Scenario`.
        tier: the durable tier, if there is one.
        database: where its sink writes, if it is visible by epoch.
    """

    def __init__(
        self,
        world: World,
        plan: Plan,
        reference: Reference | None,
        *,
        options: ProtocolOptions,
        nodes: int,
        operator_nodes: int,
        zones: int,
        ahead: int,
        again: float,
        fragile: float,
        part_bytes: int,
        image_bytes: int,
        budget: int,
        tier: Tier | None = None,
        database: SimulatedDatabase | None = None,
    ) -> None:
        super().__init__()
        self.world, self.tier, self.plan, self.options = world, tier, plan, options
        self.database, self.defers = database, bool(claiming(plan))
        self.number = 0 if plan.durable is None else plan.durable.number
        """Of the run."""
        self.reference: Reference = reference or {}
        self.ledger = Ledger()
        """Where the epochs ended that were cut by arrival."""
        self.acted_on = (0, 0)
        """The order of the newest entry of the journal that was written to all its keepers, so that
        something may have followed from it."""
        self.deferred: list[SinkCall] = []
        """The calls of sinks that can be judged only at the end."""
        self.ahead, self.again, self.fragile = ahead, again, fragile
        self.part_bytes, self.image_bytes, self.budget = part_bytes, image_bytes, budget
        self.ships = strategy_of(options.recovery).stores_checkpoints
        self.nodes = tuple(f"node-{i}" for i in range(nodes))
        self.disks = {node: SimulatedDisk() for node in self.nodes}
        """By node. A disk outlives the processes of its node."""
        self.row_disks = None if plan.state_memory is None else RowDisks(self.number)
        """Where rows lie that memory has no room for."""
        self.opened = 0
        """How often an instance has begun with rows that another one had left on disk."""
        self.for_operators = frozenset(self.nodes[nodes - operator_nodes :])
        self.zones = {node: f"zone-{i % zones}" for i, node in enumerate(self.nodes) if zones}
        self.at: dict[str, SimulatedInstance] = {}
        self.blanks: dict[str, Blank] = {}
        self.started: dict[str, Blank] = {}
        """All processes that were ever started; above, those of them without a place."""
        self.takers: dict[str, SimulatedInstance] = {}
        self.keepers: dict[str, SimulatedKeeper] = {}
        self.written, self.controllers = WrittenParts(), 0
        self.over = False
        """Whether the job has ended."""
        self.error: RaystreamError | None = None
        """Why it ended, if it failed."""
        self.troubles: Counter[Place] = Counter()
        self.answers: Counter[str] = Counter()
        """How many requests were answered, by kind."""
        self.controller: SimulatedController
        self.new_controller()

    def new_controller(self) -> None:
        """Start a controller, which goes on from the journal if there is one."""
        self.controllers += 1
        self._claim(self.controllers, self.world.now + FIND)

    def _claim(self, number: int, until: float) -> None:
        """Have a new controller claim the journal. It waits for keepers that are cut off."""
        if self.over or number < self.controllers:
            return
        named = [k for k in self.keepers.values() if k.alive and k.named]
        if self.world.now < until and any(k.asleep for k in named):
            self.world.at(self.world.now + AGAIN, None, self._claim, number, until)
            return
        claims = [k.claim_journal(number) for k in named if k.answers]
        for keeper in (k for k in named if k.asleep):
            self.world.at(self.world.now, keeper, keeper.claim_journal, number)
        entry = newest((order, entry) for _, order, entry in claims)
        if entry is None and self.entry.instances:
            self.end(LostError("the journal is lost"))
            return
        if self.controllers > 1 and self.lost_journal(entry):
            raise Wrong(
                f"an old journal was taken: {entry and entry.order}, not {self.entry.order}"
            )
        if entry is not None and entry.order < self.entry.order:
            self.entry = entry  # what only the dead held is undecided again: nobody acted on it
        self.controller = SimulatedController(self, number, entry)

    def lost_journal(self, entry: JournalEntry | None) -> bool:
        """Whether an entry is older than the newest one that was written, although a copy of the
        newest lives, or although it was acted on. If there is no entry and no instance has begun,
        the job begins again, and nothing is lost."""
        if entry is not None and entry.order >= self.entry.order:
            return False
        there = [k for k in self.keepers.values() if k.answers and k.named]
        kept = [k.journal for k in there if k.journal.entry is not None]
        has_it = any(j.order >= self.entry.order for j in kept)
        return has_it or (entry is not None and (0, 0) < self.entry.order <= self.acted_on)

    def end(self, error: RaystreamError | None) -> None:
        """End the job. An error that calls the boundary register lost is wrong while a place of it
        lives."""
        keepers = {p.process for p in self.entry.keepers}
        if error and "register is lost" in error.message and keepers & set(self.entry.told.places):
            raise Wrong(f"it is not lost: {error}")
        self.over, self.error = True, error
        if isinstance(error, Stopped) and shows_at_once(self.plan):
            self._check_stopped()

    def _check_stopped(self) -> None:
        """Check that no sink has written anything after the checkpoint with which the job stops."""
        stop_at = self.entry.assignment.stop_at
        content = {} if self.database is None else self.database.content
        for sink, of in content.items():
            at = max((marker.shown for marker in of.markers), default=0)
            if at > stop_at:
                raise Wrong(f"{sink} is at {at}, and the job was stopped at {stop_at}")

    def goes_on(self, before: SimulatedJob, checkpoint: int) -> None:
        """Begin this job at a saved checkpoint of an earlier one. What the sinks were given after
        that checkpoint is discarded, and epochs that are cut by arrival may end elsewhere."""
        self.written = before.written.upto(checkpoint)
        self.deferred += [call for call in before.deferred if call.upto(checkpoint)]
        self.ledger.goes_on(before.ledger, checkpoint)
        self.versions = before.versions

    def all_dead(self) -> None:
        """End all processes of this job."""
        self.over = True
        every = (self.controller, *self.at.values(), *self.blanks.values(), *self.keepers.values())
        for box in every:
            box.alive = False

    def keep(self, process: str, node: str) -> None:
        """Start a keeper. It removes what dead processes have left on the disk of its node."""
        disk = self.disks[node]
        disk.sweep({k.process for k in self.keepers.values() if k.alive})
        self.keepers[process] = SimulatedKeeper(process, node, self.budget, disk)

    def files_of(
        self,
        process: str,
        node: str,
        place: Place,
        committed: int,
        version: CodeVersion | None = None,
    ) -> RowFolder | None:
        """A folder for the rows of a new instance, with what others on its node have left. version:
        of the code with which it begins."""
        spec = self.plan.vertices[place.vertex].spec
        shape = None if spec is None else shape_of(spec)
        if self.row_disks is None or shape is None:
            return None
        kept = shape.fingerprint if version is None else version.shapes[place.operator]
        code = 0 if version is None else version.number
        what = (process, node, place, committed, kept, self.plan.groups, code)
        return self.row_disks.made(*what)

    # ------------------------------------------------------------ what instances see

    def register(self, process: SimulatedInstance) -> str:
        """The address of a new process."""
        address = f"{process.name}@{len(self.at)}"
        self.at[address] = process
        return address

    def sink_of(self, place: Place, process: SimulatedInstance) -> Any:
        """A new copy of the sink of a place, if it is one."""
        if self.database is not None and self.plan.vertices[place.vertex].kind == "sink":
            return JudgedSink(self.database, place, lambda: self._between(process))
        if self.defers and self.plan.vertices[place.vertex].kind == "sink":
            return Deferred(place, self.deferred, lambda: process.machine.switching.version)
        expected = self.reference.get(place.vertex)
        return None if expected is None else Checked(place, expected, self.written)

    def _between(self, process: SimulatedInstance) -> None:
        """Between two calls of a sink to its database its process may die."""
        if not process.alive:
            raise DiedAmid(f"{process.name} is dead")
        if self.world.rng.random() < self.fragile / 50 and self.may_die(process):
            self.world.tell(process.name, "dies between two calls to its database")
            self.kill(process.process)
            raise DiedAmid(f"{process.name} is dead")

    def judge(self, reference: Reference) -> None:
        """Check what the sinks were given, once it is known what they are to be given."""
        self.reference = reference
        for call in confirmed(self.deferred, self.versions):
            expected = reference[call.place.vertex]
            getattr(Checked(call.place, expected, self.written), call.method)(*call.args)

    def say_done(self, process: SimulatedInstance, error: RaystreamError | None) -> None:
        """Tell the controller that an instance is done, or that it failed, which one that was
        replaced may do."""
        if error is not None:
            self.world.tell(process.name, "failed:", error)
        self._say(on.Done(process.process, error), LINK)

    def sharing(self, process: str) -> list[SimulatedInstance]:
        """The living instances of a process."""
        shared = process_of(process)
        return [s for p, s in self.takers.items() if s.alive and process_of(p) == shared]

    def at_work(self, process: str) -> bool:
        """Whether an instance in the process has begun."""
        begun = {s.process for s in self.entry.instances}
        return any(s.process in begun for s in self.sharing(process))

    def kill(self, process: str) -> None:
        """End a process, and with it all of its instances."""
        blank, shared = self.started[process_of(process)], self.sharing(process)
        blank.alive = False
        for each in shared:
            each.die()
        for name in dict.fromkeys([blank.process, process, *(s.process for s in shared)]):
            self.died(name)

    def kill_keeper(self, keeper: SimulatedKeeper) -> None:
        """Have the cluster end a keeper. One that is cut off may hear of that when it is back."""
        keeper.named = False
        if keeper.asleep and self.world.rng.random() < 0.5:
            self.world.send(LINK, keeper, self.end_keeper, keeper)

    def end_keeper(self, keeper: SimulatedKeeper) -> None:
        """End a keeper."""
        keeper.alive = False
        self.died(keeper.process)

    def end_instance(self, process: str) -> None:
        """End one instance of a process, and the process if no other instance is in it."""
        if [s.process for s in self.sharing(process)] == [process]:
            self.kill(process)
        else:
            self.takers[process].die()
            self.died(process)

    def died(self, process: str) -> None:
        """Tell the controller of that time that a process is dead."""
        self._say(on.Gone(process, "died"), NOTICE)

    def may_die(self, process: SimulatedInstance) -> bool:
        """Whether a process may be killed. Processes that are about to take a place do not die so
        often that the job gives up."""
        begun = {s.process for s in self.entry.instances}
        new = [s for s in self.sharing(process.process) if s.process not in begun]
        return all(self.troubled(s.place, STRIKES_MAX) for s in new)

    def troubled_in(self, asked: do.Become, machine: Machine, most: int) -> bool:
        """The same of all places that share the process of one."""
        placement, process = machine.placement_of(asked.process), process_of(asked.process)
        given = [] if placement is None else placement.given(process)
        return all(self.troubled(place, most) for place in given or [asked.place])

    def may_lose(self, process: str) -> bool:
        """As `may_die`, for a process that has begun no place, but may have been given one."""
        placement = self.controller.machine.placement_of(process)
        given = {} if placement is None else placement.preparing
        new = [place for p, (_, place) in given.items() if process_of(p) == process]
        return all(self.troubled(place, STRIKES_MAX) for place in new)

    def troubled(self, place: Place, most: int) -> bool:
        """Note that the taking of a place goes wrong. Returns False, and notes nothing, if it went
        wrong `most` times already."""
        happens = self.troubles[place] < most
        self.troubles[place] += happens
        return happens

    def _say(self, event: Event, mean: float) -> None:
        self.world.after(mean, self.controller, self.controller.hear, event)
