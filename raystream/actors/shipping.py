"""Shipping checkpoints to keepers in the background, one after the other."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from raystream.dataflow.snapshot import Captured
from raystream.schema.types import KeyRange
from raystream.state.chain import FULL, NOTHING, Chain, Size, Wanted
from raystream.state.image import ImageHeader
from raystream.state.priority import give_way

RETRY_SECONDS = 0.1
"""How soon the checkpoint of an end is shipped again that could not be stored."""

PART_BYTES = 8 << 20
"""An image is made and shipped in parts of about so many bytes of rows. Their memory is used again
and again: what is touched for the first time can cost a virtual machine milliseconds a megabyte."""
WAITING_MIN = 4
"""So few checkpoints may always wait to be shipped."""
WAITING_BYTES = 256 << 20
"""When those that wait are more and take so much memory, the next one is not taken before it is the
turn of one of them: slow keepers would get ever further behind the flow. While a large checkpoint
is shipped, many small ones may follow it."""
WAIT_SECONDS = 0.5

Ship = Callable[[ImageHeader, KeyRange, memoryview], bool]
"""Stores an encoded part of an image, which has this header as a whole. With the last part, whether
the keepers hold the image; False before when they will not."""


class Shipper:
    """Ships images in order; `chain` knows what is stored and what the next delta may build on.
    last: bytes and seconds of the image that was stored last.

    Args:
        stored: the cut that is stored already, 0 for none.
        fail: called when shipping cannot go on.
        full: makes a full checkpoint of an instance that has ended: no cut comes after its last.
        most: bytes of a part of an image, about.
    """

    def __init__(
        self,
        ship: Ship,
        stored: int,
        fail: Callable[[BaseException], None],
        full: Callable[[], Captured],
        most: int = PART_BYTES,
    ) -> None:
        self.chain = Chain(stored, guard=threading.Lock())
        self.last = (0, 0.0)
        self._ship = ship
        self._fail = fail
        self._full = full
        self._most = most
        self._stopping = threading.Event()
        self._waiting: deque[Captured] = deque()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="ship", daemon=True)
        self._thread.start()

    def await_room(self) -> None:
        """Wait, before a checkpoint is taken, while those that wait take too much memory; no longer
        than until the end."""
        with self._changed:
            while self._crowded() and not self._stopping.is_set():
                self._changed.wait(WAIT_SECONDS)

    def _crowded(self) -> bool:
        if len(self._waiting) < WAITING_MIN:
            return False
        return sum(captured.nbytes for captured in self._waiting) >= WAITING_BYTES

    def put(self, captured: Captured, wanted: Wanted = FULL) -> None:
        """Encode and ship a checkpoint that is as it was wanted; returns at once."""
        self.chain.made(wanted, captured.header.cut)
        with self._changed:
            self._waiting.append(captured)
            self._changed.notify_all()

    def stop(self) -> None:
        """End the thread when it has shipped what it was given."""
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()
        self._thread.join(5.0)

    def _run(self) -> None:
        give_way()
        while (captured := self._next()) is not None:
            try:
                held = self._store(captured)
                last = captured.header.standing.ended
                if last and not held and not self._stopping.wait(RETRY_SECONDS):
                    self.put(self._full())
            except BaseException as error:
                self._fail(error)
                return
            del captured  # its memory is not kept until the next one comes

    def _next(self) -> Captured | None:
        """The checkpoint whose turn it is; None at the end, when all have had theirs."""
        with self._changed:
            while not self._waiting and not self._stopping.is_set():
                self._changed.wait(WAIT_SECONDS)
            if not self._waiting:
                return None
            self._changed.notify_all()
            return self._waiting.popleft()

    def _store(self, captured: Captured) -> bool:
        """Encode and ship a checkpoint; whether the keepers hold it."""
        began, header = time.monotonic(), captured.header
        size = NOTHING
        held = True
        for part in captured.parts(self._most):
            data = part.encode()
            size = size.plus(Size(len(data), len(part)))
            held = self._ship(header, part.header.keys, data)
            if not held:
                break
            self._copy_waiting()
        if held:
            self.last = (size.nbytes, time.monotonic() - began)
        self.chain.answered(header.cut, size, held=held)
        return held

    def _copy_waiting(self) -> None:
        """Copy what is in view of those that wait, however long the parts of another take: whoever
        computes puts rows aside until then, or copies the next one himself."""
        with self._changed:
            waiting = list(self._waiting)
        for captured in waiting:
            captured.copy()
