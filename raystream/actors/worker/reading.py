"""How a source instance reads: at its pace, or by arrival on threads that may block."""

from __future__ import annotations

import queue
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from raystream.actors.worker.busy_meter import Meter
from raystream.actors.worker.driving.pauses import Pause, Work, pause_for
from raystream.api.connectors import Source
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.register import Boundary, HeldBoundary
from raystream.dataflow.sources.arrival import Arrival, reader_of
from raystream.dataflow.sources.arrival_split import ArrivalSplit
from raystream.dataflow.sources.epochs import (
    EndedSource,
    EpochRows,
    Positions,
    my_splits,
    senders_at,
)
from raystream.dataflow.sources.live import LiveSplit, Sent
from raystream.dataflow.sources.pace import release_of
from raystream.dataflow.sources.recorded import Recorded
from raystream.dataflow.sources.split_reader import SplitReader, tell_end
from raystream.schema.types import KeyRange, Split

WAIT_SECONDS = 0.5
"""How long a source sleeps at most before it looks whether it should stop."""
REREAD_SECONDS = 60.0
"""How long reading again may take to reach a boundary that the register holds."""

RECORDED_BYTES = 256 << 20
"""How many bytes of rows may be recorded since the committed checkpoint before a source that cannot
be read again takes no more."""


SHORT_RUN = 8
"""A run of no more empty epochs than this is taken epoch by epoch: they travel as one message, and
no checkpoint is passed."""
Stop = Callable[[int, int], int]
"""Where a step ends that begins after an epoch and could go on to another one, because all epochs
between them are empty."""


class Claim(Protocol):
    """Asks the boundary register where an epoch of a split ends, and waits for the answer."""

    def __call__(self, split: str, epoch: int, wanted: Boundary, /) -> HeldBoundary: ...

    def all(self, epoch: int, wanted: Mapping[str, Boundary], /) -> dict[str, HeldBoundary]:
        """The same for several splits in one call, because each call goes to another process."""

    def find(
        self, epoch: int, names: Sequence[str], among: Sequence[str] = ()
    ) -> dict[str, Boundary] | None:
        """The boundaries that all places hold; see `Claimer.find`."""

    @property
    def row_bytes(self) -> int:
        """The bytes of rows that are recorded since the committed checkpoint."""
        ...


class Bell(Protocol):
    """Where a source waits for what its readers read."""

    def put(self, item: None, /) -> None:
        """End the wait."""

    def take(self, seconds: float, /) -> object:
        """Wait up to so many seconds."""


class SourceReader:
    """Reads for a source instance and decides when an epoch is due.

    Args:
        bell: where it waits for its readers: the inbox of the instance.
        meter: counts what is waited as idle.
        taken: the last epoch that was published before; `positions` where the splits were then.
        ended: whether that was the last of all.
        writer: names the process in what it records, if the source cannot be read again.
        owns: whether this instance owns its range by now. Only an owner reads what cannot be read
            again.

    `waited` is whether the last epoch was there before it was due: the source keeps its pace.
    """

    def __init__(
        self,
        plan: Plan,
        vertex: Vertex,
        keys: KeyRange,
        claim: Claim | None,
        bell: Bell,
        *,
        taken: int = 0,
        positions: Positions | None = None,
        ended: bool = False,
        meter: Meter | None = None,
        writer: str = "",
        owns: Callable[[], bool] = lambda: True,
    ) -> None:
        self.plan, self.vertex = plan, vertex
        self.meter = meter or Meter()
        self._release = release_of(plan)
        self._paced = self._release is not None
        self.paced_from: float | None = None
        self.waited = False
        self.readers: list[ReadAhead] = []
        self._over = [n for _, n in my_splits(plan, vertex, keys)] if ended else []
        self.machine: Recorded | Arrival | EndedSource
        if ended:
            self.machine = EndedSource(vertex, keys, positions or {})
            return
        if plan.clock is not None:
            self.machine = Recorded(plan, vertex, keys, taken=taken, positions=positions)
            return
        assert vertex.epochs is not None and claim is not None
        self.seconds = vertex.epochs.seconds or 0.05
        self.claim = claim
        self.machine = Arrival(plan, vertex, keys, positions, writer)
        self.newest = 0
        self.last_checkpoint = 0.0
        self._owns, self._bell = owns, bell
        sources = [v for v in plan.vertices if v.kind == "source"]
        self._alone = len(sources) == 1 and len(keys) == plan.groups
        """Whether no other instance of the job cuts epochs."""
        self._live: dict[str, ReadAhead] = {}
        if not self.machine.live:
            self.readers = [self._begun(s) for s in self.machine.splits]
        assert [s.name for s in self.machine.splits] == [
            n for _, n in my_splits(plan, vertex, keys)
        ]

    def _begun(self, split: ArrivalSplit) -> ReadAhead:
        return ReadAhead(reader_of(self.vertex, split))

    def take(
        self, epoch: int, stopping: Callable[[], bool], stop: Stop | None = None
    ) -> Work[EpochRows | None]:
        """The next epoch, when it is due; None when stopping.

        Args:
            stop: where a run of empty epochs is to end. Given that, a source without a pace takes
                such a run at once.
        """
        if isinstance(self.machine, Arrival):
            with self.meter.meanwhile("idle"):  # other threads read: this one only cuts epochs
                return (yield from self._arrived(self.machine, epoch, stopping))
        while self._over and self.vertex.source.recorded:
            tell_end(self.vertex.source, self.vertex.name, self._over.pop())
        if stop is not None and isinstance(self.machine, Recorded) and not self._paced:
            last = self.machine.quiet_until(epoch)
            last = stop(epoch - 1, last if last - epoch >= SHORT_RUN else epoch)
            taken = self.machine.take(epoch, last)
        else:
            taken = self.machine.take(epoch)
        self.waited = False
        if self._paced and self.paced_from is not None:
            due = self._due(epoch)
            self.waited = due > time.time()
            self.meter.turn("idle")
            released = yield from sleep_until(due, stopping, time.time)
            self.meter.turn("busy")
            return taken if released else None
        return taken

    def _due(self, epoch: int) -> float:
        """The Unix time at which an epoch is released. For paced sources only."""
        assert self._release is not None and self.paced_from is not None
        return self.paced_from + self._release(epoch)

    def is_due(self, epoch: int, now: float) -> bool:
        """Whether an epoch is to be released by `now` (Unix time), so that the source is behind its
        pace. Always False without a pace."""
        return self._paced and self.paced_from is not None and now >= self._due(epoch)

    def positions(self) -> Positions:
        """The positions of the splits after the epoch that was taken last."""
        return self.machine.positions()

    def stop(self) -> None:
        """Stop reading. A thread that waits for its source ends when the source has answered."""
        for reader in self.readers:
            reader.stop()

    def _arrived(
        self, machine: Arrival, epoch: int, stopping: Callable[[], bool]
    ) -> Work[EpochRows | None]:
        """End an epoch with what has arrived: after `seconds`, or at once if other sources have
        closed it. Where nothing has arrived by then, and nobody waits for this source, it ends with
        what comes next, or when the next one is due."""
        now = time.monotonic  # nobody may set this clock back
        due = max(self.last_checkpoint + self.seconds, now())
        waits = self.newest < epoch and not all(r.full or r.done for r in self.readers)
        self.waited = waits
        if waits and not (yield from sleep_until(due, stopping, now)):
            return None
        if waits and self._alone:
            yield from self._await_arrival(due + self.seconds, stopping)
        self.last_checkpoint = min(due, now())  # epochs that did not wait owe no time to later ones
        if machine.live:
            return (yield from self._recorded(machine, epoch, stopping))
        wanted = {}
        for split, reader in zip(machine.splits, self.readers, strict=True):
            for batch in reader.arrived():
                split.add(*batch)
            split.done = reader.done
            wanted[split.registered] = split.wanted(reader.silent)
        answers = self.claim.all(epoch, wanted)
        boundaries = []
        for split, reader in zip(machine.splits, self.readers, strict=True):
            held, newest = answers[split.registered]
            self.newest = max(self.newest, newest)
            give_up = time.monotonic() + REREAD_SECONDS
            while not split.reaches(held) and not reader.done and time.monotonic() < give_up:
                if stopping():
                    return None
                for batch in (yield Pause(WAIT_SECONDS, reader.arrived, "unseen")):
                    split.add(*batch)
            boundaries.append(held)
        return machine.take(boundaries)

    def _await_arrival(self, until: float, stopping: Callable[[], bool]) -> Work[None]:
        """Wait until something has arrived, up to a time on the monotonic clock."""
        for reader in self.readers:
            reader.bell = self._bell
        while not any(r.waiting for r in self.readers) and not stopping():
            if (left := until - time.monotonic()) <= 0:
                break
            yield Pause(min(left, WAIT_SECONDS), self._bell.take, "by input")
        for reader in self.readers:
            reader.bell = None

    def _recorded(
        self, machine: Arrival, epoch: int, stopping: Callable[[], bool]
    ) -> Work[EpochRows | None]:
        """Record what has arrived, or follow what an owner has recorded, and let the source forget
        what is recorded."""
        boundaries = []
        for split in machine.live:
            while (wanted := self._wanted(split, epoch, machine.live)) is None:
                due = time.monotonic() + self.seconds
                if not (yield from sleep_until(due, stopping, time.monotonic)):
                    return None
            held, self.newest = self.claim(split.registered, epoch, wanted)
            boundaries.append(held)
        before = [(split.acknowledged, split.ended) for split in machine.live]
        taken = machine.take(boundaries)
        for split, (acknowledged, ended) in zip(machine.live, before, strict=True):
            if split.acknowledged is not None and split.acknowledged != acknowledged:
                self._live[split.name].reader.acknowledge(split.acknowledged)
            if split.heard and split.name in self._live:
                self._live[split.name].reader.knows(split.heard)
            split.heard = {}
            if split.ended and not ended:
                tell_end(self.vertex.source, self.vertex.name, split.name)
        return taken

    def _wanted(self, split: LiveSplit, epoch: int, live: Sequence[LiveSplit]) -> Boundary | None:
        """The boundary to claim for an epoch; None while another instance owns the split and has
        claimed none. A split that has ended has the same boundary, whoever claims it."""
        if split.done and not split.read:
            return split.wanted()
        if not self._owns():
            every = [each.registered for each in live]
            found = self.claim.find(epoch, [split.registered], every)
            return None if found is None else found.get(split.registered)
        if split.name not in self._live:
            self._live[split.name] = self._begun(split)
            self.readers = [*self._live.values()]
        reader = self._live[split.name]
        if self.claim.row_bytes + split.pending_bytes < RECORDED_BYTES:
            for batch in reader.arrived():
                split.add(*batch)
        split.done = split.done or reader.done
        return split.wanted(reader.silent)


COMMIT_SECONDS = 10.0
"""How long the end of a job waits for `Source.commit`."""
COMMITS_MAX = 1000
"""This many commits may wait for a source that takes long; then the oldest are left out."""


class CommitTeller:
    """Calls `Source.commit` and `Source.stored` on a thread of its own, in order. What they raise
    is warned of.

    Args:
        name: of the source, for warnings.
    """

    def __init__(self, source: Source[Any], name: str) -> None:
        self._source, self._name = source, name
        self._waiting: deque[Positions] = deque(maxlen=COMMITS_MAX)
        self._changed = threading.Condition()
        self._calling = False
        self._thread: threading.Thread | None = None

    def __call__(self, positions: Positions) -> None:
        """Tell the source soon. Returns at once."""
        with self._changed:
            self._waiting.append(positions)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="commit", daemon=True)
                self._thread.start()

    def drain(self, seconds: float = COMMIT_SECONDS) -> bool:
        """Wait until the source was told all. Returns whether that took no longer than so."""
        with self._changed:
            done = self._changed.wait_for(lambda: not (self._waiting or self._calling), seconds)
        if not done:
            self._warn(f"has not returned within {seconds:g} s")
        return done

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                positions, self._calling = self._waiting.popleft(), True
            try:
                self._source.commit({name: at[1] for name, at in positions.items()})
                for name, at in positions.items():
                    if senders := senders_at(at):
                        self._source.stored(Split(name), {who: last for who, last, _ in senders})
            except Exception as error:
                self._warn(f"raised {type(error).__name__}: {error}")
            finally:
                with self._changed:
                    self._calling = False
                    self._changed.notify_all()

    def _warn(self, what: str) -> None:
        with suppress(Exception):  # where warnings are errors
            warnings.warn(f"{self._name}.commit {what}", RuntimeWarning, stacklevel=3)


class ReadAhead:
    """Reads a split on a thread of its own: reading may block."""

    def __init__(self, reader: SplitReader) -> None:
        self.reader = reader
        self.bell: Bell | None = None
        """Rung when something was read, or nothing more will be; None while nobody waits."""
        self._queue: queue.Queue[Any] = queue.Queue(reader.ahead)
        self._error: BaseException | None = None
        self._ended = False
        self._stopping = False
        self._came = time.monotonic()
        self.thread = threading.Thread(target=self._run, name="read", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """End the thread, if need be when its source has answered. What it has read stays."""
        self._stopping = True

    def _run(self) -> None:
        try:
            while not self._stopping:
                before = self.reader.position
                if (rows := self.reader.next(empty=True)) is None:
                    self._ended = True
                    break
                moved = self.reader.ends is not None and self.reader.position != before
                if (sent := self.reader.sent) is not None:
                    sender, sequence, each = sent
                    came = Sent(sender, sequence, int(time.time()), each)
                    self._put((self.reader.position, rows, came))
                elif len(rows) or moved:
                    self._put((self.reader.position, rows, *self.reader.more))
            self.reader.close()
        except BaseException as error:
            self._error = error
        self._ring()

    def _put(self, batch: tuple[Any, ...]) -> None:
        while not self._stopping:
            try:
                self._queue.put(batch, timeout=WAIT_SECONDS)
            except queue.Full:
                continue
            self._ring()
            return

    def _ring(self) -> None:
        if (bell := self.bell) is not None:
            bell.put(None)

    @property
    def full(self) -> bool:
        return self._queue.full()

    @property
    def done(self) -> bool:
        """Whether the split was read to its end and all of it was handed out."""
        return self._ended and self._queue.empty()

    @property
    def waiting(self) -> bool:
        """Whether there is something to take."""
        return not self._queue.empty() or self._error is not None

    @property
    def silent(self) -> float:
        """For how many seconds nothing has come."""
        return time.monotonic() - self._came

    def arrived(self, seconds: float = 0.0) -> list[Any]:
        """The batches that were read since the last call; waits up to this long for one."""
        found = []
        for i in range(self.reader.ahead):
            try:
                wait = seconds if i == 0 else 0.0
                found.append(self._queue.get(wait > 0, wait or None))
            except queue.Empty:
                break
        if found:
            if any(len(rows) for _, rows, *_ in found):
                self._came = time.monotonic()
        elif self._error is not None:
            raise self._error
        return found


def sleep_until(at: float, stopping: Callable[[], bool], now: Callable[[], float]) -> Work[bool]:
    """Sleep to a time, in seconds of the clock `now`; False when the job stops meanwhile."""
    while (left := at - now()) > 0:
        if stopping():
            return False
        yield pause_for(min(left, WAIT_SECONDS))
    return True
