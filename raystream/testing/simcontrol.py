"""The simulated cluster: a job's processes, its controller, faults, and what must hold.

Decisions are those of `raystream.controller`; this does what they say, as `actors.controller` and
`actors.crew` do. The controller itself does not die here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from raystream.controller.decide import Commit, Recover, Release, View, behind, decide, recoveries
from raystream.controller.placing import keepers_of
from raystream.controller.recovery import ATTEMPTS_MAX, Deaths, Place, checkpoint_lost
from raystream.controller.report import Progress
from raystream.dataflow.plan import Plan
from raystream.errors import JobError, RaystreamError
from raystream.schema.types import KeyRange
from raystream.state.assignment import Assignment, Serving
from raystream.state.image import Image, decode
from raystream.testing.simprocess import LINK, Instances, Keeper, Reading
from raystream.testing.simregister import Cast, Ledger, Noted, Registrar
from raystream.testing.simworld import Box, World, Wrong

POLL = 0.15
SILENCE = 1.5
"""An instance that has not answered for so long counts as dead; it may wake later."""
DETECT = 0.05
RESTORE = 0.1

Reference = dict[int, dict[tuple[int, KeyRange, str], list[Any]]]
"""By vertex and (epoch, range, type) the records that a sink is to be given."""


@dataclass(eq=False)
class Member:
    """An instance as the controller knows it."""

    place: Place
    process: Instances
    heard: float
    progress: Progress | None = None
    dead: str = ""

    @property
    def name(self) -> str:
        return self.place.name


@dataclass
class Written:
    """What the sinks of a job were told. closed: ranges of sinks that were closed."""

    parts: set[tuple[int, int, KeyRange, str]] = field(default_factory=set)
    closed: set[tuple[int, KeyRange]] = field(default_factory=set)


class Checked:
    """A sink that compares every part with what it is to be."""

    def __init__(self, place: Place, expected: dict[Any, list[Any]], written: Written) -> None:
        self.place = place
        self.expected = expected
        self.written = written

    def write(self, epoch: int, keys: KeyRange, batch: Any) -> None:
        part = (epoch, keys, batch.record.__name__)
        if self.expected.get(part) != (got := list(batch.records())):
            raise Wrong(f"{self.place.name} wrote {part}: {got}, not {self.expected.get(part)}")
        self.written.parts.add((self.place.vertex, *part))

    def prepare(self, epoch: int) -> None:
        self._whole(epoch)

    def commit(self, epoch: int) -> None:
        self._whole(epoch)

    def close(self) -> None:
        self.written.closed.add((self.place.vertex, self.place.keys))

    def _whole(self, epoch: int) -> None:
        """Nothing up to an epoch may be missing when it is committed."""
        for part in self.expected:
            due = part[0] <= epoch and part[1] == self.place.keys
            if due and (self.place.vertex, *part) not in self.written.parts:
                raise Wrong(f"{self.place.name} was told to commit {epoch} before {part}")


class Deferred:
    """A sink whose parts can be judged at the end only: notes all calls, for a `Checked`."""

    def __init__(self, place: Place, calls: list[tuple[Place, str, tuple[Any, ...]]]) -> None:
        self.place = place
        self.calls = calls

    def write(self, epoch: int, keys: KeyRange, batch: Any) -> None:
        self.calls.append((self.place, "write", (epoch, keys, batch)))

    def prepare(self, epoch: int) -> None:
        self.calls.append((self.place, "prepare", (epoch,)))

    def commit(self, epoch: int) -> None:
        self.calls.append((self.place, "commit", (epoch,)))

    def close(self) -> None:
        self.calls.append((self.place, "close", ()))


class Job(Box):
    """A job in a simulated cluster, seen by its controller.

    again: how often a new connection asks for what came already. fragile: how often substitutes
    die while they are restored. over: it has ended; error: why, if it failed. decisions: how many
    commands the controller has given. ledger: where epochs ended that were cut by arrival.
    """

    def __init__(
        self,
        world: World,
        plan: Plan,
        reference: Reference | None,
        *,
        nodes: int,
        copies: int,
        ahead: int,
        again: float,
        fragile: float,
    ) -> None:
        super().__init__("controller")
        self.world, self.plan = world, plan
        self.reference: Reference = reference or {}
        self.deferred: list[tuple[Place, str, tuple[Any, ...]]] | None = (
            [] if reference is None else None
        )
        self.ledger = Ledger()
        self.registrar: Registrar | None = None
        if plan.clock is None:
            self.registrar = Registrar(world, self, Noted(), self._cast, self._register_lost)
        self.copies, self.ahead, self.again, self.fragile = copies, ahead, again, fragile
        self.at: dict[str, Instances] = {}
        self.written = Written()
        self.committed = self.decisions = 0
        self.over = False
        self.error: RaystreamError | None = None
        self.keepers = {f"node-{i}": Keeper(f"node-{i}", 0) for i in range(nodes)}
        self.keepers_ever = list(self.keepers.values())
        self._kept = 0
        self._deaths = Deaths()
        self._finished: set[str] = set()
        self._failed: list[tuple[str, str]] = []
        self._recovering = False
        self._released: tuple[Serving, ...] = ()
        self.members: list[Member] = []
        names = sorted(self.keepers)
        for i, (vertex, keys) in enumerate(plan.instances()):
            index = plan.ranges[vertex.id].index(keys)
            place = Place(vertex.id, vertex.name, keys, index)
            self.members.append(self._member(place, names[i % nodes], 0, ()))
        self.assignment = Assignment(1, tuple(_serving(m, 1) for m in self.members))
        for member in self.members:
            member.process.assign(self.assignment)
        for member in self.members:
            member.process.start()
        world.after(POLL, None, self._poll)

    # ------------------------------------------------------------ what instances see

    def register(self, process: Instances) -> str:
        """The address of a new process."""
        address = f"{process.name}@{len(self.at)}"
        self.at[address] = process
        return address

    def sink_of(self, place: Place) -> Checked | Deferred | None:
        """A new copy of the sink of a place, if it is one."""
        if self.deferred is not None and self.plan.vertices[place.vertex].kind == "sink":
            return Deferred(place, self.deferred)
        expected = self.reference.get(place.vertex)
        return None if expected is None else Checked(place, expected, self.written)

    def judge(self, reference: Reference) -> None:
        """What each sink is to be given is known now."""
        self.reference = reference
        for place, method, args in self.deferred or ():
            getattr(Checked(place, reference[place.vertex], self.written), method)(*args)

    def say_done(self, process: Instances) -> None:
        """The work of an instance is done."""
        self.world.after(LINK, self, self._finished.add, process.name)

    def say_failed(self, process: Instances, error: RaystreamError) -> None:
        """An instance failed. One that was replaced may well."""
        if self._is_member(process):
            self.world.tell(process.name, "failed:", error)
            self._failed.append((process.name, str(error)))

    def _is_member(self, process: Instances) -> bool:
        return any(m.process is process for m in self.members)

    # ------------------------------------------------------------ checks

    def check_trimmed(self, producer: Instances) -> None:
        """No log may be trimmed below what a living instance still needs of it."""
        if not self._is_member(producer):
            return
        for edge, log in producer.machine.outlets.logs.items():
            consumer = self.plan.edges[edge].consumer
            for member in self.members:
                at = member.process.machine
                needs = member.place.vertex == consumer and member.process.alive and not at.ended
                if needs and at.position + 1 < log.first:
                    raise Wrong(
                        f"{producer.name} holds edge {edge} from {log.first} on, but"
                        f" {member.name} needs {at.position + 1}"
                    )

    def check_refused(self, consumer: Instances, reading: Reading, first: int) -> None:
        """Only who was replaced may be refused."""
        producer = self.at[reading.address]
        if self._is_member(consumer) and self._is_member(producer):
            raise Wrong(
                f"{consumer.name} asked {producer.name} for epoch {reading.asked} of edge"
                f" {reading.edge.id}, whose log begins at {first}"
            )

    def _check_floor(self, floor: int) -> None:
        """Law L4: everybody has reached the floor, and it was stored in all copies."""
        for m in self.members:
            at = m.process.machine
            if at.position < floor and not at.ended:
                raise Wrong(f"{floor} was committed, and {m.name} is at {at.position}")
            cut = min(floor, at.position) if at.ended else floor
            kept = self._held(m.place, cut)
            if len({k.node for k in kept}) < min(self.copies, len(self.keepers)):
                raise Wrong(f"{floor} was committed, and {m.name} is stored {len(kept)} times")

    def _held(self, place: Place, cut: int) -> list[Keeper]:
        """All keepers that ever held a checkpoint."""
        return [k for k in self.keepers_ever if (place.vertex, place.keys, cut) in k.ever]

    def _check_lost(self, place: Place, floor: int) -> None:
        """A checkpoint may be called lost when those who held it are dead."""
        held = self._held(place, floor)
        if any(k.alive for k in held) or len(held) < min(self.copies, len(self.keepers)):
            raise Wrong(f"{place.name} at {floor} is not lost: {[(k.name, k.alive) for k in held]}")

    def _check_tiles(self) -> None:
        """Owners tile; those of ranges that are over count although nobody reads them any more."""
        whole = Assignment(0, self.assignment.serving + self._released)
        for vertex in self.plan.vertices:
            whole.check(vertex.id, self.committed + 1, self.plan.groups)

    # ------------------------------------------------------------ the controller

    def _poll(self) -> None:
        """Ask everybody, then do what follows from what is known."""
        if self.over:
            return
        for m in self.members:
            if not m.dead:
                self.world.send(LINK, m.process, self._answer, m)
                if self.world.now - m.heard > SILENCE:
                    self.died(m.process, f"did not answer for {SILENCE:g} s")
        if self.registrar is not None:
            self.registrar.poll()
        if not self._recovering:
            self._act()
        self.world.after(POLL, None, self._poll)

    def _answer(self, member: Member) -> None:
        self.world.send(LINK, self, self._hear, member, member.process.progress())

    def _hear(self, member: Member, progress: Progress) -> None:
        member.progress, member.heard = progress, self.world.now
        if member.dead or member not in self.members:
            return
        untold = behind(progress, self.assignment.version, self.committed, self._kept)
        process = member.process
        if untold.assignment:
            self.world.send(LINK, process, process.assign, self.assignment)
        if untold.floor:
            self.world.send(LINK, process, process.commit, self.committed)
        if untold.keepers:
            self._send_keepers(member)

    def died(self, process: Instances, why: str) -> None:
        """A process is gone, or seems to be."""
        for m in self.members:
            if m.process is process and not m.dead:
                self.world.tell("controller:", m.name, why)
                m.dead = why

    def _view(self) -> View:
        return View(
            tuple(m.progress for m in self.members if m.progress is not None),
            frozenset(m.name for m in self.members if m.dead),
            frozenset(self._finished),
            tuple(self._failed),
            self.committed,
            self.plan.cut_every,
            frozenset(s.instance for s in self.assignment.serving),
        )

    def _act(self) -> None:
        view = self._view()
        if not recoveries(view) and not all(m.progress or m.dead for m in self.members):
            return  # the real controller waits for the answers of all
        for command in decide(view):
            self.world.tell("controller:", command)
            self.decisions += 1
            if isinstance(command, Commit):
                self._commit(command.epoch)
            elif isinstance(command, Recover):
                self._recover(command)
                return  # what else there is follows from the next view
            elif isinstance(command, Release):
                self._release(command.instances)
            else:
                self.end(JobError(command.because) if command.failed else None)

    def _commit(self, epoch: int) -> None:
        self._check_floor(epoch)
        self.committed = epoch
        self._deaths.moved()
        for m in self.members:
            self.world.send(LINK, m.process, m.process.commit, epoch)
        for keeper in self.keepers.values():
            self.world.send(LINK, keeper, keeper.trim, epoch)

    def _release(self, names: tuple[str, ...]) -> None:
        self._released += tuple(s for s in self.assignment.serving if s.instance in names)
        self.assignment = self.assignment.without(names)
        self._assign()

    def _assign(self) -> None:
        for m in self.members:
            self.world.send(LINK, m.process, m.process.assign, self.assignment)

    def end(self, error: RaystreamError | None) -> None:
        """The job has ended."""
        self.over, self.error = True, error

    # ------------------------------------------------------------ recovery

    def _recover(self, command: Recover) -> None:
        gone = [m for m in self.members if m.name in command.instances]
        try:
            self._deaths.died([m.place for m in gone], command.floor, gone[0].dead)
        except JobError as error:
            self.end(error)
            return
        self._recovering = True
        self.world.after(RESTORE, None, self._fetch, gone, command.floor, 1)

    def _fetch(self, gone: list[Member], floor: int, attempt: int) -> None:
        """Get the images of all ranges from whoever has them."""
        images = []
        for m in gone:
            found = self._images(m.place, floor)
            if found is None:
                self._check_lost(m.place, floor)
                self.end(checkpoint_lost(m.place, floor))
                return
            images.append(found)
        self.world.after(RESTORE, None, self._restored, gone, floor, attempt, images)

    def _images(self, place: Place, floor: int) -> tuple[Image, ...] | None:
        if floor == 0:
            return ()
        for keeper in self.keepers.values():
            found = dict(keeper.images.images(place.vertex, floor)) if keeper.alive else {}
            if place.keys in found:
                return tuple(decode(s.data) for s in found[place.keys])
        return None

    def _restored(
        self, gone: list[Member], floor: int, attempt: int, images: list[tuple[Image, ...]]
    ) -> None:
        """The substitutes have their state: they are told to all and begin."""
        if attempt < ATTEMPTS_MAX and self.world.rng.random() < self.fragile:
            self.world.tell("a substitute died while it was restored")
            self.world.after(RESTORE, None, self._fetch, gone, floor, attempt + 1)
            return
        nodes = sorted(self.keepers)
        new = [
            self._member(m.place.next(), self.world.rng.choice(nodes), floor, i)
            for m, i in zip(gone, images, strict=True)
        ]
        serving = [_serving(m, floor + 1) for m in new]
        self.assignment = self.assignment.replaced([m.name for m in gone], serving)
        self.members = [m for m in self.members if m not in gone] + new
        self._check_tiles()
        self._assign()
        for m in new:
            self.world.after(LINK, m.process, m.process.start)
        self._recovering = False

    def _member(self, place: Place, node: str, floor: int, images: tuple[Image, ...]) -> Member:
        keepers = self._keepers_of(place, node)
        process = Instances(self, place, node, keepers, self._kept, floor, images)
        return Member(place, process, self.world.now)

    # ------------------------------------------------------------ keepers

    def _cast(self) -> Cast:
        """Who is there for the boundary register."""
        living = [self.keepers[node] for node in sorted(self.keepers)]
        claimers = {m.name: m.process.claimer for m in self.members if not m.dead}
        over = [m.name for m in self.members if (p := m.progress) and p.ended
                and p.position <= self.committed]  # fmt: skip
        return Cast(
            living[: self.copies],
            living,
            {name: c for name, c in claimers.items() if c is not None},
            frozenset(over),
        )

    def _register_lost(self, error: JobError) -> None:
        """It may be called lost when all its places are gone."""
        assert self.registrar is not None
        places = self.registrar.journal.told.places
        if any(k.name in places for k in self.keepers.values()):
            raise Wrong(f"it is not lost: {error}")
        self.end(error)

    def _keepers_of(self, place: Place, node: str) -> tuple[Keeper, ...]:
        vertex = self.plan.vertices[place.vertex]
        producers = {e.producer for e in vertex.inputs}
        upstream = [m.process.node for m in self.members if m.place.vertex in producers]
        source = vertex.kind == "source"
        nodes = keepers_of(place, node, upstream, self.keepers, self.copies, source=source)
        return tuple(self.keepers[n] for n in nodes)

    def _send_keepers(self, member: Member) -> None:
        process = member.process
        keepers = self._keepers_of(member.place, process.node)
        self.world.send(LINK, process, process.kept_by, keepers, self._kept)

    def keeper_died(self, node: str) -> None:
        """Another keeper takes its place, with nothing in it."""
        keeper = Keeper(node, len(self.keepers_ever))
        self.keepers_ever.append(keeper)
        self.keepers[node] = keeper
        self._kept += 1
        for m in self.members:
            self._send_keepers(m)


class Faults:
    """Lets things go wrong by the chance of its world.

    at: after so many events each, ascending. late: how many more, soon after what the controller
    decides. done: what went wrong, by kind.
    """

    KINDS = ("kill", "kill two", "keeper", "node", "sleep", "cut")
    WEIGHTS = (6, 2, 2, 1, 3, 2)

    def __init__(self, job: Job, at: list[int], late: int) -> None:
        self.job = job
        self.world = job.world
        self.at = at
        self.late = late
        self.done: Counter[str] = Counter()
        self._decisions = 0

    def strike(self) -> None:
        """Let happen what is due."""
        if self.job.decisions > self._decisions:
            self._decisions = self.job.decisions
            if self.late and self.world.rng.random() < 0.3:
                self.late -= 1
                self.at.append(self.world.events + self.world.rng.randrange(40))
                self.at.sort()
        while self.at and self.at[0] <= self.world.events:
            self.at.pop(0)
            self._one()

    def _one(self) -> None:
        kind = self.world.rng.choices(self.KINDS, self.WEIGHTS)[0]
        if kind == "keeper":
            self._keeper(self.world.rng.choice(sorted(self.job.keepers)))
        elif kind == "node":
            node = self.world.rng.choice(sorted(self.job.keepers))
            self.done["node"] += 1
            self._keeper(node)
            for process in [p for p in self.job.at.values() if p.alive and p.node == node]:
                self._kill(process)
        else:
            for process in self._some(2 if kind == "kill two" else 1):
                {"sleep": self._sleep, "cut": self._cut}.get(kind, self._kill)(process)

    def _some(self, n: int) -> list[Instances]:
        living = [p for p in self.job.at.values() if p.alive]
        return self.world.rng.sample(living, min(n, len(living)))

    def _kill(self, process: Instances) -> None:
        self.done[process.vertex.kind] += 1
        self.world.tell(process.name, "is killed")
        process.die()
        self.world.after(0.05, None, self.job.died, process, "died")

    def _keeper(self, node: str) -> None:
        keeper = self.job.keepers[node]
        self.done["keeper"] += 1
        self.world.tell(keeper.name, "is killed")
        keeper.alive = False
        self.world.after(0.05, None, self._noticed, keeper)

    def _noticed(self, keeper: Keeper) -> None:
        if self.job.keepers[keeper.node] is keeper:
            self.job.keeper_died(keeper.node)

    def _sleep(self, process: Instances) -> None:
        if process.asleep:
            return
        seconds = self.world.rng.choice((0.2, 1.0, 3.0, 5.0))
        self.done["pause"] += 1
        self.world.tell(process.name, "stops for", seconds)
        process.asleep = True
        self.world.at(self.world.now + seconds, None, self._wake, process)

    def _wake(self, process: Instances) -> None:
        if process.alive:
            self.world.tell(process.name, "goes on")
            self.world.wake(process)
            process.woke()

    def _cut(self, process: Instances) -> None:
        self.done["connection"] += 1
        for reading in process.readings():
            if self.world.rng.random() < 0.5:
                self.world.tell(process.name, "loses its connection to", reading.address)
                process.broken(reading, reading.connection)


def _serving(member: Member, first: int) -> Serving:
    place = member.place
    return Serving(place.vertex, place.keys, place.name, member.process.address, first)
