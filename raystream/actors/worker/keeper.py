"""The keeper of a node: holds other instances' checkpoints in the Ray object store.

Checkpoints come by value and the keeper puts them itself, so that it owns the objects: they survive
the death of the instance's process and node (an object dies with its owner). Some keepers hold the
journal of the controller as well, and are places of the boundary register.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import ray

from raystream.controller.protocol.journal import JournalEntry, Shelf
from raystream.dataflow.plan import Plan
from raystream.dataflow.register import Boundaries, Boundary, HeldBoundary, Register
from raystream.durable.manifest import Saved, SavedChain
from raystream.durable.saves import EncodedImage, Saves
from raystream.durable.store import open_store
from raystream.errors import OvertakenError, RaystreamError, StateError
from raystream.native.lazy_pandas import put_off_pandas
from raystream.schema.types import KeyRange
from raystream.state.images.image_store import Arrivals, ImageStore, Stored
from raystream.state.images.partition import recut_encoded

LOOK_SECONDS = 0.5

log = logging.getLogger("raystream.keeper")

ImageParts = tuple[Any, ...]
"""References of the encoded parts of an image, which tile its range."""
SavedPlace = tuple[int, KeyRange, int, str]
"""Of an image: vertex, range, checkpoint and sender."""


class Keeper:
    """The checkpoint replica holder of a node; called by instances and the controller.

    Args:
        plan: of the job, for a controller that goes on from the journal.
    """

    def __init__(self, plan: Plan) -> None:
        put_off_pandas()
        self._plan = plan
        self._images: ImageStore[ImageParts] = ImageStore()
        self._arrivals: Arrivals[Any] = Arrivals()
        self._imaging = threading.Lock()
        self._saves: Saves | None = None
        self._checksums: dict[SavedPlace, int] = {}
        self._register = Register()
        self._registering = threading.Lock()
        self._journal: Shelf[JournalEntry] = Shelf()
        self._watchers = 0

    # ------------------------------------------------------------ images

    def store(
        self,
        sender: str,
        vertex: int,
        keys: KeyRange,
        base: int,
        checkpoint: int,
        oldest: int,
        ended: bool,
        part: KeyRange,
        data: Any,
    ) -> bool:
        """Keep a part (uint8 array) of an image of the range `keys`; False if it was the last one
        and the image is not held: others have got parts of it, or it is a delta on something that
        is not held. It may have been whole before, with parts that were sent earlier."""
        arrived = Stored(
            checkpoint,
            base or None,
            ray.put(data),
            len(data),
            ended=ended,
            oldest=oldest,
            sender=sender,
        )
        with self._imaging:
            whole = self._arrivals.take(sender, keys, part, arrived)
            if whole is None:
                return part.hi < keys.hi or self._images.holds(vertex, keys, checkpoint)
            return self._images.store(vertex, keys, whole)

    @ray.method(concurrency_group="restore")
    def images(
        self, vertex: int, checkpoint: int, wanted: KeyRange
    ) -> list[tuple[KeyRange, list[ImageParts]]]:
        """For each range that overlaps the wanted one, references of the parts of the images that
        make up its state at a checkpoint."""
        found = self._found(vertex, checkpoint, wanted)
        return [(keys, [s.data for s in chain]) for keys, chain in found]

    @ray.method(concurrency_group="restore")
    def part(
        self, vertex: int, checkpoint: int, held: KeyRange, part: KeyRange
    ) -> list[ImageParts]:
        """As `images`, for a part of a range that is held: references of new images, which are cut
        for it."""
        chain = dict(self._found(vertex, checkpoint, part))[held]
        images = [recut_encoded(ray.get(list(s.data)), part) for s in chain]
        return [(ray.put(np.frombuffer(data, np.uint8)),) for data in images]

    def trim(self, committed: int, assigned: list[tuple[int, KeyRange]]) -> int:
        """Drop what no restore of these ranges from `committed` on needs. Returns the bytes that
        are left."""
        with self._registering:
            self._register.trim(committed)
        with self._imaging:
            self._arrivals.trim(committed)
            self._images.trim(committed, set(assigned))
            return self._images.nbytes

    def _found(
        self, vertex: int, checkpoint: int, wanted: KeyRange
    ) -> list[tuple[KeyRange, list[Stored[ImageParts]]]]:
        with self._imaging:
            return self._images.images(vertex, checkpoint, wanted)

    # ------------------------------------------------------------ durable tier

    @ray.method(concurrency_group="save")
    def put_chains(
        self, checkpoint: int, places: list[tuple[int, KeyRange]]
    ) -> list[tuple[int, SavedChain]] | str:
        """Store the images of these ranges at a checkpoint in the durable tier. Returns why, if
        that fails."""
        found = {(v, keys): dict(self._found(v, checkpoint, keys)).get(keys) for v, keys in places}
        try:
            return [(v, self._put(v, keys, chain)) for (v, keys), chain in found.items()]
        except Exception as error:  # whatever it is, this keeper has more to do
            return told(error)

    def _put(
        self, vertex: int, keys: KeyRange, chain: list[Stored[ImageParts]] | None
    ) -> SavedChain:
        name = self._plan.vertices[vertex].name
        if chain is None:
            raise StateError(f"this keeper does not hold {name} {keys} any more")
        known = self._checksums
        encoded = []
        for s in chain:
            (data,) = ray.get(list(s.data))  # what is to be saved comes in one part
            crc32 = known.get((vertex, keys, s.checkpoint, s.sender))
            encoded.append(EncodedImage(s.base or 0, s.checkpoint, memoryview(data), crc32))
        assert self._plan.durable is not None
        saved = self._opened().put_chain(self._plan.durable.number, name, keys, encoded)
        for place in [p for p in known if p[:2] == (vertex, keys)]:
            del known[place]
        for s, image in zip(chain, saved.images, strict=True):
            known[vertex, keys, s.checkpoint, s.sender] = image.crc32
        return saved

    @ray.method(concurrency_group="save")
    def save_checkpoint(self, saved: Saved) -> str | OvertakenError:
        """Write the manifest of a checkpoint all of whose images are stored, and drop what only
        older ones need. Returns why it failed, or "" when it is done."""
        try:
            self._opened().commit(saved)
        except OvertakenError as error:
            return error
        except Exception as error:
            return told(error)
        try:
            self._opened().drop(saved.number)
        except Exception as error:  # it is saved; what is old is dropped with a later one
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
    def claim(self, view: int, split: str, epoch: int, wanted: Boundary) -> HeldBoundary | None:
        """See `Register.claim`. It has a concurrency group of its own, because storing an image
        takes long."""
        with self._registering:
            return self._register.claim(view, split, epoch, wanted)

    @ray.method(concurrency_group="register")
    def look(self, view: int, split: str, epoch: int) -> Boundary | None:
        """See `Register.look`."""
        with self._registering:
            return self._register.look(view, split, epoch)

    @ray.method(concurrency_group="register")
    def claim_all(
        self, view: int, epoch: int, wanted: Mapping[str, Boundary]
    ) -> dict[str, HeldBoundary] | None:
        """See `Register.claim_all`."""
        with self._registering:
            return self._register.claim_all(view, epoch, wanted)

    @ray.method(concurrency_group="register")
    def look_all(self, view: int, epoch: int, names: list[str]) -> dict[str, Boundary]:
        """See `Register.look_all`."""
        with self._registering:
            return self._register.look_all(view, epoch, names)

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
    def write(self, entry: JournalEntry) -> bool:
        """Keep an entry of the journal. False: its writer is not the controller any more."""
        return self._journal.write(entry.order, entry)

    @ray.method(concurrency_group="journal")
    def leave_journal(self, order: tuple[int, int]) -> bool:
        """Keep no journal any more: other keepers do. See `Shelf.leave`."""
        return self._journal.leave(order)

    @ray.method(concurrency_group="journal")
    def claim_journal(self, incarnation: int) -> tuple[bool, tuple[int, int], JournalEntry | None]:
        """Let a new controller take over the journal; see `Shelf.claim`."""
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
        """Returns when there is a newer call. If the call itself fails, this process is dead."""
        self._watchers += 1
        mine = self._watchers
        while mine == self._watchers:
            threading.Event().wait(LOOK_SECONDS)


def told(error: Exception) -> str:
    """An error in words."""
    return str(error) if isinstance(error, RaystreamError) else f"{type(error).__name__}: {error}"
