"""The keeper of a node: holds other instances' checkpoints in the Ray object store.

Checkpoints come by value and the keeper puts them itself, so that it owns the objects: they survive
the death of the instance's process and node (an object dies with its owner). Some keepers hold the
journal of the controller as well, and are places of the boundary register.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

import numpy as np
import ray

from raystream.actors.late_pandas import put_off_pandas
from raystream.controller.journal import Entry, Shelf
from raystream.dataflow.plan import Plan
from raystream.dataflow.register import Boundaries, Boundary, Held, Register
from raystream.errors import OvertakenError, RaystreamError, StateError
from raystream.io.saves import Encoded, Saves
from raystream.io.store import open_store
from raystream.schema.types import KeyRange
from raystream.state.images import Arrivals, ImageStore, Stored
from raystream.state.partition import recut_encoded
from raystream.state.saved import Saved, SavedChain

LOOK_SECONDS = 0.5

log = logging.getLogger("raystream.keeper")

Parts = tuple[Any, ...]
"""References of the encoded parts of an image, which tile its range."""
SavedPlace = tuple[int, KeyRange, int, str]
"""Of an image: vertex, range, cut and sender."""


class Keeper:
    """Holds images by value; called by instances and the controller.

    Args:
        plan: of the job, for a controller that goes on from the journal.
    """

    def __init__(self, plan: Plan) -> None:
        put_off_pandas()
        self._plan = plan
        self._images: ImageStore[Parts] = ImageStore()
        self._arrivals: Arrivals[Any] = Arrivals()
        self._imaging = threading.Lock()
        self._saves: Saves | None = None
        self._checksums: dict[SavedPlace, int] = {}
        self._register = Register()
        self._registering = threading.Lock()
        self._journal: Shelf[Entry] = Shelf()
        self._watchers = 0

    # ------------------------------------------------------------ images

    def store(
        self,
        sender: str,
        vertex: int,
        keys: KeyRange,
        base: int,
        cut: int,
        oldest: int,
        ended: bool,
        part: KeyRange,
        data: Any,
    ) -> bool:
        """Keep a part (uint8 array) of an image of the range `keys`; False if it was the last one
        and the image is not held: others have got parts of it, or it is a delta on something that
        is not held. It may have been whole before, with parts that were sent earlier."""
        arrived = Stored(cut, base or None, ray.put(data), len(data), ended, oldest, sender)
        with self._imaging:
            whole = self._arrivals.take(sender, keys, part, arrived)
            if whole is None:
                return part.hi < keys.hi or self._images.holds(vertex, keys, cut)
            return self._images.store(vertex, keys, whole)

    @ray.method(concurrency_group="restore")
    def images(self, vertex: int, cut: int, wanted: KeyRange) -> list[tuple[KeyRange, list[Parts]]]:
        """Per range that has something of the wanted one, the references of the parts of the images
        that make up its state at a cut."""
        found = self._found(vertex, cut, wanted)
        return [(keys, [s.data for s in chain]) for keys, chain in found]

    @ray.method(concurrency_group="restore")
    def part(self, vertex: int, cut: int, held: KeyRange, part: KeyRange) -> list[Parts]:
        """The same for a part of a range that is held: references of new images."""
        chain = dict(self._found(vertex, cut, part))[held]
        images = [recut_encoded(ray.get(list(s.data)), part) for s in chain]
        return [(ray.put(np.frombuffer(data, np.uint8)),) for data in images]

    def trim(self, floor: int, assigned: list[tuple[int, KeyRange]]) -> int:
        """Drop what no restore of these ranges from `floor` on needs; the bytes that are left."""
        with self._registering:
            self._register.trim(floor)
        with self._imaging:
            self._arrivals.trim(floor)
            self._images.trim(floor, set(assigned))
            return self._images.nbytes

    def _found(
        self, vertex: int, cut: int, wanted: KeyRange
    ) -> list[tuple[KeyRange, list[Stored[Parts]]]]:
        with self._imaging:
            return self._images.images(vertex, cut, wanted)

    # ------------------------------------------------------------ durable tier

    @ray.method(concurrency_group="save")
    def put_chains(
        self, cut: int, places: list[tuple[int, KeyRange]]
    ) -> list[tuple[int, SavedChain]] | str:
        """Store the images of these ranges at a cut in the durable tier; or why it cannot be."""
        found = {(v, keys): dict(self._found(v, cut, keys)).get(keys) for v, keys in places}
        try:
            return [(v, self._put(v, keys, chain)) for (v, keys), chain in found.items()]
        except Exception as error:  # whatever it is, this keeper has more to do
            return told(error)

    def _put(self, vertex: int, keys: KeyRange, chain: list[Stored[Parts]] | None) -> SavedChain:
        name = self._plan.vertices[vertex].name
        if chain is None:
            raise StateError(f"this keeper does not hold {name} {keys} any more")
        known = self._checksums
        encoded = []
        for s in chain:
            (data,) = ray.get(list(s.data))  # what is to be saved comes in one part
            crc32 = known.get((vertex, keys, s.cut, s.sender))
            encoded.append(Encoded(s.base or 0, s.cut, memoryview(data), crc32))
        assert self._plan.durable is not None
        saved = self._opened().put_chain(self._plan.durable.number, name, keys, encoded)
        for place in [p for p in known if p[:2] == (vertex, keys)]:
            del known[place]
        for s, image in zip(chain, saved.images, strict=True):
            known[vertex, keys, s.cut, s.sender] = image.crc32
        return saved

    @ray.method(concurrency_group="save")
    def save_cut(self, saved: Saved) -> str | OvertakenError:
        """Write the manifest of a cut all of whose images are stored, and drop what older ones
        alone need; why that cannot be, or "" when it is done."""
        try:
            self._opened().commit(saved)
        except OvertakenError as error:
            return error
        except Exception as error:
            return told(error)
        try:
            self._opened().drop(saved.number)
        except Exception as error:  # the cut is saved; what is old is dropped with a later one
            log.warning("what %s does not need could not be deleted: %s", saved, told(error))
        return ""

    def _opened(self) -> Saves:
        durable = self._plan.durable
        assert durable is not None
        if self._saves is None:
            self._saves = Saves(open_store(durable.url), self._plan.job)
        return self._saves

    # ------------------------------------------------------------ register

    @ray.method(concurrency_group="register")
    def claim(self, view: int, split: str, epoch: int, wanted: Boundary) -> Held | None:
        """See `Register.claim`. A group of its own: storing an image takes long."""
        with self._registering:
            return self._register.claim(view, split, epoch, wanted)

    @ray.method(concurrency_group="register")
    def hand(self, view: int) -> Boundaries | None:
        """See `Register.hand`."""
        with self._registering:
            return self._register.hand(view)

    @ray.method(concurrency_group="register")
    def fill(self, view: int, content: Boundaries) -> bool:
        """See `Register.fill`."""
        with self._registering:
            return self._register.fill(view, content)

    # ------------------------------------------------------------ journal, which waits for nothing

    @ray.method(concurrency_group="journal")
    def write(self, entry: Entry) -> bool:
        """Keep an entry of the journal; False when its writer is not the controller any more."""
        return self._journal.write(entry.order, entry)

    @ray.method(concurrency_group="journal")
    def leave_journal(self, order: tuple[int, int]) -> bool:
        """Others keep the journal; see `Shelf.leave`."""
        return self._journal.leave(order)

    @ray.method(concurrency_group="journal")
    def claim_journal(self, incarnation: int) -> tuple[bool, tuple[int, int], Entry | None]:
        """A controller begins; see `Shelf.claim`."""
        return self._journal.claim(incarnation)

    @ray.method(concurrency_group="journal")
    def plan(self) -> Plan:
        """The plan of the job."""
        return self._plan

    # ------------------------------------------------------------ process

    @ray.method(concurrency_group="journal")
    def pid(self) -> int:
        """The process id."""
        return os.getpid()

    @ray.method(concurrency_group="park")
    def watch(self) -> None:
        """Returns when somebody else watches; its failure is the death of this process."""
        self._watchers += 1
        mine = self._watchers
        while mine == self._watchers:
            threading.Event().wait(LOOK_SECONDS)


def told(error: Exception) -> str:
    """An error in words."""
    return str(error) if isinstance(error, RaystreamError) else f"{type(error).__name__}: {error}"
