"""How a source instance reads: at its pace, or by arrival on threads that may block."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from raystream.actors.metering import Meter
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.register import Boundary, Held
from raystream.dataflow.source import (
    Arrival,
    Ended,
    Positions,
    Recorded,
    SplitReader,
    Taken,
    my_splits,
)
from raystream.schema.types import KeyRange

WAIT_SECONDS = 0.5
"""How long a source sleeps at most before it looks whether it should stop."""
REREAD_SECONDS = 60.0
"""How long reading again may take to reach a boundary that the register holds."""

Claim = Callable[[str, int, Boundary], Held]
"""Asks the boundary register where an epoch of a split ends, and waits for the answer."""


class SourceReader:
    """Reads for a source instance and decides when an epoch is due.

    Args:
        meter: counts what is waited as idle.
        taken: the last epoch that was published before; `positions` where the splits were then.
        ended: whether that was the last of all.

    `waited` is whether the last epoch was there before it was due: the source keeps its pace.
    """

    def __init__(
        self,
        plan: Plan,
        vertex: Vertex,
        keys: KeyRange,
        claim: Claim | None,
        *,
        taken: int = 0,
        positions: Positions | None = None,
        ended: bool = False,
        meter: Meter | None = None,
    ) -> None:
        self.plan = plan
        self.meter = meter or Meter()
        self.paced_from: float | None = None
        self.waited = False
        self.readers: list[_ReadAhead] = []
        self.machine: Recorded | Arrival | Ended
        if ended:
            self.machine = Ended(vertex, keys, positions or {})
            return
        if plan.clock is not None:
            self.machine = Recorded(plan, vertex, keys, taken=taken, positions=positions)
            return
        assert vertex.epochs is not None and claim is not None
        self.seconds = vertex.epochs.seconds or 0.05
        self.claim = claim
        self.machine = Arrival(plan, vertex, keys, positions)
        self.newest = 0
        self.last_cut = 0.0
        schema, read = self.machine.schema, vertex.source.read
        self.readers = [
            _ReadAhead(SplitReader(s.name, vertex.name, schema, read, s.position))
            for s in self.machine.splits
        ]
        assert [s.name for s in self.machine.splits] == [
            n for _, n in my_splits(plan, vertex, keys)
        ]

    def take(self, epoch: int, stopping: Callable[[], bool]) -> Taken | None:
        """The next epoch, when it is due; None when stopping."""
        if isinstance(self.machine, Arrival):
            with self.meter.meanwhile("idle"):  # others read: all it does itself is to cut
                return self._arrived(self.machine, epoch, stopping)
        taken = self.machine.take(epoch)
        self.waited = False
        clock = self.plan.clock
        if self.paced_from is not None and clock is not None and clock.speed is not None:
            due = self.paced_from + epoch * clock.seconds / clock.speed
            self.waited = due > time.time()
            with self.meter.meanwhile("idle"):
                if not sleep_until(due, stopping, time.time):
                    return None
        return taken

    def positions(self) -> Positions:
        """Where the splits are, after the epoch that was taken last."""
        return self.machine.positions()

    def stop(self) -> None:
        """Read no further. A thread that waits for its source ends when that has answered."""
        for reader in self.readers:
            reader.stop()

    def _arrived(self, machine: Arrival, epoch: int, stopping: Callable[[], bool]) -> Taken | None:
        """Cut what has arrived: after `seconds`, or at once while others have closed this epoch."""
        now = time.monotonic  # nobody may set this clock back
        due = max(self.last_cut + self.seconds, now())
        waits = self.newest < epoch and not all(r.full or r.done for r in self.readers)
        self.waited = waits
        if waits and not sleep_until(due, stopping, now):
            return None
        self.last_cut = min(due, now())  # epochs that did not wait owe no time to later ones
        boundaries = []
        for split, reader in zip(machine.splits, self.readers, strict=True):
            for position, rows in reader.arrived():
                split.add(position, rows)
            split.done = reader.done
            held, self.newest = self.claim(split.registered, epoch, split.wanted())
            give_up = time.monotonic() + REREAD_SECONDS
            while not split.reaches(held) and not reader.done and time.monotonic() < give_up:
                if stopping():
                    return None
                for position, rows in reader.arrived(WAIT_SECONDS):
                    split.add(position, rows)
            boundaries.append(held)
        return machine.take(boundaries)


class _ReadAhead:
    """Reads a split on a thread of its own: reading may block."""

    BATCHES = 4

    def __init__(self, reader: SplitReader) -> None:
        self.reader = reader
        self._queue: queue.Queue[Any] = queue.Queue(self.BATCHES)
        self._error: BaseException | None = None
        self._ended = False
        self._stopping = False
        self.thread = threading.Thread(target=self._run, name="read", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """End the thread soon, or when its source has answered. What it has read stays."""
        self._stopping = True

    def _run(self) -> None:
        try:
            while not self._stopping:
                if (rows := self.reader.next()) is None:
                    self._ended = True
                    break
                self._put((self.reader.position, rows))
            self.reader.close()
        except BaseException as error:
            self._error = error

    def _put(self, batch: tuple[int, Any]) -> None:
        while not self._stopping:
            try:
                self._queue.put(batch, timeout=WAIT_SECONDS)
                return
            except queue.Full:
                continue

    @property
    def full(self) -> bool:
        return self._queue.full()

    @property
    def done(self) -> bool:
        """Whether the split was read to its end and all of it was handed out."""
        return self._ended and self._queue.empty()

    def arrived(self, seconds: float = 0.0) -> list[Any]:
        """What was read since the last call; waits so long for something."""
        found = []
        for i in range(self.BATCHES):
            try:
                wait = seconds if i == 0 else 0.0
                found.append(self._queue.get(wait > 0, wait or None))
            except queue.Empty:
                break
        if not found and self._error is not None:
            raise self._error
        return found


def sleep_until(at: float, stopping: Callable[[], bool], now: Callable[[], float]) -> bool:
    """Sleep to a time, in seconds of the clock `now`; False when the job stops meanwhile."""
    while (left := at - now()) > 0:
        if stopping():
            return False
        time.sleep(min(left, WAIT_SECONDS))
    return True
