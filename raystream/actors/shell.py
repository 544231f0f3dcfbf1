"""An instance as a process runs it: machine, server, subscriptions, one compute thread.

Subscriptions put pieces into an inbox; the compute thread alone touches the machine. It knows
nothing of Ray, so that a test can run a whole job of shells in one process.
"""

from __future__ import annotations

import gc
import queue
import threading
import time
import traceback
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from raystream.actors.inbox import Inbox
from raystream.actors.metering import Meter
from raystream.actors.reading import Claim, SourceReader
from raystream.actors.server import Cursors, LogServer
from raystream.actors.shipping import PART_BYTES, Ship, Shipper
from raystream.actors.subscription import Subscription
from raystream.actors.turns import Turns
from raystream.controller.report import progress_of, sink_context
from raystream.dataflow.instance import Instance, SourceInstance
from raystream.dataflow.pieces import Header, Piece
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.routing import catching_up, readers, reads
from raystream.dataflow.snapshot import (
    Captured,
    advance,
    capture,
    install,
    next_wanted,
    settled,
    sizes_of,
    view_with,
)
from raystream.dataflow.warming import warm_vertex
from raystream.errors import (
    InternalError,
    JobError,
    OperatorError,
    RaystreamError,
    exited,
    user_traceback,
)
from raystream.schema.types import KeyRange, SinkContext
from raystream.state.assignment import Assignment
from raystream.state.chain import FULL, Wanted
from raystream.state.checkpoint import WHOLE
from raystream.state.image import Image
from raystream.state.log import EpochLog
from raystream.state.spill import DiskSpill

AHEAD = 8
"""Epochs that a producer may be ahead of what its slowest subscriber was served, and that a
subscription may be ahead of what was applied."""
LOG_BYTES = 1 << 30
"""Memory that the logs of one instance may take before they spill to disk."""
HELD_BYTES = 16 << 30
"""What the logs of a source may hold in all, or a cut if that is more, before it stops reading."""
WAIT_SECONDS = 0.5
TRIM_EPOCHS = 32
"""Epochs of each log that are dropped between two others: thousands at once take milliseconds."""
DELIVER_SECONDS = 30.0
"""How long may pass until an epoch ends, so that what is known then can be delivered."""
GC_SECONDS = 2.0
GC_ALL_SECONDS = 900.0
GC_ALL_SHARE = 2000
"""A full collection of the garbage comes again after so many seconds, or after so many times what
it took, if that is longer."""


@dataclass(frozen=True, slots=True)
class Role:
    """What an instance is to be.

    name: its identity, never used again. floor: the cut from which it goes on, 0 at the beginning;
    images: per part of its range those that are needed, up to that cut.
    """

    vertex: int
    keys: KeyRange
    name: str
    index: int
    floor: int = 0
    images: tuple[tuple[Image, ...], ...] = ()


class Shell:
    """Runs one instance.

    Args:
        claim: asks the boundary register. ship: stores an image with a keeper.
        folder: where logs spill to when they take more than `log_bytes`.

    address: where its logs are served. error: why it stopped, if it failed.
    """

    def __init__(
        self,
        plan: Plan,
        role: Role,
        *,
        token: str,
        host: str = "127.0.0.1",
        claim: Claim | None = None,
        ship: Ship | None = None,
        folder: Path | None = None,
        log_bytes: int = LOG_BYTES,
        held_bytes: int = HELD_BYTES,
    ) -> None:
        self.plan = plan
        self.role = role
        self.vertex: Vertex = plan.vertices[role.vertex]
        self.keys = role.keys
        self.token = token
        self.error: RaystreamError | None = None
        self.stopping = False
        self.meter = Meter()
        self.done = threading.Event()
        self.machine: SourceInstance | Instance
        self._source: SourceReader | None = None
        if self.vertex.kind == "source":
            self.machine = SourceInstance(plan, self.vertex, role.keys)
        else:
            self.machine = Instance(plan, self.vertex, role.keys, self.vertex.sink)
        self._make_logs(folder, log_bytes)
        self._held_bytes = held_bytes
        self._turns = Turns()  # of who computes and of who copies a checkpoint
        view_with(self._turns, self.machine)
        standing = install(self.machine, role.images, role.floor) if role.images else None
        self._sizes = sizes_of(role.images)
        self.role = replace(role, images=())  # their memory is the store's
        self._standing = standing
        self._claim = claim
        self.cursors = Cursors()
        outlets = self.machine.outlets
        outlets.guard = self.cursors.changed
        self.server = LogServer(host, token, outlets, self.cursors)
        self.address = self.server.address
        self._shipper: Shipper | None = None
        if ship is not None:
            most = PART_BYTES if plan.durable is None else WHOLE
            self._shipper = Shipper(ship, role.floor, self._fail, self._captured, most)
        self._inbox = Inbox(lambda: self.machine.position + AHEAD)
        self._room = threading.Condition()
        self._subscriptions: dict[tuple[int, str], Subscription] = {}
        self._version = 0
        self._control = threading.Lock()
        self._thread = threading.Thread(target=self._guarded, name="compute", daemon=True)
        self._commits: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self._asked: queue.SimpleQueue[tuple[int, Future[Captured | None]]] = queue.SimpleQueue()
        self._again = False
        self._context: SinkContext | None = None
        self._floor = role.floor
        self._shown = 0  # who was here before may have died before it heard of a commit
        self._trimmed = True  # the logs, up to the floor
        self._over = False
        self._cpu = time.process_time()
        self._ended_at: float | None = None

    def _make_logs(self, folder: Path | None, log_bytes: int) -> None:
        budget = log_bytes // max(1, len(self.vertex.outputs))
        for e in self.vertex.outputs:
            spill = None if folder is None else DiskSpill(folder / str(e.id), e.schema)
            log: EpochLog[Header] = EpochLog(budget=budget, spill=spill)
            log.next = self.role.floor + 1
            self.machine.outlets.logs[e.id] = log

    # ------------------------------------------------------------ control

    def open(self) -> None:
        """Load references and compiled functions; of a source, begin to read."""
        if isinstance(self.machine, SourceInstance):
            role, taken = self.role, max(self.role.floor, self.machine.position)
            self._source = SourceReader(
                self.plan, self.vertex, role.keys, self._claim,
                taken=taken, meter=self.meter,
                positions=None if self._standing is None else self._standing.splits,
                ended=self._standing is not None and self._standing.ended,
            )  # fmt: skip
        for _ in warm_vertex(self.plan, self.vertex):
            pass
        self.machine.open()

    def advance(self, delta: Image) -> None:
        """Take from an owner what has changed since the floor; before `open`."""
        advance(self.machine, delta)
        self._standing = delta.header.standing

    def delivery(self, since: int) -> Image | None:
        """What has changed since a cut, up to the epoch that is ended next; None if nothing has.

        Raises:
            JobError: no epoch ended in time.
        """
        asked = Future[Captured | None]()
        self._asked.put((since, asked))
        self._inbox.put(None)
        try:
            captured = asked.result(DELIVER_SECONDS)
        except TimeoutError:
            raise JobError(f"{self.role.name} ended no epoch in {DELIVER_SECONDS:g} s") from None
        return None if captured is None else captured.image()

    def assign(self, assignment: Assignment) -> None:
        """Follow the newest assignment: subscribe to all who serve what is read here, and serve
        nobody but those who are named in it. Older assignments are ignored."""
        with self._control:
            if assignment.version <= self._version or self.stopping:
                return
            self.machine.cuts.ask(assignment.cuts)  # before it says that it was told
            self._version = assignment.version
            self.cursors.expect(
                readers(self.vertex, assignment, self.role.floor),
                catching_up(self.vertex, assignment),
            )
            self.server.end_others()
            wanted = reads(self.vertex, assignment)
            for gone in set(self._subscriptions) - set(wanted):
                self._subscriptions.pop(gone).stop()
            for name in set(wanted) - set(self._subscriptions):
                edge, serving = wanted[name]
                self._subscriptions[name] = Subscription(
                    edge,
                    serving.address,
                    self.token,
                    self.role.name,
                    self.keys,
                    lambda: self.machine.position,
                    self._deliver,
                    self._missed,
                    (lambda: self._floor) if self.plan.check else None,
                    serving.first,
                    self._inbox,
                )
                self._subscriptions[name].start()

    def start(self, run: str, paced_from: float | None) -> None:
        """Begin to work, once. paced_from: the Unix time at which a paced source releases its
        origin."""
        if self.begun:
            return
        floor = self.role.floor
        if isinstance(self.machine, Instance):
            floor = self.machine.goes_on_from(floor)
        self._context = sink_context(
            self.plan, self.vertex, self.keys, run, paced_from, floor, self._version
        )
        if self._source is not None:
            self._source.paced_from = paced_from
        self._cpu = time.process_time()
        self.meter.begin()
        self._thread.start()

    @property
    def begun(self) -> bool:
        """Whether it was started."""
        return self._context is not None

    def commit(self, epoch: int, shown: int) -> None:
        """The cut at `epoch` is committed: trim up to it, on the compute thread. A sink may show
        what it wrote up to `shown`."""
        self._commits.put((epoch, shown))
        self._inbox.put(None)

    def store_with_others(self, *, whole: bool) -> None:
        """Others hold the checkpoints from now on: the next one is full, and if none is to come,
        the last one is taken again.

        Args:
            whole: they hold all of that with which this instance has just begun: the next one is a
                delta on it.
        """
        if self._shipper is None:
            return
        if whole and not self.machine.ended:
            self._shipper.chain.continues(self._sizes)
            return
        self._shipper.chain.restart()
        self._again = self.machine.ended
        self._inbox.put(None)

    def stop(self) -> None:
        """End all threads and the server."""
        self.stopping = True
        if self._source is not None:
            self._source.stop()
        self.cursors.stop()
        with self._control:
            for subscription in self._subscriptions.values():
                subscription.stop()
        with self._room:
            self._room.notify_all()
        self._inbox.put(None)
        if self._shipper is not None:
            self._shipper.stop()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(5.0)
        if not self._thread.is_alive():
            self._inbox.close()
        self.server.shutdown()

    def progress(self) -> Any:
        """What this instance has done so far."""
        shipper = self._shipper
        return progress_of(
            self.machine,
            self.role.index,
            name=self.role.name,
            stored=None if shipper is None else shipper.chain.stored,
            version=self._version,
            floor=self._floor,
            shown=self._shown,
            closed=self._closed(),
            cpu=time.process_time() - self._cpu,
            ended_at=self._ended_at,
            image=(0, 0.0) if shipper is None else shipper.last,
            row_bytes=0.0 if shipper is None else shipper.chain.row_bytes,
            spent=self.meter.spent(),
        )

    def _closed(self) -> bool:
        return self.vertex.kind != "sink" or self._over

    # ------------------------------------------------------------ subscriptions' threads

    def _deliver(self, edge: int, piece: Piece) -> None:
        """Hand a piece to the compute thread; waits while it is too far ahead of what was applied.

        The next epoch that the instance needs is always admitted.
        """
        if piece.header.epoch > self.machine.position + AHEAD:
            with self._room:
                while piece.header.epoch > self.machine.position + AHEAD and not self.stopping:
                    self._room.wait(WAIT_SECONDS)
        self._inbox.put((edge, piece))

    def _missed(self, error: BaseException) -> None:
        """A subscription cannot go on. Who has ended needs nothing more: what a range that was
        moved at its end says once more may be trimmed by then."""
        if not self.machine.ended:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if not self.stopping and self.error is None:
            self.error = ours(error)
            self.done.set()

    # ------------------------------------------------------------ the compute thread

    def _guarded(self) -> None:
        gc.disable()
        self.meter.turn("busy")
        try:
            if self._source is not None:
                self._run_source(self._source)
            else:
                self._run_operator()
        except BaseException as error:
            self._fail(error)
        finally:
            self.meter.turn("idle")
            self.done.set()

    def _run_source(self, source: SourceReader) -> None:
        assert isinstance(self.machine, SourceInstance)
        tidy = _Tidy()
        while not self.stopping and not self.machine.ended:
            taken = source.take(self.machine.position + 1, lambda: self.stopping)
            if taken is None or not self._has_room() or not self._may_publish():
                break
            self._published(self.machine.publish(taken), at_leisure=source.waited)
            tidy()
        self._ended_at = time.time()
        self._linger()

    def _run_operator(self) -> None:
        machine = self.machine
        assert isinstance(machine, Instance) and self._context is not None
        machine.open_sink(self._context)
        tidy = _Tidy()
        while not self.stopping and not machine.ended:
            self._receive(machine)
            while machine.ready() and self._may_publish():
                with self._turns:
                    header = machine.step()
                idle = self._inbox.empty and not machine.ready()
                self._published(header, at_leisure=idle)
                tidy()
                self._receive(machine, 0.0)
        self._ended_at = time.time()
        self._linger()

    def _published(self, header: Header, at_leisure: bool) -> None:
        """An epoch was applied and logged: have it sent; take a checkpoint at a cut.

        Args:
            at_leisure: there is nothing else to do at once.
        """
        if not self.server.push(at_leisure):
            self.cursors.notify()
        with self._room:
            self._room.notify_all()
        if (header.cut or header.ended) and self._shipper is not None:
            with self.meter.meanwhile("blocked"):
                self._shipper.await_room()
            wanted = next_wanted(self.machine, self._shipper.chain)
            self._shipper.put(self._captured(wanted), wanted)
        self._trim(TRIM_EPOCHS)

    def _captured(self, wanted: Wanted = FULL) -> Captured:
        positions = None if self._source is None else self._source.positions()
        table = f"{self.role.name}@{self.role.floor}"  # another run may use the name again
        return capture(self.machine, wanted, splits=positions, table=table)

    def _receive(self, machine: Instance | SourceInstance, seconds: float = WAIT_SECONDS) -> None:
        """Take what has come; waits so long for something, in which case more can be trimmed."""
        if seconds:
            with self.meter.meanwhile("idle"):
                items = self._inbox.take(seconds)
        elif (items := self._inbox.take(seconds)) is None:
            return
        for item in items or ():
            if isinstance(machine, Instance):
                machine.receive(*item)
        self._trim(None if items is None else TRIM_EPOCHS)

    def _may_publish(self) -> bool:
        """Wait until the slowest subscriber is near enough; False when stopping."""
        cursors, machine = self.cursors, self.machine
        if machine.position < cursors.slowest() + AHEAD:
            return not self.stopping
        with self.meter.meanwhile("blocked"), cursors.changed:
            while machine.position >= cursors.slowest() + AHEAD and not self.stopping:
                cursors.changed.wait(WAIT_SECONDS)
        return not self.stopping

    def _has_room(self) -> bool:
        """Wait, as a source, while its logs hold too much; False when stopping.

        It has sent a cut by then, at which they can be trimmed: others must not wait for it.
        """
        every = self.plan.cut_every
        while self.machine.position // every > self._floor // every and self._crowded():
            if self.stopping:
                return False
            with self.meter.meanwhile("blocked"):
                self._inbox.take(WAIT_SECONDS)
            self._trim()
        return not self.stopping

    def _crowded(self) -> bool:
        logs = self.machine.outlets.logs.values()
        return self._shipper is not None and sum(log.held for log in logs) > self._held_bytes

    def _hand_out(self) -> None:
        """Copy what was asked for, between two epochs."""
        while not self._asked.empty():
            since, asked = self._asked.get()
            changed = self.machine.position > since
            asked.set_result(self._captured(Wanted(since)) if changed else None)

    def _trim(self, most: int | None = None) -> None:
        """Act on requests and commits that came in. `most`: see `Outlets.trim`."""
        self._hand_out()
        machine, floor, shown = self.machine, self._floor, self._shown
        while not self._commits.empty():
            epoch, upto = self._commits.get()
            floor, shown = max(floor, epoch), max(shown, upto)
        if floor > self._floor:
            self._floor, self._trimmed = floor, False
            settled(machine, floor)
        if not self._trimmed:
            self._trimmed = machine.commit(floor, most)
        if shown > self._shown:
            self._shown = shown
            if isinstance(machine, Instance) and not self._over:  # or it was closed
                machine.show(shown)
        last = shown if self.vertex.kind == "sink" else floor
        if not self._over and machine.ended and last >= machine.position:
            if isinstance(machine, Instance):
                machine.close_sink()
            self._over = True

    def _linger(self) -> None:
        """Who has ended has work until its last epoch is committed: its log is asked for until
        then, and a sink is open. After that it may have to store its last checkpoint again."""
        while not self.stopping:
            self._trim()
            if self._over:
                self.done.set()
            if self._again and self._shipper is not None:
                self._again = False
                self._shipper.put(self._captured())
            self._receive(self.machine)  # nothing new, but checking mode compares it


class _Tidy:
    """The cyclic garbage collector runs between epochs, now and then.

    It looks at young objects only: what was there at the start is frozen, and rows of state hold no
    cycles. A full collection would stop the flow for as long as it takes to walk over all of them:
    0.1 s for what is imported alone, so there is none at the start either. The collector was on
    until then and left nothing to find. What grew old meanwhile is looked at now and then, the more
    seldom the longer that takes.
    """

    def __init__(self) -> None:
        gc.freeze()
        self.at = time.monotonic()
        self.all_at = self.at + GC_ALL_SECONDS

    def __call__(self) -> None:
        now = time.monotonic()
        if now - self.at > GC_SECONDS:
            gc.collect(2 if now > self.all_at else 1)
            self.at = time.monotonic()
            if now > self.all_at:
                self.all_at = self.at + max(GC_ALL_SECONDS, GC_ALL_SHARE * (self.at - now))


def ours(error: BaseException) -> RaystreamError:
    """An error that can be sent to the submitter: ours as it is, another as a bug of ours."""
    if isinstance(error, RaystreamError):
        cause = error.__cause__ if isinstance(error, OperatorError | JobError) else None
        if cause is not None and (told := user_traceback(cause)):
            error.add_note(told)
        return error
    if isinstance(error, SystemExit):
        return exited(error)
    bug = InternalError(f"{type(error).__name__}: {error}")
    bug.add_note("".join(traceback.format_exception(error)).rstrip())
    return bug
