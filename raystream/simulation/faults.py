"""The faults of a simulation: processes die, stop and wake, connections break, nodes are cut
off."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from raystream.simulation.controller import RESTART, SimulatedController
from raystream.simulation.job import SimulatedJob
from raystream.simulation.processes.disks import SimulatedDisk
from raystream.simulation.processes.instances import Blank, SimulatedInstance
from raystream.simulation.processes.keepers import SimulatedKeeper

KINDS = {
    "kill": 6,
    "kill two": 2,
    "spare": 1,
    "keeper": 2,
    "node": 1,
    "controller": 2,
    "controller pause": 1,
    "sleep": 3,
    "cut": 2,
    "disk full": 1,
    "torn file": 1,
    "bad page": 1,
}
"""Kinds of faults, and how often they strike."""

Process = SimulatedKeeper | SimulatedInstance | Blank


class Faults:
    """Lets things go wrong, as the random numbers of its world decide.

    Args:
        at: for each fault the number of events after which it strikes, ascending.
        late: how many more faults strike, each soon after a decision of the controller.
        kinds: the kinds of faults that may strike; all unless given.
    """

    def __init__(
        self, job: SimulatedJob, at: list[int], late: int, kinds: Sequence[str] = ()
    ) -> None:
        self.kinds = {kind: KINDS[kind] for kind in kinds or KINDS}
        self.job = job
        self.world = job.world
        self.at = at
        self.late = late
        self.done: Counter[str] = Counter()
        """How many faults struck, by kind."""
        self._decisions = 0

    def strike(self) -> None:
        """Let the faults strike that are due."""
        if self.job.decisions > self._decisions:
            self._decisions = self.job.decisions
            if self.late and self.world.rng.random() < 0.3:
                self.late -= 1
                self.at.append(self.world.events + self.world.rng.randrange(40))
                self.at.sort()
        while self.at and self.at[0] <= self.world.events:
            self.at.pop(0)
            self._one(self.world.rng.choices([*self.kinds], [*self.kinds.values()])[0])

    def _one(self, kind: str) -> None:
        chance, job = self.world.rng, self.job
        if kind == "keeper":
            if living := self._keepers():
                self._keeper(chance.choice(living))
        elif kind == "node":
            self._node(chance.choice(job.nodes))
        elif kind == "controller":
            self._controller(job.controller)
        elif kind == "disk full":
            self._disk_full(job.disks[chance.choice(job.nodes)])
        elif kind in ("torn file", "bad page"):
            self._damage(kind)
        elif kind == "controller pause":
            self._controller_pause(job.controller)
        elif kind == "spare":
            waiting = sorted(p for p, b in job.blanks.items() if b.alive)
            for name in [p for p in waiting[:1] if job.may_lose(p)]:
                self.done[kind] += 1
                job.kill(name)
        else:
            there = [p for p in job.at.values() if p.alive]
            for process in chance.sample(there, min(len(there), 1 + (kind == "kill two"))):
                {"sleep": self._sleep, "cut": self._cut}.get(kind, self._kill)(process)

    def _keepers(self) -> list[SimulatedKeeper]:
        return [k for k in self.job.keepers.values() if k.alive]

    def _node(self, node: str) -> None:
        self.done["node"] += 1
        for keeper in [k for k in self._keepers() if k.node == node]:
            self._keeper(keeper)
        for process in [p for p in self.job.at.values() if p.alive and p.node == node]:
            self._kill(process)

        self.job.disks[node] = SimulatedDisk()
        if self.job.row_disks is not None:
            self.job.row_disks.lose(node)

    def _disk_full(self, disk: SimulatedDisk) -> None:
        """Let a disk be full for a while."""
        self.done["disk full"] += 1
        self.world.tell("a disk is full")
        disk.full = True
        later = self.world.now + self.world.rng.choice((0.2, 1.0, 3.0))
        self.world.at(later, None, self._disk_has_room, disk)

    def _disk_has_room(self, disk: SimulatedDisk) -> None:
        self.world.tell("a disk has room again")
        disk.full = False

    def _damage(self, kind: str) -> None:
        """Damage a file of a keeper that lives."""
        there = [(k, file) for k in self._keepers() for file in sorted(k.folder.files)]
        if not there:
            return
        self.done[kind] += 1
        keeper, file = self.world.rng.choice(there)
        self.world.tell(kind, file, "of", keeper.name)
        data = keeper.folder.disk.files[keeper.process, file]
        if not data:
            return
        at = self.world.rng.randrange(len(data))
        if kind == "torn file":
            del data[at:]
        else:
            data[at] ^= 1
        keeper.spoil(file)

    def _kill(self, process: SimulatedInstance) -> None:
        if not self.job.may_die(process):
            return
        self.done[process.vertex.kind] += 1
        self.world.tell(process.name, "is killed")
        self.job.kill(process.process)

    def _keeper(self, keeper: SimulatedKeeper) -> None:
        self.done["keeper"] += 1
        self.world.tell(keeper.name, "is killed")
        keeper.alive = False
        self.job.died(keeper.process)

    def _controller(self, controller: SimulatedController) -> None:
        """Kill the controller; another one goes on from the journal."""
        if controller.alive:
            self.done["controller"] += 1
            self.world.tell(controller.name, "is killed")
            controller.alive = False
            self._restart(controller)

    def _controller_pause(self, controller: SimulatedController) -> None:
        """Stop the controller, so that it is thought dead. It wakes when there is another one."""
        if controller.alive and not controller.asleep:
            self.done["controller pause"] += 1
            self.world.tell(controller.name, "stops")
            controller.asleep = True
            self._restart(controller)
            later = self.world.now + self.world.rng.choice((0.2, 1.0, 3.0))
            self.world.at(later, None, self.world.wake, controller)

    def _restart(self, controller: SimulatedController) -> None:
        self.world.after(RESTART, None, self._new_controller, controller)

    def _new_controller(self, old: SimulatedController) -> None:
        if self.job.controller is old and not self.job.over:
            self.job.new_controller()

    def _sleep(self, process: SimulatedInstance) -> None:
        if process.asleep:
            return
        seconds = self.world.rng.choice((0.2, 1.0, 3.0, 5.0))
        self.done["pause"] += 1
        self.world.tell(process.name, "stops for", seconds)
        for each in self.job.sharing(process.process):
            each.asleep = True
        self.world.at(self.world.now + seconds, None, self._wake, process)

    def _wake(self, process: SimulatedInstance) -> None:
        for each in self.job.sharing(process.process):
            self.world.tell(each.name, "goes on")
            self.world.wake(each)
            each.woke()

    def _cut(self, process: SimulatedInstance) -> None:
        self.done["connection"] += 1
        for reading in process.readings.all():
            if self.world.rng.random() < 0.5:
                self.world.tell(process.name, "loses its connection to", reading.address)
                process.readings.broken(reading, reading.connection)


class NodeCuts:
    """Cuts nodes off, as the random numbers of their world decide.

    Args:
        at: for each cut the number of events after which it comes, ascending.
    """

    def __init__(self, job: SimulatedJob, at: list[int]) -> None:
        self.job, self.world, self.at = job, job.world, at
        self.done = 0
        """How many there were."""

    def strike(self) -> None:
        """Make the cuts that are due."""
        while self.at and self.at[0] <= self.world.events:
            self.at.pop(0)
            self._cut_off(self.world.rng.choice(self.job.nodes))

    def _cut_off(self, node: str) -> None:
        """Cut a node off. The cluster may take it for dead meanwhile; what runs there goes on when
        the node is back, and then may be ended."""
        job, chance = self.job, self.world.rng
        there: list[Process] = [*job.keepers.values(), *job.at.values(), *job.blanks.values()]
        cut = [p for p in there if p.node == node and p.alive and not p.asleep]
        seconds = chance.choice((0.2, 1.0, 3.0, 5.0))
        self.done += 1
        self.world.tell(node, "is cut off for", seconds)
        for process in cut:
            process.asleep = True
        if chance.random() < 0.5:
            after = chance.uniform(0.0, seconds)
            self.world.at(self.world.now + after, None, self._taken_for_dead, cut)
        self.world.at(self.world.now + seconds, None, self._is_back, node, cut)

    def _taken_for_dead(self, cut: Sequence[Process]) -> None:
        """Have the cluster say that what runs on a node has died. It is ended some time after the
        node is back."""
        job = self.job
        for process in cut:
            match process:
                case SimulatedKeeper():
                    process.named, may = False, True
                case SimulatedInstance():
                    may = job.may_die(process)
                case Blank():
                    may = job.may_lose(process.process)
            if may:
                job.died(process.process)
                self.world.at(self.world.now, process, self._to_end, process)

    def _to_end(self, process: Process) -> None:
        later = self.world.now + self.world.rng.choice((0.0, 0.1, 1.0))
        self.world.at(later, process, self._end, process)

    def _end(self, process: Process) -> None:
        if isinstance(process, SimulatedKeeper):
            self.job.end_keeper(process)
        else:
            self.job.kill(process.process)

    def _is_back(self, node: str, cut: Sequence[Process]) -> None:
        self.world.tell(node, "is back")
        for process in cut:
            if process.alive and process.asleep:
                self.world.wake(process)
                if isinstance(process, SimulatedInstance):
                    process.woke()
