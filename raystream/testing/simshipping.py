"""Simulated keepers, and how instances ship their checkpoints to them, part by part."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from raystream.controller.journal import Entry, Shelf
from raystream.controller.recovery import Place
from raystream.dataflow.snapshot import Captured
from raystream.schema.types import KeyRange
from raystream.state.chain import NOTHING, Chain, Size, Wanted
from raystream.state.image import Image, ImageHeader, header_of
from raystream.state.images import Arrivals, ImageStore, Stored
from raystream.testing.simregister import RegisterPlace
from raystream.testing.simworld import World, Wrong

if TYPE_CHECKING:
    from raystream.testing.simprocess import Instances

LINK = 0.03
RETRY = 0.15
STORE_LIMIT = 0.3
"""How long an instance waits for its keepers."""


class Keeper(RegisterPlace):
    """Holds images and the journal, and may be a place of the boundary register.

    ever: by (vertex, cut) every range that it has held; ends: by vertex every (range, cut) of which
    the cut was the end.
    """

    def __init__(self, process: str, node: str) -> None:
        super().__init__(f"keeper {process} of {node}")
        self.process = process
        self.node = node
        self.images: ImageStore[tuple[memoryview, ...]] = ImageStore()
        self.journal: Shelf[Entry] = Shelf()
        self.ever: defaultdict[tuple[int, int], set[KeyRange]] = defaultdict(set)
        self.ends: defaultdict[int, set[tuple[KeyRange, int]]] = defaultdict(set)
        self._arrivals: Arrivals[memoryview] = Arrivals()

    def store(self, world: World, to: Shipping, header: ImageHeader, part: KeyRange,
              data: memoryview, ship: int) -> None:  # fmt: skip
        """Keep a part of an image; with the last one say whether that is held."""
        vertex, keys, cut = to.vertex, header.keys, header.cut
        sender, ended = to.instance.name, header.standing.ended
        base, oldest = header.base or None, header.oldest
        arrived = Stored(cut, base, data, len(data), ended, oldest, sender)
        whole = self._arrivals.take(sender, keys, part, arrived)
        if whole is None:
            held = part.hi < keys.hi or self.images.holds(vertex, keys, cut)
        else:
            held = self.images.store(vertex, keys, whole)
        if whole is not None and held:
            self._check_whole(keys, cut, whole.data)
            self.ever[vertex, cut].add(keys)
            if header.standing.ended:
                self.ends[vertex].add((keys, cut))
        world.send(LINK, to.instance, to.answered, ship, self, held)

    def _check_whole(self, keys: KeyRange, cut: int, parts: tuple[memoryview, ...]) -> None:
        """What is held has all its parts."""
        if sum(len(header_of(data).keys) for data in parts) != len(keys):
            raise Wrong(f"{self.name} holds {keys} at {cut} without a part of it")

    def trim(self, floor: int, places: tuple[Place, ...]) -> None:
        """Drop what no restore from `floor` on needs."""
        newer = self._newer(floor)
        self._arrivals.trim(floor)
        self.images.trim(floor, {(p.vertex, p.keys) for p in places})
        self.boundaries.trim(floor)
        if gone := newer - self._newer(floor):
            raise Wrong(f"{self.name} was told of the floor {floor}, and dropped {gone}")

    def _newer(self, floor: int) -> set[tuple[int, KeyRange, int]]:
        return {
            (*p, s.cut) for p, chain in self.images.chains.items() for s in chain if s.cut > floor
        }


class Shipping:
    """The checkpoints of an instance, on their way one after the other, as `actors.shipping` has
    it. An image is made only when its turn comes, each part when the one before is answered.

    most: bytes of a part. image: see `Chain`.
    """

    def __init__(self, instance: Instances, floor: int, most: int, image: int) -> None:
        self.instance = instance
        self.vertex = instance.place.vertex
        self.chain = Chain(floor, image=image)
        self._most = most
        self._waiting: deque[Captured] = deque()
        self._parts: Iterator[Image] | None = None
        self._part = KeyRange(0, 0)
        self._size = NOTHING
        """Of the checkpoint that is shipped just now."""
        self._ship = 0
        self._kept = 0
        """The choice of the keepers that the last part was sent to."""
        self._unanswered: set[Keeper] = set()

    def put(self, captured: Captured, wanted: Wanted) -> None:
        """Ship this one too, which is as it was wanted."""
        self.chain.made(wanted, captured.header.cut)
        self._waiting.append(captured)
        self._next()

    def _next(self) -> None:
        if self._parts is None and self._waiting:
            self._parts, self._size = self._waiting[0].parts(self._most), NOTHING
            self._next_part(self._parts)

    def _next_part(self, parts: Iterator[Image]) -> None:
        """To those who are its keepers by now."""
        part, header = next(parts), self._waiting[0].header
        self._part, data = part.header.keys, part.encode()
        self._size = self._size.plus(Size(len(data), len(part)))
        self._ship += 1
        world, keepers = self.instance.world, self.instance.keepers
        self._kept = self.instance.kept
        self._unanswered = set(keepers)
        for keeper in keepers:
            what = (header, self._part, data, self._ship)
            world.send(LINK, keeper, keeper.store, world, self, *what)
        if keepers:
            world.at(world.now + STORE_LIMIT, self.instance, self._too_late, self._ship)
        else:
            self._shipped(False)

    def answered(self, ship: int, keeper: Keeper, held: bool) -> None:
        """A keeper has stored a part; or the image is refused."""
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
        if header.standing.ended and held:
            self.instance.end_kept = self._kept
        self.chain.answered(header.cut, self._size, held=held)
        world = self.instance.world
        if header.standing.ended and not held:
            world.after(RETRY, self.instance, self.instance.put_again)
        world.tell(self.instance.name, "stored" if held else "could not store", header.cut)
        self._next()
