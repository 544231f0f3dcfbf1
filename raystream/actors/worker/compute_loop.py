"""What an instance computes: the only work that touches its machine. A thread of its own does it,
or one that it shares with others."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from raystream.actors.network.inbox import Inbox, Item
from raystream.actors.network.server import Cursors, LogServer
from raystream.actors.worker.busy_meter import Meter
from raystream.actors.worker.driving.fair_lock import Turns
from raystream.actors.worker.driving.pauses import TURN, Pause, Work, pause_for, work_alone
from raystream.actors.worker.driving.shared_thread import (
    SharedInbox,
    SharedThread,
    quiet_thread,
)
from raystream.actors.worker.driving.slices import Slices, ask
from raystream.actors.worker.driving.tidy import Tidy
from raystream.actors.worker.fate import Fate
from raystream.actors.worker.reading import CommitTeller, SourceReader
from raystream.actors.worker.shipping import Shipper
from raystream.actors.worker.subscriptions import Subscriptions
from raystream.controller.protocol.shortage import holder_of, is_shortage, shortage
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.pieces import Header
from raystream.dataflow.snapshot import Captured
from raystream.dataflow.sources.epochs import Positions
from raystream.dataflow.tenure import Tenure
from raystream.local.asking import Asker
from raystream.native.memory import memory_use
from raystream.schema.types import SinkContext

WAIT_SECONDS = 0.5
"""How long the thread waits at most before it looks whether the shell stops."""
NEAR_SECONDS = (0.0005, 0.01)
"""How long a producer of epochs by arrival rests, at first and at most, before it looks again
whether its subscribers are near: what they say wakes no thread."""
HOLD_SECONDS = 0.005
"""How often a source looks whether the code after its epoch is settled."""
MARKS = 256
"""A source or sink reports for this many of its newest epochs when it passed them."""
BATCH = 16
BATCH_SECONDS = 0.001
"""The thread applies up to BATCH ready epochs before it sends them together, for at most
BATCH_SECONDS: a thread that is behind sends less often, and catches up sooner."""
TRIM_EPOCHS = 32
"""Up to this many epochs of each log are dropped between two others: thousands at once take
milliseconds."""


class Marks:
    """When a source or sink has passed its newest epochs. One thread notes it, any may ask."""

    def __init__(self) -> None:
        self._newest: deque[tuple[int, float]] = deque(maxlen=MARKS)

    def passed(self, epoch: int, now: float) -> None:
        """Note an epoch, and the Unix time."""
        self._newest.append((epoch, now))

    def newest(self) -> list[tuple[int, float]]:
        """What was noted, oldest first."""
        for _ in range(MARKS):  # one may be added meanwhile
            try:
                return list(self._newest)
            except RuntimeError:
                continue
        return []


class ComputeLoop:
    """Applies epochs as they become ready, takes checkpoints, and acts on commits in between.

    Args:
        shared: the thread that works for several instances, this one too. None: one of its own.
        turns: the lock that this thread shares with the one that copies checkpoints.
        shipper: ships checkpoints; None: none are taken.
        held_bytes: what the logs of a source may hold in all, or one checkpoint if that is more,
            before it stops reading.
    """

    def __init__(
        self,
        tenure: Tenure[Any],
        *,
        fate: Fate,
        meter: Meter,
        turns: Turns,
        inbox: Inbox | SharedInbox,
        subscriptions: Subscriptions,
        server: LogServer,
        cursors: Cursors,
        held_bytes: int,
        shared: SharedThread | None = None,
    ) -> None:
        self.source: SourceReader | None = None
        """Reads, for a source."""
        self.asker: Asker | None = None
        """Asks, for an operator that asks the world; set when the work begins."""
        self.shipper: Shipper | None = None
        self.teller: CommitTeller | None = None
        """Tells a source of commits, if it wants to know."""
        self.context: SinkContext | None = None
        """What the sink is told before its first write; set when the work begins."""
        self.marks = Marks()
        self._marking = tenure.machine.vertex.kind in ("source", "sink")
        self.ended_at: float | None = None
        """The Unix time at which the last epoch was applied."""
        self.amid = False
        """Whether a step is under way, or has failed. The rows then belong to no single epoch."""
        self.again = False
        """Set when the last checkpoint is to be stored again."""
        self._tenure, self._machine = tenure, (machine := tenure.machine)
        self._fate, self._meter, self._turns = fate, meter, turns
        self._inbox, self._subscriptions = inbox, subscriptions
        self._server, self._cursors = server, cursors
        self._held_bytes = held_bytes
        self._arrives = machine.plan.clock is None
        self._pauses = NEAR_SECONDS if self._arrives else (WAIT_SECONDS, WAIT_SECONDS)
        self._asked: queue.SimpleQueue[tuple[int, Future[Captured | None]]] = queue.SimpleQueue()
        self._shared, self._ended = shared, threading.Event()
        self._tidy: Callable[[], None] = _nothing
        self._slices: Callable[[], None] = _nothing
        self._begun_at = time.process_time()

    # ------------------------------------------------------------ called by other threads

    def start(self, context: SinkContext) -> None:
        """Start to work."""
        self.context = context
        self._begun_at = time.process_time()
        if self._shared is not None:
            assert isinstance(self._inbox, SharedInbox)
            self._shared.add(self._guarded(), self._inbox)
        else:
            threading.Thread(target=self._alone, name="compute", daemon=True).start()

    def cpu(self) -> float:
        """The seconds of processor time of the process since the work began. Where others share the
        process: the seconds for which this work was busy."""
        if self._shared is None:
            return time.process_time() - self._begun_at
        return self._meter.spent().busy

    def changes_since(self, checkpoint: int) -> Future[Captured | None]:
        """The changes from a checkpoint to the end of the current epoch; None if there are none."""
        asked = Future[Captured | None]()
        self._asked.put((checkpoint, asked))
        self._inbox.put(None)
        return asked

    def capture(self) -> Captured:
        """The last checkpoint, in full, of an instance that has ended."""
        return self._tenure.capture(splits=self._splits())

    def join(self, seconds: float) -> bool:
        """Wait for the end of the work. Returns whether it has ended, or was never started."""
        return self.context is None or self._ended.wait(seconds)

    # ------------------------------------------------------------ the work

    def _alone(self) -> None:
        quiet_thread()
        self._tidy, self._slices = Tidy(), Slices(self._meter.rounds, ask)
        work_alone(self._guarded())

    def _guarded(self) -> Work[None]:
        self._meter.turn("busy")
        try:
            if self.source is not None:
                yield from self._run_source(self.source)
            else:
                yield from self._run_operator()
        except BaseException as error:
            short = is_shortage(error)
            holder = holder_of(self._machine, self._tenure.name)
            self._fate.fail(shortage(holder, memory_use()) if short else error)
        finally:
            self._meter.turn("idle")
            self._fate.done.set()
            self._ended.set()

    def _run_source(self, source: SourceReader) -> Work[None]:
        machine, fate = self._machine, self._fate
        batch, until = 0, 0.0
        while not fate.stopping and not machine.ended:
            if not machine.ready():
                yield from self._stand_still()
                continue
            if self._arrives and not (self._is_near() or (yield from self._may_publish())):
                break  # before the cut: what comes until then belongs to the epoch
            stop = machine.end_of_step
            taken = yield from source.take(machine.position + 1, lambda: fate.stopping, stop)
            if taken is None or not (yield from self._has_room()):
                break
            if not (self._is_near() or (yield from self._may_publish())):
                break
            header = machine.step(taken)
            now = time.time()
            self.marks.passed(header.epoch, now)
            batch, until = batch + 1, until if batch else now + BATCH_SECONDS
            late = source.is_due(header.epoch + 1, now) and now < until and batch < BATCH
            if late and not (header.checkpoint or header.ended) and self._is_near():
                continue
            batch = 0
            yield from self._published(header, at_leisure=source.waited)
            yield from self._turn()
        self.ended_at = time.time()
        yield from self._linger()

    def _stand_still(self) -> Work[None]:
        """Act on commits, at the checkpoint with which the job is stopped, or where it waits for
        the word to go over to other code."""
        with self._meter.meanwhile("idle"):
            yield pause_for(HOLD_SECONDS if self._machine.switching.told else WAIT_SECONDS)
        self._act()

    def _run_operator(self) -> Work[None]:
        machine, fate = self._machine, self._fate
        assert self.context is not None
        machine.begin(self.context)
        while not fate.stopping and not machine.ended:
            yield from self._await_input(machine)
            if not (ready := self._ready(machine)):  # otherwise it acts after the step
                self._act(TRIM_EPOCHS)
            while ready and (self._is_near() or (yield from self._may_publish())):
                header = self._step_ready(machine)
                idle = not machine.ready() and self._inbox.empty
                yield from self._published(header, at_leisure=idle)
                if not idle:
                    yield from self._turn()
                    self._receive(machine, self._inbox.take(0.0))
                ready = self._ready(machine)
        self.ended_at = time.time()
        yield from self._linger()

    def _step_ready(self, machine: Instance) -> Header:
        """Apply the next epoch, and those after it that are ready, as one batch (`BATCH`). A batch
        ends at a checkpoint. Returns the header of the last epoch."""
        until = time.monotonic() + BATCH_SECONDS
        for _ in range(BATCH):
            with self._turns:
                self.amid = True
                header = machine.step()
                self.amid = False
            if self._marking:
                self.marks.passed(header.epoch, time.time())
            if header.checkpoint or not machine.ready() or time.monotonic() > until:
                break
            if not self._is_near():
                break
        return header

    def _ready(self, machine: Instance) -> bool:
        """Whether the next epoch can be applied, once it was asked what can be asked by now, and
        what was answered is taken."""
        if self.asker is not None:
            self.asker.turn()
        return machine.ready()

    def _published(self, header: Header, at_leisure: bool) -> Work[None]:
        """Send epochs that were applied and logged, and take a checkpoint if one is due.

        Args:
            header: that of the last of these epochs. No epoch before it is a checkpoint.
            at_leisure: whether the instance has nothing else to do just now.
        """
        if not self._server.push(at_leisure):
            self._cursors.notify()
        self._subscriptions.advanced()
        if self.shipper is not None and self._tenure.takes_checkpoint(header):
            yield from self._take_checkpoint(self.shipper)
        self._act(TRIM_EPOCHS)
        self._tidy()
        self._slices()

    def _take_checkpoint(self, shipper: Shipper) -> Work[None]:
        """Take a checkpoint, once there is room for it."""
        with self._meter.meanwhile("blocked"):
            while shipper.crowded and not self._fate.stopping:
                yield Pause(WAIT_SECONDS, shipper.await_room, "unseen")
        wanted = self._tenure.next_checkpoint()
        shipper.put(self._tenure.capture(wanted, self._splits()), wanted)

    def _turn(self) -> Work[None]:
        """Let others that share the thread have their turn."""
        if self._shared is not None:
            self._meter.turn("idle")
            yield TURN
            self._meter.turn("busy")

    def _splits(self) -> Positions | None:
        return None if self.source is None else self.source.positions()

    def _await_input(self, machine: Instance) -> Work[None]:
        """Wait for pieces, and take those that have come. If none has, there is time to trim."""
        self._meter.turn("idle")
        items = yield Pause(WAIT_SECONDS, self._inbox.take, "by input")
        self._meter.turn("busy")
        self._receive(machine, items)
        if items is None:
            self._act()

    def _receive(self, machine: Instance, items: list[Item] | None) -> None:
        """Take pieces that have come."""
        for item in items or ():
            machine.receive(*item)

    def _is_near(self) -> bool:
        """Whether the slowest subscriber is near enough for the next epoch, and the work goes
        on."""
        return self._server.is_near() and not self._fate.stopping

    def _may_publish(self) -> Work[bool]:
        """Wait until the slowest subscriber is near enough for the next epoch. False when
        stopping."""
        seconds = self._pauses[0]
        with self._meter.meanwhile("blocked"):
            while not self._is_near() and not self._fate.stopping:
                yield Pause(seconds, self._await_near, "unseen")
                seconds = min(2 * seconds, self._pauses[1])
        return not self._fate.stopping

    def _await_near(self, seconds: float) -> None:
        if seconds:
            self._server.await_near(seconds)

    def _has_room(self) -> Work[bool]:
        """Wait, as a source, while its logs hold too much; False when stopping. Before it waits it
        has sent the epoch of a checkpoint, up to which the logs can be trimmed, so that no instance
        waits for it."""
        tenure, checkpoints = self._tenure, self._machine.checkpoints
        while checkpoints.newest > tenure.committed and self._crowded():
            if self._fate.stopping:
                return False
            with self._meter.meanwhile("blocked"):
                yield Pause(WAIT_SECONDS, self._inbox.take, "by input")
            self._act()
        return not self._fate.stopping

    def _crowded(self) -> bool:
        logs = self._machine.outlets.logs.values()
        return self.shipper is not None and sum(log.held for log in logs) > self._held_bytes

    def _act(self, most: int | None = None) -> None:
        """Act on requests and commits that came in. most: see `Outlets.trim`."""
        while not self._asked.empty():
            since, asked = self._asked.get()
            asked.set_result(self._tenure.changes_since(since, self._splits()))
        self._tenure.act(most)

    def _linger(self) -> Work[None]:
        """Work on after the last epoch until that is committed: until then consumers ask for the
        logs, and a sink is open. After that the last checkpoint may have to be stored again."""
        while not self._fate.stopping:
            self._act()
            if self._tenure.over:
                if self.teller is not None and not self._fate.done.is_set():
                    self.teller.drain()
                self._fate.done.set()
            if self.again and self.shipper is not None:
                self.again = False
                self.shipper.put(self.capture())
            yield from self._await_input(
                self._machine
            )  # nothing new, but checking mode compares it


def _nothing() -> None:
    """A shared thread tidies up for all of its instances, and stays prompt."""
