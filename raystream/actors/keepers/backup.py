"""The images that a keeper holds: recent bytes in Ray's object store, the rest in files.

A part of an image that arrives is put into the store, where it counts as stored. When half of the
budget of the store is used, a thread writes the oldest parts to files and lets the objects go
(`raystream.state.keeping`). When files cannot be written, parts stay in the store up to the budget;
then no more are taken, and the keeper says why.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from raystream.controller.protocol.messages.calls import KeeperUse
from raystream.errors import StateError
from raystream.native.thread_priority import give_way
from raystream.schema.types import KeyRange
from raystream.state.images.image_store import Stored
from raystream.state.images.partition import recut_encoded
from raystream.state.keeping.files import Disk, placed, read_part
from raystream.state.keeping.holdings import WriteBatch
from raystream.state.keeping.kept_images import KeptChain, KeptImages

ROOM_SECONDS = 30.0
"""How long a part waits for room in the object store while files are being written."""
AGAIN_SECONDS = 1.0
"""How soon a file is tried again that could not be written."""

log = logging.getLogger("raystream.keeper")


class Backup:
    """Images of other instances. Any thread may call it.

    Args:
        budget: bytes of the object store for parts.
        open_disk: makes the place for files; called when the first one is written.
        put, get: store an object and map it, as `ray.put` and `ray.get` do.
    """

    def __init__(
        self,
        budget: int,
        open_disk: Callable[[], Disk],
        put: Callable[[Any], Any],
        get: Callable[[Any], Any],
    ) -> None:
        self._kept: KeptImages[Any] = KeptImages(budget)
        self._open_disk, self._put, self._get = open_disk, put, get
        self._disk: Disk | None = None
        self._changed = threading.Condition()
        self._why = ""
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="files", daemon=True)
        self._thread.start()

    def store(self, vertex: int, keys: KeyRange, part: KeyRange, image: Stored[Any]) -> bool:
        """Keep a part (uint8 array) of an image of the range `keys`; False if it was the last one
        and the image is not held: others have got parts of it, or it is a delta on something that
        is not held. It may have been whole before, with parts that were sent earlier.

        Raises:
            StateError: there is no room for it.
        """
        self._await_room()
        stored = self._put(image.data)
        with self._changed:
            whole = self._kept.take(keys, part, replace(image, data=stored))
            if self._kept.holdings.to_write:
                self._changed.notify_all()
            if whole is None:
                held = self._kept.images.holds(vertex, keys, image.checkpoint)
                return part.hi < keys.hi or held
            return self._kept.images.store(vertex, keys, whole)

    def chains(
        self,
        vertex: int,
        checkpoint: int,
        wanted: KeyRange,
        versions: Sequence[tuple[int, int]] = (),
    ) -> list[tuple[KeyRange, KeptChain[Any]]]:
        """See `KeptImages.chains`."""
        with self._changed:
            return self._kept.chains(vertex, checkpoint, wanted, versions)

    def read(self, number: int, keys: KeyRange | None = None) -> Any | None:
        """A part (uint8 array), or what it has of a range inside its own. None if it is not held
        any more, or is damaged; in that case it is not held from now on."""
        while True:
            with self._changed:
                if number not in self._kept:
                    return None
                part, place = self._kept.part(number), self._kept.place(number)
            try:
                if part.data is not None:
                    data = self._get(part.data)
                else:
                    assert self._disk is not None and place is not None
                    data = read_part(self._disk, place)
                cut = data if keys is None else recut_encoded([data], keys)
                return np.frombuffer(cut, np.uint8)
            except StateError as error:
                with self._changed:
                    if number in self._kept and self._kept.place(number) == place:
                        self._lose(number, error)
                        return None

    def trim(self, committed: int, assigned: set[tuple[int, KeyRange]]) -> int:
        """Drop what no restore of these ranges from `committed` on needs. Returns the bytes that
        are left."""
        with self._changed:
            self._delete(self._kept.trim(committed, assigned))
            self._changed.notify_all()
            return self._kept.images.nbytes

    def use(self) -> KeeperUse:
        """What the images take."""
        with self._changed:
            return KeeperUse(self._kept.holdings.memory, self._kept.holdings.disk, self._why)

    def stop(self) -> None:
        """End the thread, and remove all files."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        if self._disk is not None:
            self._disk.remove()

    # ------------------------------------------------------------ files

    def _await_room(self) -> None:
        until = time.monotonic() + ROOM_SECONDS
        with self._changed:
            while not self._kept.holdings.has_room:
                left = until - time.monotonic()
                if self._why or left <= 0:
                    raise StateError(
                        self._why
                        or f"files were not written in {ROOM_SECONDS:g} s, and the"
                        f" {self._kept.holdings.budget >> 20} MiB of the object store are full"
                    )
                self._changed.wait(left)

    def _run(self) -> None:
        give_way()
        while (batch := self._next()) is not None:
            try:
                self._write(batch)
            except OSError as error:
                with self._changed:
                    self._kept.holdings.failed(batch)
                    if not self._why:
                        log.warning("checkpoints cannot be written to files: %s", error)
                    self._why = f"its files cannot be written: {error}"
                    self._changed.notify_all()
                    self._changed.wait(AGAIN_SECONDS)

    def _next(self) -> WriteBatch | None:
        """What is to be written; None at the end."""
        with self._changed:
            while not self._stopping:
                batch = self._kept.holdings.next_batch()
                if batch is not None:
                    return batch
                self._changed.wait()
            return None

    def _write(self, batch: WriteBatch) -> None:
        """Write a batch.

        Raises:
            OSError: the disk refuses.
        """
        if self._disk is None:
            self._disk = self._open_disk()
        parts = [self.read(number) for number in batch.parts]
        there = [(n, part) for n, part in zip(batch.parts, parts, strict=True) if part is not None]
        data = [part for _, part in there]
        places = placed(batch.file, data)
        self._disk.write(batch.file, data)
        with self._changed:
            done = WriteBatch(batch.file, tuple(n for n, _ in there))
            self._delete(self._kept.written(done, places))
            self._why = ""
            self._changed.notify_all()

    def _lose(self, number: int, error: StateError) -> None:
        said, files = self._kept.damaged(number)
        self._delete(files)
        log.warning(
            "a checkpoint is not held any more, another copy is used: %s (%s)",
            error.message,
            "; ".join(said),
        )

    def _delete(self, files: tuple[int, ...]) -> None:
        for file in files:
            if self._disk is not None:
                self._disk.delete(file)
