"""Simulated keepers, and how instances ship their checkpoints to them, part by part."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from raystream.controller.protocol.journal import JournalEntry, KeeperRecord, Shelf
from raystream.controller.protocol.messages import events as on
from raystream.dataflow.snapshot import Captured
from raystream.errors import StateError
from raystream.schema.types import KeyRange
from raystream.simulation.processes.disks import SimulatedDisk
from raystream.simulation.processes.register import RegisterPlace
from raystream.simulation.world import World, Wrong
from raystream.state.images.chain import NOTHING, CheckpointRequest, Size
from raystream.state.images.image import Image, ImageHeader
from raystream.state.images.image_store import Stored
from raystream.state.keeping.files import placed, read_part
from raystream.state.keeping.holdings import WriteBatch
from raystream.state.keeping.kept_images import KeptImages

if TYPE_CHECKING:
    from raystream.simulation.job import SimulatedJob
    from raystream.simulation.processes.instances import SimulatedInstance

LINK = 0.03
RETRY = 0.15
STORE_LIMIT = 0.3
"""How long an instance waits for its keepers."""
WRITING = 0.01
"""How long it takes to write a file."""
FILE_BYTES = 1000
"""About how large a file is."""
SILENCE = 3.0
"""A keeper that has not answered for this long counts as dead; it may come back later."""

Waits = tuple[World, "Shipping", ImageHeader, KeyRange, memoryview, int]
"""A part that waits for room: the arguments of `SimulatedKeeper.store`."""


class SimulatedKeeper(RegisterPlace):
    """Holds images, in memory and in files, and the journal, and may be a place of the boundary
    register.

    ever: by (vertex, checkpoint) every range that it has held. ends: by vertex every (range,
    checkpoint) where the range had ended. spoilt: every (vertex, range) of which it had a file that
    a fault has damaged.
    """

    def __init__(self, process: str, node: str, budget: int, disk: SimulatedDisk) -> None:
        super().__init__(f"keeper {process} of {node}")
        self.process = process
        self.node = node
        self.named = True
        """Whether a new controller finds it: it was not ended, as far as the cluster knows."""
        self.kept: KeptImages[memoryview] = KeptImages(budget, FILE_BYTES)
        self.folder = disk.of(process)
        self.journal: Shelf[JournalEntry] = Shelf()
        self.ever: defaultdict[tuple[int, int], set[KeyRange]] = defaultdict(set)
        self.ends: defaultdict[int, set[tuple[KeyRange, int]]] = defaultdict(set)
        self.spoilt: set[tuple[int, KeyRange]] = set()
        self._waiting: deque[Waits] = deque()

    @property
    def answers(self) -> bool:
        """Whether it is alive and not cut off."""
        return self.alive and not self.asleep

    def pass_on(
        self,
        others: Sequence[SimulatedKeeper],
        world: World,
        to: Shipping,
        header: ImageHeader,
        part: KeyRange,
        data: memoryview,
        ship: int,
    ) -> None:
        """Pass a part on to other keepers, one after the other, and keep it."""
        what = (world, to, header, part, data, ship)
        if others:
            world.send(LINK, others[0], others[0].pass_on, others[1:], *what)
        self.store(*what)

    def store(self, world: World, to: Shipping, header: ImageHeader, part: KeyRange,
              data: memoryview, ship: int) -> None:  # fmt: skip
        """Keep a part of an image. With the last part it answers whether the image is held. Without
        room for it, it waits for files to be written."""
        if not self.kept.holdings.has_room:
            waits = (world, to, header, part, data, ship)
            self._waiting.append(waits)
            world.after(STORE_LIMIT, self, self._refuse, waits)
            return
        vertex, keys, checkpoint = to.vertex, header.keys, header.checkpoint
        sender, ended = to.instance.name, header.input_position.ended
        base, oldest = header.base or None, header.oldest
        arrived = Stored(
            checkpoint,
            base,
            data,
            len(data),
            ended=ended,
            oldest=oldest,
            sender=sender,
            code=header.code,
        )
        whole = self.kept.take(keys, part, arrived)
        if whole is None:
            held = part.hi < keys.hi or self.kept.images.holds(vertex, keys, checkpoint)
        else:
            held = self.kept.images.store(vertex, keys, whole)
        if whole is not None and held:
            self._check_whole(keys, checkpoint, whole.data)
            self.ever[vertex, checkpoint].add(keys)
            if header.input_position.ended:
                self.ends[vertex].add((keys, checkpoint))
        self._check_memory(len(data))
        world.send(LINK, to.instance, to.answered, ship, self, held)
        self._write_on(world)

    def _refuse(self, waits: Waits) -> None:
        """Refuse a part for which there was no room in time."""
        if waits in self._waiting:
            self._waiting.remove(waits)
            world, to, header, _, _, ship = waits
            world.tell(self.name, "has no room for", to.instance.name, header.checkpoint)
            world.send(LINK, to.instance, to.answered, ship, self, False)

    def _admit(self) -> None:
        """Take what has waited for room."""
        while self._waiting and self.kept.holdings.has_room:
            self.store(*self._waiting.popleft())

    def _check_whole(self, keys: KeyRange, checkpoint: int, parts: tuple[int, ...]) -> None:
        """Check that every image that is held has all its parts."""
        if sum(len(self.kept.part(n).keys) for n in parts if n in self.kept) != len(keys):
            raise Wrong(f"{self.name} holds {keys} at {checkpoint} without a part of it")

    def _check_memory(self, size: int) -> None:
        """Check that memory is bounded: by the budget and the part that came last."""
        holdings = self.kept.holdings
        if holdings.memory >= holdings.budget + size:
            raise Wrong(f"{self.name} has {holdings.memory} bytes of {holdings.budget} in memory")

    # ------------------------------------------------------------ files

    def _write_on(self, world: World) -> None:
        """Write the next file, if there is something to write."""
        batch = self.kept.holdings.next_batch()
        if batch is not None:
            world.after(WRITING, self, self._write, world, batch)

    def _write(self, world: World, batch: WriteBatch) -> None:
        there = {number: self.read(number) for number in batch.parts}
        parts = {number: part for number, part in there.items() if part is not None}
        try:
            self.folder.write(batch.file, [*parts.values()])
        except OSError:
            self.kept.holdings.failed(batch)
            world.after(RETRY, self, self._write_on, world)
            return
        done = WriteBatch(batch.file, tuple(parts))
        self._delete(self.kept.written(done, placed(batch.file, [*parts.values()])))
        world.tell(self.name, "wrote file", batch.file, "with", len(parts), "parts")
        self._admit()
        self._write_on(world)

    def read(self, number: int) -> memoryview | None:
        """A part that it holds; None if it does not any more, or if it is damaged."""
        if number not in self.kept:
            return None
        part, place = self.kept.part(number), self.kept.place(number)
        if part.data is not None:
            return part.data
        assert place is not None
        try:
            return read_part(self.folder, place)
        except StateError:
            self._delete(self.kept.damaged(number)[1])
            return None

    def _delete(self, files: Iterable[int]) -> None:
        for file in files:
            self.folder.delete(file)

    def spoil(self, file: int) -> None:
        """Note that a file is damaged: what it has may be lost, if nobody else has it."""
        for (vertex, keys), chain in self.kept.images.chains.items():
            places = [self.kept.place(number) for s in chain for number in s.data]
            if any(place is not None and place.file == file for place in places):
                self.spoilt.add((vertex, keys))

    # ------------------------------------------------------------ the rest

    def write(self, entry: JournalEntry) -> bool:
        """Keep an entry of the journal. False: its writer is not the controller any more."""
        return self.journal.write(entry.order, entry)

    def leave_journal(self, order: tuple[int, int]) -> bool:
        """Keep no journal any more: other keepers do. See `Shelf.leave`."""
        return self.journal.leave(order)

    def claim_journal(self, incarnation: int) -> tuple[bool, tuple[int, int], JournalEntry | None]:
        """Let a new controller take over the journal; see `Shelf.claim`."""
        return self.journal.claim(incarnation)

    def trim(self, committed: int, assigned: list[tuple[int, KeyRange]]) -> int:
        """Drop what no restore of these ranges from `committed` on needs. Returns bytes left."""
        newer = self._newer(committed)
        self._delete(self.kept.trim(committed, set(assigned)))
        self.boundaries.trim(committed)
        if gone := newer - self._newer(committed):
            raise Wrong(f"{self.name} was told that {committed} is committed, and dropped {gone}")
        if self.folder.files - {*self.kept.holdings.files}:
            raise Wrong(f"{self.name} has left files that it does not need")
        self._admit()
        return self.kept.images.nbytes

    def _newer(self, committed: int) -> set[tuple[int, KeyRange, int]]:
        return {
            (*p, s.checkpoint)
            for p, chain in self.kept.images.chains.items()
            for s in chain
            if s.checkpoint > committed and p not in self.spoilt
        }


class KeeperWatch:
    """Finds keepers that have been silent for too long, as a controller does."""

    def __init__(self, job: SimulatedJob) -> None:
        self._job = job
        self._since: dict[str, float] = {}

    def silent(self, keepers: Sequence[KeeperRecord]) -> Iterator[on.Gone]:
        """Those of these keepers that now count as dead."""
        now = self._job.world.now
        for process in (record.process for record in keepers):
            keeper = self._job.keepers.get(process)
            if keeper is None or not keeper.asleep:
                self._since.pop(process, None)
            elif now - self._since.setdefault(process, now) > SILENCE:
                yield on.Gone(process, f"did not answer for {SILENCE:g} s")


class Shipping:
    """The checkpoints of an instance, on their way one after the other, as
    `actors.worker.shipping` has it. An image is made only when its turn comes, each part when the
    one before is answered.

    Args:
        most: bytes of a part, about.
    """

    def __init__(self, instance: SimulatedInstance, most: int) -> None:
        self.instance = instance
        self.vertex = instance.place.vertex
        self.storing = instance.tenure.storing
        self._most = most
        self._waiting: deque[Captured] = deque()
        self._parts: Iterator[Image] | None = None
        self._part = KeyRange(0, 0)
        self._size = NOTHING
        """The size of the checkpoint that is being shipped."""
        self._ship = 0
        self._choice = self.storing.choice
        """The keepers that the last part was sent to."""
        self._unanswered: set[SimulatedKeeper] = set()

    def put(self, captured: Captured, wanted: CheckpointRequest) -> None:
        """Ship one more checkpoint. wanted: what it holds."""
        self.storing.chain.made(wanted, captured.header.checkpoint)
        self._waiting.append(captured)
        self._next()

    def _next(self) -> None:
        if self._parts is None and self._waiting:
            self._parts, self._size = self._waiting[0].parts(self._most), NOTHING
            self._next_part(self._parts)

    def _next_part(self, parts: Iterator[Image]) -> None:
        """Send the next part along the present keepers."""
        part, header = next(parts), self._waiting[0].header
        self._part, data = part.header.keys, part.encode()
        self._size = self._size.plus(Size(len(data), len(part)))
        self._ship += 1
        world, self._choice = self.instance.world, self.storing.choice
        keepers = [self.instance.job.keepers[k] for k in self._choice.keepers]
        self._unanswered = set(keepers)
        if keepers:
            first, *others = keepers
            what = (header, self._part, data, self._ship)
            world.send(LINK, first, first.pass_on, others, world, self, *what)
            world.at(world.now + STORE_LIMIT, self.instance, self._too_late, self._ship)
        else:
            self._shipped(False)

    def answered(self, ship: int, keeper: SimulatedKeeper, held: bool) -> None:
        """Take the answer of a keeper: it has stored a part, or refuses the image."""
        if ship != self._ship or keeper not in self._unanswered:
            return
        self._unanswered.discard(keeper)
        if not held:
            self._shipped(False)
        elif not self._unanswered and self._parts is not None:
            if self._part.hi == self._waiting[0].header.keys.hi:
                self._shipped(True)
            else:
                self._next_part(self._parts)

    def _too_late(self, ship: int) -> None:
        if ship == self._ship and self._unanswered:
            self._shipped(False)

    def _shipped(self, held: bool) -> None:
        header = self._waiting.popleft().header
        self._unanswered, self._parts = set(), None
        world = self.instance.world
        if self.storing.answered(header, self._size, self._choice, held=held):
            world.after(RETRY, self.instance, self.instance.put_again)
        world.tell(self.instance.name, "stored" if held else "could not store", header.checkpoint)
        self._next()
