"""Simulated controllers.

What is to be done is decided by `raystream.controller.protocol.machine`; this does it, as the actor
does: late, sometimes twice or not at all, while processes die, the controller's too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, assert_never

from raystream.controller.protocol import register_views as registering
from raystream.controller.protocol.journal import JournalEntry
from raystream.controller.protocol.machine import Machine
from raystream.controller.protocol.members import process_of
from raystream.controller.protocol.messages import commands as do
from raystream.controller.protocol.messages import events as on
from raystream.controller.protocol.messages.calls import InstanceCalls
from raystream.controller.protocol.messages.commands import Command
from raystream.controller.protocol.messages.events import Event
from raystream.controller.protocol.register_views import AskContent, Fill, Recall, Tell
from raystream.dataflow.register import PlaceSet
from raystream.dataflow.upgrading.versions import begins_of, version_at
from raystream.errors import StateError
from raystream.simulation.bounds import check_given, check_hired
from raystream.simulation.journal import SimulatedJournal
from raystream.simulation.laws import check_together
from raystream.simulation.processes.instances import Blank, SimulatedInstance
from raystream.simulation.processes.keepers import LINK, KeeperWatch
from raystream.simulation.restoring import holds, images_of, waits
from raystream.simulation.saving import Saving
from raystream.simulation.world import NOTICE, POLL, Box
from raystream.state.images.partition import partition

if TYPE_CHECKING:
    from raystream.simulation.job import SimulatedJob

P = ParamSpec("P")

FIND = 3.0
"""How long a restore waits for a keeper that may have what it needs."""
SILENCE = 1.5
"""An instance that has not answered for this long counts as dead; it may wake later."""
HIRING = 0.1
RESTORE = 0.1
TROUBLES_MAX = 2
"""How often, at most, a process fails to take a place for another reason than a fault."""
RESTART = 0.5
"""How long it takes until a new controller is there."""


class SimulatedController(Box):
    """One controller of a job: does what its machine commands, in order."""

    def __init__(self, job: SimulatedJob, number: int, entry: JournalEntry | None) -> None:
        super().__init__(f"controller {number}")
        self.job, self.world, self.number = job, job.world, number
        self.machine = Machine(job.plan, job.options, entry, number)
        self._todo: deque[Command] = deque()
        self._journal, self._saving = SimulatedJournal(self), Saving(self)
        self._keepers, self._heard = KeeperWatch(job), dict[str, float]()
        self._spares: dict[str, Blank] = {}
        alive = sorted({process_of(p) for p, b in {**job.blanks, **job.takers}.items() if b.alive})
        alive += [p for p, k in job.keepers.items() if k.alive]
        self.world.tell(self.name, "begins", entry.order if entry else "")
        self._add(
            self.machine.start(job.nodes, alive, self.world.now, job.for_operators, job.zones)
        )
        for record in self.machine.journal.keepers:  # that died while there was no controller
            keeper = job.keepers.get(record.process)
            if keeper is not None and not keeper.alive:
                self.world.after(NOTICE, self, self.hear, on.Gone(record.process, "died"))
        self.world.after(POLL, self, self._poll)

    @property
    def newest(self) -> bool:
        """Whether there is no newer controller: Ray knows. Keepers that are all new do not."""
        return self.job.controllers == self.number

    def depose(self) -> None:
        """End this controller: another one has taken over."""
        self.world.tell(self.name, "is not the controller any more")
        self.alive = False

    def written(self) -> None:
        """Do what waited for the journal, which is written now."""
        self._go_on()

    def rewrite(self, command: do.Write) -> None:
        """Write the entry again that no keeper has, or the one that was to be written after it."""
        self._todo.appendleft(command)
        if any(isinstance(c, do.Write) for c in [*self._todo][1:]):
            self._go_on()

    def hear(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, on.Gone):
            self.world.tell(self.name, "hears that", event.process, event.why)
        self._add(self.machine.handle(event, self.world.now))

    def _poll(self) -> None:
        """Ask all instances and keepers how they are."""
        if self.job.over:
            return
        for m in self.machine.members:
            process = self.job.takers[m.record.process]
            self.world.send(LINK, process, self._ask, process)
            heard = self._heard.setdefault(process.process, self.world.now)
            if not m.dead and self.world.now - heard > SILENCE:
                self.hear(on.Gone(process.process, f"did not answer for {SILENCE:g} s"))
        for gone in self._keepers.silent(self.machine.journal.keepers):
            self.hear(gone)
        check_together(self.machine)
        self.hear(on.Tick(self.job.nodes, self.job.for_operators, self.job.zones))
        self.world.after(POLL, self, self._poll)

    def _ask(self, process: SimulatedInstance) -> None:
        self.world.send(LINK, self, self._answer, process.process, process.progress())

    def _answer(self, process: str, progress: Any) -> None:
        self._heard[process] = self.world.now
        self.hear(on.Heard(process, progress))

    # ------------------------------------------------------------ doing

    def _add(self, commands: list[Command]) -> None:
        if commands:  # most often nothing follows
            self._check_places(commands)
            self._todo.extend(commands)
            self._go_on()

    def _check_places(self, commands: list[Command]) -> None:
        """Check that processes are started, and given places, on the nodes where they should be."""
        left = self.machine.journal.drained
        nodes = {n: n in self.job.for_operators for n in self.job.nodes if n not in left}
        for hire in (c for c in commands if isinstance(c, do.Hire)):
            check_hired(hire, nodes)
        for become in (c for c in commands if isinstance(c, do.Become)):
            given = self._spares.pop(become.process, None)  # not of one that is given it again
            placement = self.machine.placement_of(become.process)
            if given is not None and placement is not None and not placement.node:
                operator = self.job.plan.vertices[become.place.vertex].kind == "operator"
                check_given(become, operator, given.node, nodes)

    def _go_on(self) -> None:
        while self._todo and not self._journal.busy and self.alive:
            if isinstance(self._todo[0], do.Write):
                do.catch_up(self._todo)
            command = self._todo.popleft()
            if self.world.story is not None and not isinstance(
                command, do.Trim | do.CommitTo | do.Assign
            ):
                self.world.tell(self.name, command if len(str(command)) < 200 else type(command))
            self._do(command)

    def _do(self, command: Command) -> None:
        job, world = self.job, self.world
        match command:
            case do.Write():
                self._journal.write(command)
            case do.Hire(process, _, node):
                world.after(HIRING, self, self._hired, process, node)
            case do.Adopt(process):
                world.after(LINK, self, self._adopted, process)
            case do.Keep(process, node):
                job.keep(process, node)
            case do.Become():
                world.after(RESTORE, self, self._fetch, command)
            case do.Deliver(process):
                owner = job.takers[process]
                world.after(LINK, owner, self._deliver, owner, command)
            case do.Begin(record, assignment):
                taker = job.takers[record.process]
                if taker.alive:
                    begin = (assignment, record.keepers, record.kept, "sim", None)
                    world.after(LINK, taker, taker.begin, *begin)
                else:
                    world.after(NOTICE, self, self.hear, on.Gone(record.process, "is dead"))
            case do.Assign(process, assignment):
                self._tell(process, InstanceCalls.assign, assignment)
            case do.CommitTo(process, epoch, published_upto):
                self._tell(process, InstanceCalls.commit, epoch, published_upto)
            case do.KeptBy(process, keepers, kept):
                self._tell(process, InstanceCalls.kept_by, keepers, kept)
            case do.Forget(process, epoch):
                self._tell(process, InstanceCalls.forget, epoch)
            case do.Trim(process, committed, places):
                keeper = job.keepers[process]
                these = [(p.vertex, p.keys) for p in places]
                world.send(LINK, keeper, keeper.trim, committed, these)
            case do.PutChains():
                self._saving.put(command)
            case do.SaveCheckpoint():
                self._saving.save(command)
            case AskContent() | Recall() | Fill() | Tell():
                self._register(command)
            case do.Kill(process, _, gently):
                self._kill(process, gently)
            case do.Answer(_, refusal):
                job.answers["refused" if refusal else "taken up"] += 1
            case do.End(error):
                job.end(error)
            case _:
                assert_never(command)

    # ------------------------------------------------------------ the boundary register

    def _register(self, command: registering.RegisterCommand) -> None:
        job = self.job
        match command:
            case AskContent(view, place):
                keeper = job.keepers[place]
                self._request(keeper, lambda: on.Handed(view, place, keeper.hand(view)))
            case Fill(view, place, content):
                keeper = job.keepers[place]
                fill = partial(keeper.fill, view, content)
                self._request(keeper, lambda: on.Filled(view, place) if fill() else None)
            case Recall(view, source, least):
                taker = job.takers[source]
                told = partial(taker.boundaries, view, least)
                self._request(taker, lambda: on.Handed(view, taker.process, told()))
            case Tell(view=PlaceSet(number, places), source=source, content=content):
                chosen = PlaceSet(number, tuple(job.keepers[p] for p in places))
                taker = job.takers[source]
                if taker.claimer is not None:
                    self.world.send(LINK, taker, taker.follow, chosen, content)
            case _:
                assert_never(command)

    def _request(self, box: Box, serve: Callable[[], Event | None]) -> None:
        """Ask for something that is an event when it is answered."""

        def served() -> None:
            event = serve()
            if event is not None:
                self.world.send(LINK, self, self.hear, event)

        self.world.send(LINK, box, served)

    def _tell(
        self,
        process: str,
        method: Callable[Concatenate[Any, P], None],
        *args: P.args,
        **_: P.kwargs,
    ) -> None:
        taker = self.job.takers[process]
        self.world.send(LINK, taker, getattr(taker, method.__name__), *args)

    def _kill(self, process: str, gently: bool) -> None:
        """A process that cannot be reached lives on. Only an instance that is asked to end leaves
        those alone that share its process."""
        job = self.job
        if process in job.keepers:
            job.kill_keeper(job.keepers[process])
            return
        box: SimulatedInstance | Blank | None = job.takers.get(process) or job.blanks.get(process)
        if box is not None and self.world.rng.random() < 0.5:
            alone = gently and isinstance(box, SimulatedInstance)
            self.world.send(LINK, box, job.end_instance if alone else job.kill, box.process)

    # ------------------------------------------------------------ processes

    def _hired(self, process: str, node: str) -> None:
        blank = Blank(process, node or self.world.rng.choice(self.job.nodes))
        self.job.blanks[process] = self._spares[process] = self.job.started[process] = blank
        self.hear(on.Hired(process, blank.node, 0))

    def _adopted(self, process: str) -> None:
        blank = self.job.blanks.get(process)
        if blank is not None and blank.alive:
            self._spares[process] = blank
            self.hear(on.Hired(process, blank.node, 0))
        else:
            self.hear(on.Gone(process, "it has a place that nobody knows"))

    def _fetch(self, command: do.Become, until: float = 0.0) -> None:
        """Get the images of a range from keepers that have them. until: when to wait no more for
        those that are cut off; 0 if none was asked yet."""
        process, place, committed = command.process, command.place, command.committed
        begins, version = begins_of(command.versions), version_at(command.versions, committed)
        if process in self.job.takers:
            self.hear(on.AlreadyPlaced(process, command.attempt))
            return
        blank = self.job.started[process_of(process)]
        if not blank.alive:  # it may have died before it was given the place
            self.job.troubles[place] += 1
            return
        asked, now = (self.job, place, committed, command.holders, begins), self.world.now
        until = until or now + FIND
        if blank.asleep or (now < until and committed and waits(*asked)):
            self.world.after(RESTORE, self, self._fetch, command, until)
            return
        if not self.job.at_work(process) and self._trouble(command):
            self.world.tell(process, "dies while it takes a place")
            self.job.kill(process)
            return
        try:
            files = self.job.files_of(process, blank.node, place, committed, version)
            images = images_of(*asked, files) if committed else []
        except StateError as error:  # a controller slept until its saved checkpoint was dropped
            self.world.after(LINK, self, self.hear, on.Failed(process, error))
            return
        if images is None and not waits(*asked):
            placement = self.machine.placement_of(process)
            # A move that misses something is tried again, from a later checkpoint.
            if self.job.controller is self and placement is not None and not placement.operator:
                self.job.check_lost(place, committed)
            self.hear(on.Missing(process, command.attempt))
            return
        if images is None or self._trouble(command):  # nobody knows whether it is lost
            self.hear(on.Missing(process, command.attempt, again=True))
            return
        there = {h: self.job.keepers[h] for h in command.holders}
        holders = {h for h, keeper in there.items() if holds(keeper, place, committed, begins)}
        taker = SimulatedInstance(
            self.job, process, place, blank.node, committed, images, holders, files, version
        )
        if not command.held:
            taker.open()
        self.job.blanks.pop(blank.process, None)
        self.job.takers[process] = taker
        nbytes = sum(i.nbytes for chain in images for i in chain)
        became = on.Became(process, command.attempt, taker.address, nbytes)
        self.world.after(RESTORE, self, self.hear, became)

    def _deliver(self, owner: SimulatedInstance, command: do.Deliver) -> None:
        """Let an owner bring the new instances to its own position."""
        delta = owner.delivery(command.committed)
        left = {process for process, _ in command.to}
        epoch = owner.machine.position if delta is not None else command.committed
        parts = {p: partition(delta, [keys])[0] for p, keys in command.to if delta is not None}
        nbytes = sum(i.nbytes for i in parts.values())
        done = on.Delivered(owner.process, command.attempt, epoch, nbytes=nbytes)

        def taken(process: str) -> None:
            taker = self.job.takers[process]
            if delta is not None:
                taker.advance(parts[process])
            taker.open()
            left.discard(process)
            if not left:
                self.world.after(LINK, self, self.hear, done)

        for process, _ in command.to:
            self.world.after(RESTORE, self.job.takers[process], taken, process)

    def _trouble(self, asked: do.Become) -> bool:
        """Whether the taking of a place goes wrong: not so often that the job gives up."""
        strikes = self.world.rng.random() < self.job.fragile
        return strikes and self.job.troubled_in(asked, self.machine, TROUBLES_MAX)
