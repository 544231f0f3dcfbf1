"""Shipping checkpoints to keepers in the background, one after the other."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from raystream.dataflow.snapshot import Captured
from raystream.dataflow.tenure import Storing
from raystream.native.thread_priority import give_way
from raystream.schema.types import KeyRange
from raystream.state.images.chain import FULL, NOTHING, CheckpointRequest, Size
from raystream.state.images.image import ImageHeader

RETRY_SECONDS = 0.1
"""How soon the checkpoint of an end is shipped again that could not be stored."""

PART_BYTES = 8 << 20
"""About how many bytes of rows a part of an image has. The memory of parts is used again and again:
memory that is touched for the first time can cost a virtual machine milliseconds a megabyte."""
WAITING_MIN = 4
"""This many checkpoints may always wait to be shipped."""
WAITING_BYTES = 256 << 20
"""When more of them wait and take this much memory, the next one is not taken before one of them is
shipped: otherwise slow keepers would fall ever further behind the flow. While a large checkpoint is
shipped, many small ones may follow it."""
WAIT_SECONDS = 0.5

Ship = Callable[[tuple[Any, ...], ImageHeader, KeyRange, memoryview], bool]
"""Stores an encoded part of an image, which has this header as a whole, with keepers. Returns, with
the last part, whether they all hold the image; with a part before it, False when they will not."""


class Shipper:
    """Ships images in order.

    Args:
        storing: knows the keepers, what is stored and what the next delta may build on.
        fail: called when shipping cannot go on.
        full: makes a full checkpoint of an instance that has ended: no other comes after its last.
        most: bytes of a part of an image, about.
    """

    def __init__(
        self,
        ship: Ship,
        storing: Storing[Any],
        fail: Callable[[BaseException], None],
        full: Callable[[], Captured],
        most: int = PART_BYTES,
    ) -> None:
        self.storing = storing
        self.last = (0, 0.0)
        """Bytes and seconds of the image that was stored last."""
        self._ship = ship
        self._fail = fail
        self._full = full
        self._most = most
        self._stopping = threading.Event()
        self._waiting: deque[Captured] = deque()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="ship", daemon=True)
        self._thread.start()

    @property
    def crowded(self) -> bool:
        """Whether the checkpoints that wait take too much memory for another one. Not beyond the
        end."""
        with self._changed:
            if len(self._waiting) < WAITING_MIN or self._stopping.is_set():
                return False
            return sum(captured.nbytes for captured in self._waiting) >= WAITING_BYTES

    def await_room(self, seconds: float) -> None:
        """Wait up to so many seconds for one of those that wait to be shipped."""
        with self._changed:
            if seconds and self.crowded:
                self._changed.wait(seconds)

    def put(self, captured: Captured, wanted: CheckpointRequest = FULL) -> None:
        """Encode and ship a checkpoint that was taken as `wanted`. Returns at once."""
        self.storing.chain.made(wanted, captured.header.checkpoint)
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
                again = self._store(captured)
                if again and not self._stopping.wait(RETRY_SECONDS):
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
        """Encode and ship a checkpoint; whether it has to be taken again, because it was the last
        one and is not stored."""
        began, header = time.monotonic(), captured.header
        size, choice, held = NOTHING, self.storing.choice, True
        for part in captured.parts(self._most):
            data = part.encode()
            size = size.plus(Size(len(data), len(part)))
            choice = self.storing.choice
            held = self._ship(choice.keepers, header, part.header.keys, data)
            if not held:
                break
            self._copy_waiting()
        if held:
            self.last = (size.nbytes, time.monotonic() - began)
        return self.storing.answered(header, size, choice, held=held)

    def _copy_waiting(self) -> None:
        """Copy what is in view of the checkpoints that wait, however long the parts of another one
        take: until then the compute thread puts rows aside, or copies the next one itself."""
        with self._changed:
            waiting = list(self._waiting)
        for captured in waiting:
            captured.copy()
