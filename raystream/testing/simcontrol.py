"""Simulated controllers.

What is to be done is decided by `raystream.controller.machine`; this does it, as the actor does:
late, sometimes twice or not at all, while processes die, the controller's too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raystream.controller import commands as do
from raystream.controller import registering
from raystream.controller.commands import Command, Event
from raystream.controller.journal import Entry
from raystream.controller.machine import Machine
from raystream.controller.recovery import Place
from raystream.controller.registering import Fill, Hand, Recall, Tell
from raystream.dataflow.register import Boundaries, View
from raystream.errors import StateError
from raystream.schema.types import KeyRange
from raystream.state.image import Image, decode
from raystream.state.keys import cover
from raystream.state.partition import by_parts, partition, recut
from raystream.testing.simchecks import check_given, check_hired
from raystream.testing.simprocess import Blank, Instances
from raystream.testing.simshipping import LINK, Keeper
from raystream.testing.simworld import Box

if TYPE_CHECKING:
    from raystream.testing.simjob import Job

POLL = 0.15
SILENCE = 1.5
"""An instance that has not answered for so long counts as dead; it may wake later."""
NOTICE = 0.05
HIRING = 0.1
RESTORE = 0.1
SAVING = 0.4
"""How long it takes to store a part of a cut in the durable tier."""
TROUBLES_MAX = 2
"""So often the taking of a place goes wrong beside what faults do."""
RESTART = 0.5
"""How long it takes until another controller is there."""


class Controller(Box):
    """One controller of a job: does what its machine commands, in order."""

    def __init__(self, job: Job, number: int, entry: Entry | None) -> None:
        super().__init__(f"controller {number}")
        self.job, self.world, self.number = job, job.world, number
        self.machine = Machine(job.plan, job.options, entry, number)
        self._todo: deque[Command] = deque()
        self._writing: set[str] | None = None  # who has not answered yet
        self._written = False  # whether somebody has
        self._entry: Entry | None = None  # what is written
        self._to: tuple[str, ...] = ()  # who is to have it
        self._at: tuple[str, ...] = ()  # who has it
        self._left: list[Keeper] = []  # who is to forget it then
        self._heard: dict[str, float] = {}
        self._hands: dict[str, Blank] = {}
        alive = [p for p, box in {**job.blanks, **job.takers}.items() if box.alive]
        alive += [p for p, k in job.keepers.items() if k.alive]
        self.world.tell(self.name, "begins", entry.order if entry else "")
        self._add(self.machine.start(job.nodes, alive, self.world.now, job.for_operators))
        for post in self.machine.journal.posts:  # that died while there was no controller
            keeper = job.keepers.get(post.process)
            if keeper is not None and not keeper.alive:
                self.world.after(NOTICE, self, self.hear, do.Gone(post.process, "died"))
        self.world.after(POLL, self, self._poll)

    def hear(self, event: Event) -> None:
        """Something happened."""
        if isinstance(event, do.Gone):
            self.world.tell(self.name, "hears that", event.process, event.why)
        self._add(self.machine.handle(event, self.world.now))

    def _poll(self) -> None:
        """Ask everybody."""
        if self.job.over:
            return
        for m in self.machine.members:
            process = self.job.takers[m.seat.process]
            self.world.send(LINK, process, self._ask, process)
            heard = self._heard.setdefault(process.process, self.world.now)
            if not m.dead and self.world.now - heard > SILENCE:
                self.hear(do.Gone(process.process, f"did not answer for {SILENCE:g} s"))
        self.hear(do.Tick(self.job.nodes, self.job.for_operators))
        self.world.after(POLL, self, self._poll)

    def _ask(self, process: Instances) -> None:
        self.world.send(LINK, self, self._answer, process.process, process.progress())

    def _answer(self, process: str, progress: Any) -> None:
        self._heard[process] = self.world.now
        self.hear(do.Heard(process, progress))

    # ------------------------------------------------------------ doing

    def _add(self, commands: list[Command]) -> None:
        if commands:  # most often nothing follows
            self._check_places(commands)
            self._todo.extend(commands)
            self._go_on()

    def _check_places(self, commands: list[Command]) -> None:
        """Processes are started, and given places, where they should be."""
        left = self.machine.journal.drained
        nodes = {n: n in self.job.for_operators for n in self.job.nodes if n not in left}
        for hire in (c for c in commands if isinstance(c, do.Hire)):
            check_hired(hire, nodes)
        for become in (c for c in commands if isinstance(c, do.Become)):
            given = self._hands.pop(become.process, None)  # not of who is given it again
            engagement = self.machine.engaged(become.process)
            if given is not None and engagement is not None and not engagement.node:
                operator = self.job.plan.vertices[become.place.vertex].kind == "operator"
                check_given(become, operator, given.node, nodes)

    def _go_on(self) -> None:
        while self._todo and self._writing is None and self.alive:
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
                self._write(command)
            case do.Hire(process, _, node):
                world.after(HIRING, self, self._hired, process, node)
            case do.Adopt(process):
                world.after(LINK, self, self._adopted, process)
            case do.Keep(process, node):
                job.keepers[process] = Keeper(process, node)
            case do.Become():
                world.after(RESTORE, self, self._fetch, command)
            case do.Deliver(process):
                owner = job.takers[process]
                world.after(LINK, owner, self._deliver, owner, command)
            case do.Begin(seat, assignment, started):
                taker = job.takers[seat.process]
                if taker.alive:
                    world.after(LINK, taker, taker.begin, seat, assignment, started)
                else:
                    world.after(NOTICE, self, self.hear, do.Gone(seat.process, "is dead"))
            case do.Assign(process, assignment):
                self._tell(process, "assign", assignment)
            case do.CommitTo(process, epoch, shown):
                self._tell(process, "commit", epoch, shown)
            case do.KeptBy(process, keepers, kept):
                self._tell(process, "kept_by", keepers, kept)
            case do.Forget(process, epoch):
                self._tell(process, "forget", epoch)
            case do.Trim(process, floor, places):
                keeper = job.keepers[process]
                world.send(LINK, keeper, keeper.trim, floor, places)
            case do.PutChains(process):
                keeper = job.keepers[process]
                self._tier(keeper, self._grab, keeper, command)
            case do.SaveCut(process):
                keeper = job.keepers[process]
                self._tier(keeper, self._save, keeper, command)
            case Hand() | Recall() | Fill() | Tell():
                self._register(command)
            case do.Kill(process):
                self._kill(process)
            case do.Answer(_, refusal):
                job.answers["refused" if refusal else "taken up"] += 1
            case do.End(error):
                job.end(error)

    # ------------------------------------------------------------ the durable tier

    def _tier(self, keeper: Keeper, action: Callable[..., None], *args: Any) -> None:
        """Have a keeper do something; of one that is dead it is heard again."""
        if keeper.alive:
            self.world.after(LINK, keeper, action, *args)
        else:
            self.world.after(NOTICE, self, self.hear, do.Gone(keeper.process, "is dead"))

    def _grab(self, keeper: Keeper, command: do.PutChains) -> None:
        """What it holds now it stores later, whatever it is told to drop meanwhile."""
        held = {
            p: dict(keeper.images.images(p.vertex, command.cut, p.keys)).get(p.keys)
            for p in command.places
        }
        self.world.after(SAVING, keeper, self._put, keeper, command, held)

    def _put(self, keeper: Keeper, command: do.PutChains, held: Any) -> None:
        tier, durable = self.job.tier, self.job.plan.durable
        assert tier is not None and durable is not None
        self.world.after(LINK, self, self.hear, tier.put(command, durable.number, held))

    def _save(self, keeper: Keeper, command: do.SaveCut) -> None:
        assert self.job.tier is not None
        event = self.job.tier.save(command, self.job.entry.committed)
        self.world.tell(keeper.name, "saves", command.saved, event.why)
        self.world.after(LINK, self, self.hear, event)

    # ------------------------------------------------------------ the boundary register

    def _register(self, command: registering.Command) -> None:
        job = self.job
        match command:
            case Hand(view, place):
                keeper = job.keepers[place]
                self._request(keeper, lambda: do.Handed(view, place, keeper.boundaries.hand(view)))
            case Fill(view, place, content):
                keeper = job.keepers[place]
                self._request(keeper, lambda: self._fill(keeper, view, content))
            case Recall(view, source, least):
                taker = job.takers[source]
                self._request(taker, lambda: self._recall(taker, view, least))
            case Tell(view=View(number, places), source=source, content=content):
                chosen = View(number, tuple(job.keepers[p] for p in places))
                taker = job.takers[source]
                if taker.claimer is not None:
                    self.world.send(LINK, taker, taker.claimer.claims.follow, chosen, content)

    def _request(self, box: Box, serve: Callable[[], Event | None]) -> None:
        """Ask for something that is an event when it is answered."""

        def served() -> None:
            event = serve()
            if event is not None:
                self.world.send(LINK, self, self.hear, event)

        self.world.send(LINK, box, served)

    def _fill(self, keeper: Keeper, view: int, content: Boundaries) -> Event | None:
        taken = keeper.boundaries.fill(view, content)
        return do.Filled(view, keeper.process) if taken else None

    def _recall(self, taker: Instances, view: int, least: int) -> Event | None:
        assert taker.claimer is not None
        return do.Handed(view, taker.process, taker.claimer.claims.boundaries(view, least))

    def _tell(self, process: str, order: str, *args: Any) -> None:
        taker = self.job.takers[process]
        self.world.send(LINK, taker, getattr(taker, order), *args)

    def _kill(self, process: str) -> None:
        """Who cannot be reached lives on."""
        job = self.job
        box: Instances | Blank | None = job.takers.get(process) or job.blanks.get(process)
        if box is not None and self.world.rng.random() < 0.5:
            self.world.send(LINK, box, self._die, box)

    def _die(self, box: Instances | Blank) -> None:
        if isinstance(box, Instances):
            box.die()
        box.alive = False
        self.job.died(box.process)

    # ------------------------------------------------------------ the journal

    def _write(self, command: do.Write) -> None:
        entry, at = command.entry, command.at
        if at != self._at and not self.newest:
            self._depose()
            return
        self._left = [self.job.keepers[p] for p in command.left]
        if entry.committed > self.job.entry.committed:
            self.world.tell(self.name, "commits", entry.committed)
        keepers = [self.job.keepers[p] for p in at]
        self._writing, self._written = {k.process for k in keepers}, False
        self._entry, self._to = entry, at
        for keeper in keepers:
            if keeper.alive:
                self.world.after(LINK, keeper, self._shelve, keeper, entry)
            self.world.after(3 * LINK, self, self._look, keeper, entry)
        if not keepers:
            self.world.after(POLL, self, self._wrote, "", entry)

    @property
    def newest(self) -> bool:
        """Whether there is no newer controller: Ray knows. Keepers that are all new do not."""
        return self.job.controllers == self.number

    def _look(self, keeper: Keeper, entry: Entry) -> None:
        """Whoever died will not answer."""
        if self._writing and keeper.process in self._writing:
            if keeper.alive:
                self.world.after(3 * LINK, self, self._look, keeper, entry)
            else:
                self._wrote(keeper.process, entry)

    def _shelve(self, keeper: Keeper, entry: Entry) -> None:
        kept = keeper.journal.write(entry.order, entry)
        decides = self.job.controller is self  # else only a keeper of its own may still take it
        if kept and decides and entry.order > self.job.entry.order:  # from now on it is decided
            self.job.check_entry(entry)
        self.world.after(LINK, self, self._shelved, keeper.process, entry, kept)

    def _shelved(self, process: str, entry: Entry, kept: bool) -> None:
        if not kept:
            self._depose()
        elif entry is self._entry:  # else it answers late: nobody waits for that any more
            self._written = True
            self._wrote(process, entry)

    def _depose(self) -> None:
        self.world.tell(self.name, "is not the controller any more")
        self.alive = False

    def _wrote(self, process: str, entry: Entry) -> None:
        """One place has it, or is dead. When none has it, it is tried again, or a newer one is."""
        if self._writing is None:
            return
        self._writing.discard(process)
        if self._writing:
            return
        self._writing = None
        left = [k for k in self._left if k.alive]
        if self._written:
            self._at = self._to
            if all(keeper.journal.leave(entry.order) for keeper in left):
                self.job.acted_on = max(self.job.acted_on, entry.order)
                self._go_on()
            else:
                self._depose()
        else:
            at = entry.places(self.job.options.copies)
            self._todo.appendleft(do.Write(entry, at, tuple(k.process for k in left)))
            if any(isinstance(c, do.Write) for c in [*self._todo][1:]):
                self._go_on()

    # ------------------------------------------------------------ processes

    def _hired(self, process: str, node: str) -> None:
        blank = Blank(process, node or self.world.rng.choice(self.job.nodes))
        self.job.blanks[process] = self._hands[process] = blank
        self.hear(do.Hired(process, blank.node, 0))

    def _adopted(self, process: str) -> None:
        blank = self.job.blanks.get(process)
        if blank is not None and blank.alive:
            self._hands[process] = blank
            self.hear(do.Hired(process, blank.node, 0))
        else:
            self.hear(do.Gone(process, "it has a place that nobody knows"))

    def _fetch(self, command: do.Become) -> None:
        """Get the images of a range from whoever has them."""
        process, place, floor = command.process, command.place, command.floor
        blank = self.job.blanks.get(process)
        if blank is None:
            self.hear(do.Taken(process))
            return
        if not blank.alive:  # it may have died before it was given the place
            self.job.troubles[place] += 1
            return
        if self._trouble(place):
            self.world.tell(process, "dies while it takes a place")
            blank.alive = False
            self.job.died(process)
            return
        try:
            images = [] if not floor else self._images(place, floor, command.holders)
        except StateError as error:  # of a controller that slept until its saved cut was dropped
            self.world.after(LINK, self, self.hear, do.Failed(process, error))
            return
        if images is None:
            engagement = self.machine.engaged(process)
            # A move that misses something is tried again, from a later floor.
            recovers = engagement is not None and not engagement.operator
            if self.job.controller is self and recovers:
                self.job.check_lost(place, floor)
            self.hear(do.Missing(process))
            return
        if self._trouble(place):
            self.hear(do.Missing(process, again=True))
            return
        taker = Instances(self.job, process, place, blank.node, floor, images)
        taker.whole = {h for h in command.holders if self._holds(self.job.keepers[h], place, floor)}
        if not command.held:
            taker.open()
        del self.job.blanks[process]
        self.job.takers[process] = taker
        nbytes = sum(image.nbytes for chain in images for image in chain)
        self.world.after(RESTORE, self, self.hear, do.Became(process, taker.address, nbytes))

    def _deliver(self, owner: Instances, command: do.Deliver) -> None:
        """An owner brings others to where it is."""
        delta = owner.delivery(command.floor)
        takers = tuple(process for process, _ in command.to)
        left = {*takers}
        epoch = owner.machine.position if delta is not None else command.floor
        parts = {p: partition(delta, [keys])[0] for p, keys in command.to if delta is not None}
        nbytes = sum(i.nbytes for i in parts.values())
        done = do.Delivered(owner.process, takers, epoch, nbytes=nbytes)

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

    def _trouble(self, place: Place) -> bool:
        """Whether the taking of a place goes wrong; not so often that the job gives up."""
        strikes = self.world.rng.random() < self.job.fragile
        return strikes and self.job.troubled(place, TROUBLES_MAX)

    def _holds(self, keeper: Keeper, place: Place, floor: int) -> bool:
        """Whether a keeper has the images of exactly this range."""
        found = keeper.images.images(place.vertex, floor, place.keys) if keeper.alive else []
        return place.keys in dict(found)

    def _images(
        self, place: Place, floor: int, holders: tuple[str, ...]
    ) -> list[list[Image]] | None:
        held: dict[KeyRange, list[list[Image]]] = {}
        for keeper in (self.job.keepers[h] for h in holders):
            there = keeper.images.images(place.vertex, floor, place.keys) if keeper.alive else []
            for keys, chain in there:
                parts = [[decode(data) for data in s.data] for s in chain]
                held.setdefault(keys, by_parts(parts))
        found = cover(held, place.keys)
        saved, tier = self.job.plan.resumed, self.job.tier
        if found is None and saved is not None and floor == saved.cut:
            assert tier is not None
            return tier.saves.images(saved, place.operator, place.keys)
        if found is None:
            return None
        return [chain for keys, part in found for chain in recut(held[keys], part)]
