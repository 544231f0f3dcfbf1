"""A whole job of shells in this process: the controller's part is a loop over `decide`."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import raystream as rs
from raystream.actors.network.connections import Joining
from raystream.actors.network.subscription import Peer, Subscription
from raystream.actors.worker.shell import Role, Shell
from raystream.api.row_shapes import shape_of
from raystream.controller.planning.plans import make_plan
from raystream.controller.protocol.decide import Commit, JobView, Stop, decide
from raystream.dataflow.assignment import Assignment, Serving
from raystream.dataflow.pieces import Piece
from raystream.dataflow.plan import Edge, Plan
from raystream.dataflow.register import Boundaries, Boundary, HeldBoundary, Register
from raystream.dataflow.tenure import AfterRefusal
from raystream.errors import RaystreamError
from raystream.schema.types import KeyRange
from raystream.security.contexts import Certificates
from raystream.security.credentials import Credentials
from raystream.state.images.image import ImageHeader, decode
from raystream.state.images.image_store import Arrivals, ImageStore, Stored
from raystream.state.images.partition import by_parts
from raystream.state.tiers.row_folder import RowFolder, left_at
from tests.gates import LIMIT_SECONDS

TOKEN = "token"
POLL_SECONDS = 0.01


class Claims:
    """A register that threads share."""

    def __init__(self) -> None:
        self.register = Register()
        self.register.fill(1, Boundaries())
        self.lock = threading.Lock()

    def __call__(self, split: str, epoch: int, wanted: Boundary) -> HeldBoundary:
        with self.lock:
            held = self.register.claim(1, split, epoch, wanted)
        assert held is not None
        return held

    def all(self, epoch: int, wanted: Mapping[str, Boundary]) -> dict[str, HeldBoundary]:
        return {split: self(split, epoch, end) for split, end in wanted.items()}


class Shells:
    """The shells of a plan, subscribed to each other.

    Args:
        rows: where rows on disk lie, if the plan has some.
    """

    def __init__(
        self,
        plan: Plan,
        folder: Path | None = None,
        certificates: Certificates | None = None,
        rows: Path | None = None,
        **options: Any,
    ) -> None:
        self.plan = plan
        self._rows, self._numbers = rows, count(1)
        self.opened = 0
        """How many rows a shell has begun with that another one had left on disk."""
        self._shown = Credentials(TOKEN, certificates)
        self.claims = Claims()
        self.shells: list[Shell] = []
        self.images: ImageStore[tuple[memoryview, ...]] = ImageStore()
        self.arrivals: Arrivals[memoryview] = Arrivals()
        self.committed = 0
        self.paced_from: float | None = None
        self._folder = folder
        self._options = options
        for vertex, keys in plan.instances():
            index = plan.ranges[vertex.id].index(keys)
            self.shells.append(self._made(_role(vertex.id, keys, f"{vertex.name}/{index}", index)))
        self.assignment = Assignment(1, tuple(self._serving(s) for s in self.shells))
        for shell in self.shells:
            shell.assign(self.assignment)

    def _made(self, role: Role) -> Shell:
        own = None if self._folder is None else self._folder / role.name.replace("/", "-")
        role = role if self._rows is None else self._with_rows(self._rows, role)

        def ship(_: Any, header: ImageHeader, part: KeyRange, data: memoryview) -> bool:
            ended = header.input_position.ended
            base, oldest = header.base or None, header.oldest
            arrived = Stored(
                header.checkpoint,
                base,
                data,
                len(data),
                ended=ended,
                oldest=oldest,
                sender=role.name,
            )
            whole = self.arrivals.take(role.name, header.keys, part, arrived)
            return whole is None or self.images.store(role.vertex, header.keys, whole)

        shell = Shell(
            self.plan,
            role,
            credentials=self._shown,
            claim=self.claims,
            ship=ship,
            folder=own,
            **self._options,
        )
        shell.open()
        return shell

    def _with_rows(self, where: Path, role: Role) -> Role:
        """A role with a folder for rows; and with newer images only, if rows were left that these
        build on."""
        files = RowFolder.made(where, "run", str(next(self._numbers)))
        spec = self.plan.vertices[role.vertex].spec
        shape = None if spec is None else shape_of(spec)
        if shape is None or not role.committed:
            return replace(role, files=files)
        at = spec.name if spec else "", shape.fingerprint, role.keys, role.committed
        if found := left_at(where, "run", *at):
            files.take(found, self.plan.groups)
        if files.left is None:
            return replace(role, files=files)
        upto = files.left.upto(role.keys)
        chains = [[i for i in c if i.header.checkpoint > upto] or list(c[-1:]) for c in role.images]
        firsts = [c[0].header for c in chains]
        if not all(h.base == upto or h.checkpoint <= upto for h in firsts):
            files.left = None
            return replace(role, files=files)
        self.opened += sum(files.left.counts)
        return replace(role, files=files, images=chains)

    def _serving(self, shell: Shell) -> Serving:
        role = shell.role
        return Serving(role.vertex, role.keys, role.name, shell.address, first=role.committed + 1)

    def kill(self, shell: Shell) -> Shell:
        """End a shell as if its process had died, if it has not, and let another take its place."""
        if not shell.stopping:
            shell.stop()
        old, committed = shell.role, self.committed
        chains = dict(self.images.images(old.vertex, committed)) if committed else {old.keys: []}
        chain = [[decode(part) for part in s.data] for s in chains[old.keys]]
        images = tuple(tuple(c) for c in by_parts(chain)) if committed else ()
        name = f"{old.name}+"
        new = self._made(
            _role(old.vertex, old.keys, name, old.index, committed=committed, images=images)
        )
        self.assignment = self.assignment.replaced([old.name], [self._serving(new)])
        self.shells[self.shells.index(shell)] = new
        for other in self.shells:
            other.assign(self.assignment)
        new.start("run", self.paced_from)
        return new

    def of(self, name: str) -> list[Shell]:
        return [s for s in self.shells if s.vertex.name == name]

    def start(self, paced_from: float | None = None) -> None:
        self.paced_from = paced_from
        for shell in self.shells:
            shell.start("run", paced_from)

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something, without committing anything."""
        for _ in range(int(LIMIT_SECONDS / POLL_SECONDS)):
            if condition():
                return
            threading.Event().wait(POLL_SECONDS)
        raise TimeoutError([s.progress() for s in self.shells])

    def watch(self, each: Callable[[Shells], None] = lambda shells: None) -> None:
        """Commit cuts until the job has ended; `each` is called at every turn."""
        turns = int(LIMIT_SECONDS / POLL_SECONDS)
        for _ in range(turns):
            next((s for s in self.shells if not s.done.is_set()), self.shells[0]).done.wait(
                POLL_SECONDS
            )
            each(self)
            for command in decide(self.view()):
                if isinstance(command, Commit):
                    self.committed = command.epoch
                    for shell in self.shells:
                        shell.commit(command.epoch, command.epoch)
                elif isinstance(command, Stop):
                    if command.failed:
                        raise next(s.error for s in self.shells if s.error is not None)
                    return
        raise TimeoutError([s.progress() for s in self.shells])

    def view(self) -> JobView:
        failed = [(s.role.name, str(s.error)) for s in self.shells if s.error is not None]
        finished = {s.role.name for s in self.shells if s.done.is_set()}
        progress = tuple(s.progress() for s in self.shells)
        return JobView(
            progress=progress,
            dead=frozenset(),
            finished=frozenset(finished),
            failed=tuple(failed),
            committed=self.committed,
            checkpoint_every=self.plan.checkpoint_every,
        )


def _role(vertex: int, keys: KeyRange, name: str, index: int, **restored: Any) -> Role:
    return Role(vertex=vertex, keys=keys, name=name, index=index, **restored)


def edge_of(shell: Shell) -> Edge:
    """The first edge to which a shell sends."""
    return shell.vertex.outputs[0]


def first_of(shell: Shell) -> int:
    """The first epoch that the log of this edge has."""
    return shell.machine.outlets.logs[edge_of(shell).id].first


class Subscriber:
    """The instance of a subscription that is followed by a test: keeps what comes.

    Args:
        applied: the last epoch that it has applied; since: the epoch after which it asks, if that
            is another one.
    """

    inbox = None

    def __init__(self, applied: Callable[[], int], since: Callable[[], int] | None = None) -> None:
        self.applied = applied
        self.since = since or applied
        self.pieces: list[Piece] = []
        self.errors: list[BaseException] = []

    def deliver(self, edge: int, piece: Piece) -> None:
        self.pieces.append(piece)

    def refused(self, asked: int) -> AfterRefusal:
        return AfterRefusal.FAIL if self.applied() < asked else AfterRefusal.ASK_AGAIN

    def failed(self, error: BaseException) -> None:
        self.errors.append(error)

    def follow(
        self,
        edge: Edge,
        address: str,
        instance: str,
        token: str = TOKEN,
        certificates: Certificates | None = None,
    ) -> None:
        """Read a log to its end, or until that fails."""
        keys = KeyRange(0, 256)
        peer = Peer(
            edge=edge,
            address=address,
            instance=instance,
            keys=keys,
            joining=Joining(Credentials(token, certificates)),
        )
        subscription = Subscription(peer, self)
        subscription.start()
        subscription.join(LIMIT_SECONDS)


@contextmanager
def shells_of(
    flow: rs.Flow,
    *,
    checkpoint_every: int = 10,
    instances: dict[str, int] | None = None,
    check: bool = False,
    **options: Any,
) -> Iterator[Shells]:
    """Shells that are stopped in the end; the garbage collector is as it was before."""
    plan = make_plan(flow, instances=instances, checkpoint_every=checkpoint_every, check=check)
    plan.state_memory = 1 if options.get("rows") else None
    made = Shells(plan, **options)
    try:
        yield made
    finally:
        for shell in reversed(made.shells):  # a server waits for those who read from it
            shell.stop()
        gc.unfreeze()
        gc.enable()


def run_in_shells(flow: rs.Flow, **options: Any) -> None:
    """Run a flow to the end of its input.

    Raises:
        RaystreamError: what a shell failed with.
    """
    with shells_of(flow, **options) as shells:
        shells.start()
        shells.watch()


def error_of(flow: rs.Flow, **options: Any) -> RaystreamError:
    """What a flow fails with."""
    try:
        run_in_shells(flow, **options)
    except RaystreamError as error:
        return error
    raise AssertionError("the job did not fail")
