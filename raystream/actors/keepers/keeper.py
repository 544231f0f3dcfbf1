"""The keeper of a node: holds other instances' checkpoints in Ray's object store and in files.

Checkpoints come by value and the keeper puts them itself, so that it owns the objects: they survive
the death of the instance's process and node (an object dies with its owner). What is not recent it
writes to files (`backup.py`). Some keepers hold the journal of the controller as well, and are
places of the boundary register.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

import ray

from raystream.actors.cluster.environment import SWITCH_SECONDS, node_address, node_id
from raystream.actors.keepers.backup import Backup
from raystream.actors.keepers.left_rows import sweep_rows
from raystream.actors.keepers.register_port import RegisterPort
from raystream.actors.keepers.timing import Timed
from raystream.actors.network.connections import Joining
from raystream.controller.protocol.gathering.links import Hop, LinkMeter
from raystream.controller.protocol.journal import JournalEntry, Shelf
from raystream.controller.protocol.messages.calls import KeeperUse
from raystream.dataflow.plan import Plan
from raystream.dataflow.register import Boundaries
from raystream.durable.manifest import Saved, SavedChain
from raystream.durable.saves import EncodedImage, Saves
from raystream.durable.store import open_store
from raystream.errors import OvertakenError, RaystreamError, StateError
from raystream.native.lazy_pandas import put_off_pandas
from raystream.schema.types import KeyRange
from raystream.security.credentials import Credentials
from raystream.state.images.image_store import Stored
from raystream.state.keeping.files import Folder, sweep
from raystream.state.keeping.kept_images import KeptChain

LOOK_SECONDS = 0.5
GET_SECONDS = 60.0
"""How long the store of this node may take to give what it has."""
MEMORY_BYTES = 512 << 20
"""How much of the object store of its node a keeper uses, at most, unless told otherwise."""
STORE_SHARE = 4
"""It uses this part of a smaller store."""

log = logging.getLogger("raystream.keeper")

SavedPlace = tuple[int, KeyRange, int, str]
"""Names an image: vertex, range, checkpoint and sender."""


class Keeper:
    """The checkpoint replica holder of a node; called by instances and the controller.

    Args:
        plan: of the job, for a controller that goes on from the journal.
        credentials: what the instances of the job show.
        memory: bytes of the object store for checkpoints; None for `usual_memory`.
        folder: where files are; None for the folder of temporary files.
    """

    def __init__(
        self,
        plan: Plan,
        credentials: Credentials,
        memory: int | None = None,
        folder: str | None = None,
    ) -> None:
        put_off_pandas()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._plan = plan
        sweep(folder)
        sweep_rows(folder)
        self._folder = folder
        budget = usual_memory() if memory is None else memory
        self._backup = Backup(
            budget,
            open_disk=lambda: Folder(folder, os.getpid()),
            put=ray.put,
            get=lambda reference: ray.get(reference, timeout=GET_SECONDS),
        )
        self._saves: Saves | None = None
        self._checksums: dict[SavedPlace, int] = {}
        self._register = RegisterPort(Joining(credentials))
        self._journal: Shelf[JournalEntry] = Shelf()
        self._watchers = 0
        self._meter = LinkMeter()
        self._timed = Timed()

    # ------------------------------------------------------------ images

    def store(
        self,
        vertex: int,
        keys: KeyRange,
        part: KeyRange,
        image: Stored[Any],
        others: Sequence[Any] = (),
        before: Hop | None = None,
    ) -> tuple[bool, Any]:
        """Keep a part (uint8 array) of an image, and pass it on to other keepers, one after the
        other.

        The part is passed on before it is kept, and no keeper waits for the next one: two keepers
        may pass parts on to each other.

        Returns what `Backup.store` does, and the call of the next keeper; None if there is none.
        """
        what = (vertex, keys, part, image)
        onward = self._send_on(what, others) if others else None
        if before is not None:
            self._meter.note(before._replace(receiver=self._node()))
        return self._backup.store(*what), onward

    def _send_on(
        self, what: tuple[int, KeyRange, KeyRange, Stored[Any]], others: Sequence[Any]
    ) -> Any:
        """Send a part to the next keeper. How long that took goes with the next part."""
        first, *rest = others
        call = first.store.remote(*what, rest, *self._timed.of(first))
        self._timed.watch(first, call, self._node(), what[3].size)
        return call

    @staticmethod
    def _node() -> str:
        return node_id()

    @ray.method(concurrency_group="restore")
    def images(
        self,
        vertex: int,
        checkpoint: int,
        wanted: KeyRange,
        versions: Sequence[tuple[int, int]] = (),
    ) -> list[tuple[KeyRange, KeptChain[Any]]]:
        """For each range that overlaps the wanted one, the images that make up its state at a
        checkpoint, in parts. versions: see `ImageStore.images`."""
        return self._backup.chains(vertex, checkpoint, wanted, versions)

    @ray.method(concurrency_group="restore")
    def read(self, number: int, keys: KeyRange | None = None) -> Any | None:
        """A part of an image; see `Backup.read`."""
        return self._backup.read(number, keys)

    @ray.method(concurrency_group="pass on")
    def pass_on(self, way: Sequence[Any], number: int, keys: KeyRange | None = None) -> Any | None:
        """A part that the last of these keepers holds; see `KeeperActorCalls.pass_on`."""
        first, *rest = way
        ask = first.pass_on.remote(rest, number, keys) if rest else first.read.remote(number, keys)
        return ray.get(ask, timeout=GET_SECONDS)

    @ray.method(concurrency_group="trim")
    def trim(self, committed: int, assigned: list[tuple[int, KeyRange]]) -> int:
        """Drop what no restore of these ranges from `committed` on needs. Returns the bytes that
        are left. It does not wait for images that wait for room."""
        self._register.ask(lambda register: register.trim(committed))
        return self._backup.trim(committed, set(assigned))

    # ------------------------------------------------------------ durable tier

    @ray.method(concurrency_group="save")
    def put_chains(
        self,
        checkpoint: int,
        places: list[tuple[int, KeyRange]],
        versions: Sequence[tuple[int, int]] = (),
    ) -> list[tuple[int, SavedChain]] | str:
        """Store the images of these ranges at a checkpoint in the durable tier. Returns why, if
        that fails. versions: see `ImageStore.images`."""
        held = self._backup.chains
        found = {
            (v, keys): dict(held(v, checkpoint, keys, versions)).get(keys) for v, keys in places
        }
        try:
            return [(v, self._put(v, keys, chain)) for (v, keys), chain in found.items()]
        except Exception as error:  # whatever it is, this keeper has more to do
            return told(error)

    def _put(self, vertex: int, keys: KeyRange, chain: KeptChain[Any] | None) -> SavedChain:
        name = self._plan.vertices[vertex].name
        if chain is None:
            raise StateError(f"this keeper does not hold {name} {keys} any more")
        known = self._checksums
        encoded = []
        for s in chain:
            (part,) = s.data  # what is to be saved comes in one part
            data = self._backup.read(part.number)
            if data is None:
                raise StateError(f"this keeper does not hold {name} {keys} any more")
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
            assert self._plan.durable is not None
            self._opened().drop(saved.number, kept=self._plan.durable.keep)
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
    def register_address(self) -> str:
        """Where instances claim boundaries, "HOST:PORT". It has a concurrency group of its own,
        because storing an image takes long."""
        return self._register.address(node_address())

    @ray.method(concurrency_group="register")
    def hand(self, view: int) -> Boundaries | None:
        """See `Register.hand`."""
        return self._register.ask(lambda register: register.hand(view))

    @ray.method(concurrency_group="register")
    def fill(self, view: int, content: Boundaries) -> bool:
        """See `Register.fill`."""
        return self._register.ask(lambda register: register.fill(view, content))

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

    @ray.method(concurrency_group="journal")
    def use(self) -> KeeperUse:
        """What its images take, and whether it can store more."""
        return self._backup.use()._replace(links=tuple(self._meter.pairs.items()))

    @ray.method(concurrency_group="journal")
    def stop(self) -> None:
        """Remove all files: the job has ended. Also those of instances that have died."""
        self._register.stop()
        self._backup.stop()
        sweep_rows(self._folder, ended=self._plan.run)

    @ray.method(concurrency_group="park")
    def watch(self) -> None:
        """Returns when there is a newer call. If the call itself fails, this process is dead."""
        self._watchers += 1
        mine = self._watchers
        while mine == self._watchers:
            threading.Event().wait(LOOK_SECONDS)


def usual_memory() -> int:
    """How much of the object store of this node a keeper uses unless told otherwise."""
    node = ray.get_runtime_context().get_node_id()
    nodes: Any = ray.nodes  # it has no types
    stores = [n["Resources"].get("object_store_memory") for n in nodes() if n["NodeID"] == node]
    return min([MEMORY_BYTES, *(int(store) // STORE_SHARE for store in stores if store)])


def told(error: Exception) -> str:
    """An error in words."""
    return str(error) if isinstance(error, RaystreamError) else f"{type(error).__name__}: {error}"
