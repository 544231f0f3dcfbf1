"""An instance as a process runs it: its machine and tenure, and the threads around them.

Subscriptions put pieces into an inbox; the compute thread alone touches the machine; a server sends
what it logs; a shipper stores its checkpoints. A shell knows nothing of Ray, so that a test can run
a whole job of shells in one process.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from raystream.actors.network.connections import Joining
from raystream.actors.network.flow_control import AHEAD
from raystream.actors.network.inbox import Inbox
from raystream.actors.network.server import Cursors, LogServer
from raystream.actors.worker.answering import answering
from raystream.actors.worker.busy_meter import Meter
from raystream.actors.worker.compute_loop import ComputeLoop
from raystream.actors.worker.driving.fair_lock import Turns
from raystream.actors.worker.driving.shared_thread import SharedInbox, SharedThread
from raystream.actors.worker.fate import Fate
from raystream.actors.worker.reading import Claim, CommitTeller, SourceReader
from raystream.actors.worker.register_client import Claimer, RegisterKeeping
from raystream.actors.worker.shipping import PART_BYTES, Ship, Shipper
from raystream.actors.worker.subscriptions import Subscriptions
from raystream.actors.worker.warmup import CodeLoader
from raystream.api.connectors import hears_commits
from raystream.dataflow.assignment import Assignment
from raystream.dataflow.instances.asking import AskingInstance
from raystream.dataflow.instances.base import Instance
from raystream.dataflow.instances.making import made_instance
from raystream.dataflow.pieces import Header
from raystream.dataflow.plan import Plan, Vertex
from raystream.dataflow.progress import Progress, marks_of
from raystream.dataflow.snapshot import Captured, view_with
from raystream.dataflow.tenure import Storing, Tenure
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.dataflow.warming import warm_vertex
from raystream.errors import JobError, RaystreamError
from raystream.local.asking import Asker
from raystream.native.memory import memory_use
from raystream.schema.types import Directory, KeyRange, LocalDirectory, SourceContext
from raystream.security.credentials import Credentials
from raystream.state.images.image import Image
from raystream.state.log.epoch_log import EpochLog
from raystream.state.log.spill import DiskSpill
from raystream.state.tables.backend import WHOLE
from raystream.state.tiers.row_folder import LeftRows, RowFolder

LOG_BYTES = 1 << 30
"""Memory that the logs of one instance may take before they spill to disk."""
HELD_BYTES = 16 << 30
"""What the logs of a source may hold in all, or one checkpoint if that is more, before it stops
reading."""
DELIVER_SECONDS = 30.0
"""How long may pass until an epoch ends, so that what is known then can be delivered."""
JOIN_SECONDS = 5.0
"""How long a shell that stops waits for its compute thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What an instance is to be."""

    vertex: int
    """The id of its vertex."""
    keys: KeyRange
    """Its range."""
    name: str
    """The name of the instance, which is never used again."""
    index: int
    """Its index among the instances of its vertex."""
    committed: int = 0
    """The checkpoint from which it goes on; 0 at the beginning."""
    images: Iterable[Sequence[Image]] = ()
    """For each part of its range the images that are needed, up to that checkpoint; gone through
    once."""
    holders: Collection[Any] = frozenset()
    """The keepers that hold images of exactly this range, up to that checkpoint, as far as is known
    when the images were gone through."""
    files: RowFolder | None = None
    """Where rows lie that memory has no room for; if some were left there, the images are newer."""
    version: CodeVersion | None = None
    """The version of the code with which it begins; None for the one that the job began with."""

    @property
    def left(self) -> LeftRows | None:
        """The rows with which it begins."""
        return None if self.files is None else self.files.left


class Shell:
    """Runs one instance.

    Args:
        credentials: what this instance shows to others, and asks them to show.
        host: the address at which other machines reach this one.
        claim: asks the boundary register, for a source that is cut by arrival.
        ship: stores a part of an image with the keepers. None: no checkpoints are taken.
        directory: what the instances of a source tell each other.
        folder: where logs are spilled when they take more than `log_bytes`.
        held_bytes: see `HELD_BYTES`.
        shared: the thread that works for this instance and for others. None: it has one of its own.
    """

    def __init__(
        self,
        plan: Plan,
        role: Role,
        *,
        credentials: Credentials,
        host: str = "127.0.0.1",
        claim: Claim | None = None,
        ship: Ship | None = None,
        directory: Directory | None = None,
        folder: Path | None = None,
        log_bytes: int = LOG_BYTES,
        held_bytes: int = HELD_BYTES,
        shared: SharedThread | None = None,
    ) -> None:
        self.plan, self.keys = plan, role.keys
        self.vertex: Vertex = plan.vertices[role.vertex]
        self.fate, self.meter, self.cursors, turns = Fate(), Meter(), Cursors(), Turns()
        self.machine = _machine(plan, self.vertex, role, folder, log_bytes)
        self.machine.outlets.guard = self.cursors.lock
        self.tenure: Tenure[Any] = Tenure(
            self.machine,
            role.name,
            index=role.index,
            committed=role.committed,
            chains=role.images or None,
            storing=Storing(
                role.committed,
                ships=ship is not None,
                holders=role.holders,
                guard=threading.Lock(),
            ),
            left=role.left,
        )
        self.role = replace(role, images=())  # their memory is the store's
        self._joining = joining = Joining(credentials)
        self.server = LogServer(host, joining, self.machine.outlets, self.cursors)
        self._shared, self.inbox = shared, self._made_inbox(shared)
        self._subscriptions = Subscriptions(self.tenure, self.fate, self.inbox, joining, shared)
        self._loop = ComputeLoop(
            self.tenure,
            fate=self.fate,
            meter=self.meter,
            turns=turns,
            inbox=self.inbox,
            subscriptions=self._subscriptions,
            server=self.server,
            cursors=self.cursors,
            held_bytes=held_bytes,
            shared=shared,
        )
        self._follow_versions(turns)
        self.server.look_up = answering(self.tenure, self.fate, turns, self._loop)
        if ship is not None:
            most = PART_BYTES if plan.durable is None else WHOLE
            storing, loop = self.tenure.storing, self._loop
            loop.shipper = Shipper(ship, storing, self.fate.fail, loop.capture, most)
        self._claim = claim
        self._host, self._directory = host, directory or LocalDirectory()
        self._control = threading.Lock()

    def _made_inbox(self, shared: SharedThread | None) -> Inbox | SharedInbox:
        if shared is None:
            return Inbox(lambda: self.machine.position + AHEAD)
        shared.servers[self.address] = self.server
        return shared.inbox()

    def _follow_versions(self, turns: Turns) -> None:
        """Let the instance go over to other code, once this process has it."""
        machine = self.machine
        view_with(turns, machine)
        machine.swapping = turns
        machine.upgraded.append(lambda: view_with(turns, machine))
        wake = partial(self.inbox.put, None)
        loader = CodeLoader(machine, lambda: self.begun, wake, self.fate.fail)
        self.tenure.get_code = loader.get

    @property
    def address(self) -> str:
        """The address at which the instance serves its logs, "HOST:PORT"."""
        return self.server.address

    @property
    def done(self) -> threading.Event:
        """The work is done, or has failed."""
        return self.fate.done

    @property
    def error(self) -> RaystreamError | None:
        """Why it stopped, if it failed."""
        return self.fate.error

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self.fate.stopping

    # ------------------------------------------------------------ its beginning

    def open(self) -> None:
        """Load references and compiled functions; of a source, begin to read."""
        if self.vertex.kind == "source":
            input_position = self.tenure.input_position
            if hears_commits(self.vertex.source):
                self._loop.teller = CommitTeller(self.vertex.source, self.vertex.name)
                self.tenure.tell = self._loop.teller
            self._loop.source = SourceReader(
                self.plan,
                self.vertex,
                self.keys,
                self._claim,
                self.inbox,
                taken=max(self.tenure.begun, self.machine.position),
                meter=self.meter,
                positions=None if input_position is None else input_position.splits,
                ended=input_position is not None and input_position.ended,
                writer=self.role.name,
                owns=lambda: self.tenure.owns,
            )
        for _ in warm_vertex(self.plan, self.machine.vertex):
            pass
        self.machine.open()

    def advance(self, delta: Image) -> None:
        """Take from the owner of the range what has changed since the committed checkpoint; before
        `open`."""
        self.tenure.advance(delta)

    def start(self, run: str, paced_from: float | None) -> None:
        """Begin to work, once. paced_from: the Unix time at which a paced source releases its
        origin."""
        if self.begun:
            return
        context = self.tenure.sink_context(run, paced_from)
        if self._loop.source is not None:
            self._loop.source.paced_from = paced_from
            at = SourceContext(
                run, self.vertex.name, self._host, True, self._directory, self._joining.certificates
            )
            try:
                self.vertex.source.open(at)
            except BaseException as error:
                self.fate.fail(error)
        if isinstance(self.machine, AskingInstance):
            asks = partial(self._ask, self.machine, run)
            asks()
            self.machine.upgraded.append(asks)
        self.meter.begin()
        self._loop.start(context)

    def _ask(self, machine: AskingInstance, run: str) -> None:
        """Ask the world with the code that the instance runs now. Whatever was asked before is
        answered."""
        assert isinstance(self._claim, Claimer)
        before = self._loop.asker
        keeping = RegisterKeeping(self._claim, machine.names, lambda: self.tenure.owns)
        self._loop.asker = Asker(machine, keeping, run, lambda: self.inbox.put(None))
        if before is not None:
            before.stop()
            self.inbox.put(None)  # what has come may be asked now

    @property
    def begun(self) -> bool:
        """Whether it was started."""
        return self._loop.context is not None

    # ------------------------------------------------------------ control

    def assign(self, assignment: Assignment) -> None:
        """Follow the newest assignment: subscribe to all instances that serve what is read here,
        and serve only those that are named in it. Older assignments are ignored."""
        with self._control:
            routes = None if self.stopping else self.tenure.assign(assignment)
            if routes is not None:
                self.cursors.expect(routes.readers, routes.candidates)
                self.server.end_others()
                self._subscriptions.follow(routes.reads)
                self.inbox.put(None)

    def commit(self, epoch: int, published_upto: int) -> None:
        """The checkpoint at `epoch` is committed, and a sink may publish what it wrote up to
        `published_upto`. The compute thread acts on it soon."""
        self.tenure.commit(epoch, published_upto)
        self.inbox.put(None)

    def kept_by(self, keepers: tuple[Any, ...], number: int) -> None:
        """These keepers hold its checkpoints from now on, the choice `number`."""
        if self.tenure.kept_by(keepers, number):
            self._loop.again = True
            self.inbox.put(None)

    def delivery(self, since: int) -> Image | None:
        """What has changed since a checkpoint, up to the epoch that is ended next; None if nothing
        has.

        Raises:
            JobError: no epoch ended in time.
        """
        asked: Future[Captured | None] = self._loop.changes_since(since)
        try:
            captured = asked.result(DELIVER_SECONDS)
        except TimeoutError:
            raise JobError(f"{self.role.name} ended no epoch in {DELIVER_SECONDS:g} s") from None
        return None if captured is None else captured.image()

    def progress(self, *, view: int = 0, unstored: str = "") -> Progress:
        """What this instance has done so far. The arguments are fields of `Progress`."""
        shipper = self._loop.shipper
        return self.tenure.progress(
            cpu=self._loop.cpu(),
            ended_at=self._loop.ended_at,
            image=(0, 0.0) if shipper is None else shipper.last,
            spent=self.meter.spent(),
            view=view,
            unstored=unstored,
            memory=memory_use(),
            marks=marks_of(self._loop.marks.newest()),
        )

    def stop(self) -> None:
        """End all threads and the server."""
        self.fate.stopping = True
        if self._loop.source is not None:
            self._loop.source.stop()
            if self.begun:
                self.vertex.source.close()
        if self._loop.asker is not None:
            self._loop.asker.stop()
        self.cursors.stop()
        with self._control:
            self._subscriptions.stop()
        self.inbox.put(None)
        if self._loop.shipper is not None:
            self._loop.shipper.stop()
        if self._loop.join(JOIN_SECONDS):
            self.inbox.close()
        if self._shared is not None:
            self._shared.servers.pop(self.address, None)
        self.server.shutdown()


def _machine(
    plan: Plan, vertex: Vertex, role: Role, folder: Path | None, log_bytes: int
) -> Instance:
    """The machine of an instance, whose logs spill into a folder if there is one."""
    machine = made_instance(plan, vertex, role.keys, role.version)
    if role.files is not None and machine.table is not None:
        machine.table.keep_in(role.files)
    budget = log_bytes // max(1, len(vertex.outputs))
    for e in vertex.outputs:
        spill = None if folder is None else DiskSpill(folder / str(e.id), e.schema)
        log: EpochLog[Header] = EpochLog(budget=budget, spill=spill)
        machine.outlets.logs[e.id] = log
    return machine
