"""Reads the edges of a running job as a guest: one for whom nobody waits, and for whom nothing is
kept. So the job does not notice.

It begins after the committed checkpoint: it subscribes first, and then fetches the images of that
checkpoint. If the job commits a newer one before the images are there, it begins again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import RayError

from raystream.actors.client.changing import ChangedJob, changed_job
from raystream.actors.control.actor_names import CONTROLLER, actor
from raystream.actors.control.answers import RunningCode
from raystream.actors.control.state_routes import StateRoutes
from raystream.actors.keepers.fetching import NotHeldError, fetch
from raystream.actors.network.connections import Joining
from raystream.actors.network.subscription import Peer, Subscription
from raystream.controller.protocol.recovery import Place
from raystream.dataflow.assignment import Assignment, Serving
from raystream.dataflow.pieces import Piece
from raystream.dataflow.plan import Edge, Plan
from raystream.dataflow.tenure import AfterRefusal
from raystream.dataflow.upgrading.versions import begins_of, version_at
from raystream.errors import ConfigError, JobError
from raystream.local.forking import EdgeFeed, Images, fed_edges
from raystream.local.rereading import is_read_again
from raystream.schema.types import KeyRange

LOOK_SECONDS = 0.3
"""How often the controller is asked where the edges are served."""
CALL_SECONDS = 5.0
CHECKPOINT_SECONDS = 120.0
"""How long a fork waits for a checkpoint with which it can begin."""
AHEAD_BYTES = 64 << 20
"""What is read of an edge before it is needed. A fork that is further behind reads no more; what
the job trims meanwhile it cannot have."""


class LiveEdges:
    """The edges of a running job, from its committed checkpoint on. It has threads; `stop` ends
    them.

    Args:
        name: of the fork.
        plan: of the flow that the job runs.
        number: of the version of the code that it runs.
        first: where the edges are, and the committed checkpoint.
        routes: asks for the same again; None while the controller does not answer.
    """

    def __init__(
        self,
        name: str,
        plan: Plan,
        number: int,
        first: StateRoutes,
        routes: Callable[[], StateRoutes | None],
    ) -> None:
        self.checkpoint = first.committed
        """The checkpoint with which it begins."""
        self._name, self._edges = name, [plan.edges[e] for e in fed_edges(plan)]
        self._whole = KeyRange(0, plan.groups)
        self._feed = EdgeFeed([e.id for e in self._edges], plan.groups, first.committed, number)
        self._number, self._routes = number, routes
        self._joining = Joining(first.credentials)
        self._changed = threading.Condition()
        self._stopping = False
        self._error: BaseException | None = None
        self._open: dict[tuple[int, str], Subscription] = {}
        self._follow(first.assignment)
        self._watcher = threading.Thread(target=self._watch, name="routes", daemon=True)
        self._watcher.start()

    def begin(self, ended: Callable[[int], list[Piece]]) -> None:
        """Begin to complete epochs. ended: by edge which ranges of its producer had ended by the
        checkpoint."""
        with self._changed:
            for edge in self._edges:
                self._feed.begin(edge.id, ended(edge.id))

    def next(self, seconds: float) -> list[tuple[int, Piece]]:
        """The pieces of the next epochs. Waits up to so long for some.

        Raises:
            JobError: there is no next epoch: the job was upgraded, or has trimmed it.
        """
        due = time.monotonic() + seconds
        with self._changed:
            while True:
                if found := self._feed.next():
                    self._changed.notify_all()
                    return found
                if self._error is not None:
                    raise self._error
                left = due - time.monotonic()
                if left <= 0 or self._feed.finished:
                    return []
                self._changed.wait(left)

    @property
    def finished(self) -> bool:
        """Whether the end of the input was taken."""
        with self._changed:
            return self._feed.finished

    def stop(self) -> None:
        """End all threads. Afterwards none of them asks the controller: this process may leave the
        cluster, and Ray would start another one for a call."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._watcher.join(2 * CALL_SECONDS)
        for subscription in self._open.values():
            subscription.stop()

    # ------------------------------------------------------------ its threads

    def _watch(self) -> None:
        """Follow the assignment."""
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._stopping, LOOK_SECONDS):
                    return
            routes = self._routes()
            if routes is None:
                continue
            newest = max((v.number for v in routes.assignment.settled), default=0)
            if newest != self._number:
                self.failed(JobError("the job has gone over to other code", hint="Fork it again."))
                return
            self._follow(routes.assignment)

    def _follow(self, assignment: Assignment) -> None:
        wanted: dict[tuple[int, str], tuple[Edge, Serving]] = {
            (edge.id, s.instance): (edge, s)
            for edge in self._edges
            for s in assignment.of(edge.producer)
        }
        for gone in set(self._open) - set(wanted):
            self._open.pop(gone).stop()
        for at in set(wanted) - set(self._open):
            edge, serving = wanted[at]
            peer = Peer(
                edge=edge,
                address=serving.address,
                joining=self._joining,
                instance=self._name,
                keys=self._whole,
                first=serving.first,
                guest=True,
            )
            self._open[at] = Subscription(peer, _Guest(self, edge.id))
            self._open[at].start()

    def reached(self, edge: int) -> int:
        """See `EdgeFeed.reached`."""
        with self._changed:
            return self._feed.reached(edge)

    def deliver(self, edge: int, piece: Piece) -> None:
        """Take a piece; waits while much of its edge was not taken."""
        with self._changed:
            while self._feed.held(edge) > AHEAD_BYTES and not self._stopping:
                self._changed.wait(LOOK_SECONDS)
            self._feed.receive(edge, piece)
            self._changed.notify_all()

    def failed(self, error: BaseException) -> None:
        """It cannot go on."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()


class _Guest:
    """One edge, as the thread of a subscription sees it (`Callbacks`)."""

    inbox = None

    def __init__(self, edges: LiveEdges, edge: int) -> None:
        self._edges, self._edge = edges, edge

    def applied(self) -> int:
        return self._edges.reached(self._edge)

    since = applied

    def deliver(self, edge: int, piece: Piece) -> None:
        self._edges.deliver(edge, piece)

    def refused(self, asked: int) -> AfterRefusal:
        if asked <= self.applied():
            return AfterRefusal.ASK_AGAIN
        self._edges.failed(
            JobError(
                f"the fork is too far behind: the job has committed epoch {asked} and does not keep"
                " it",
                hint="The job waits for nobody. Fork it again, and it begins at the newest"
                " checkpoint; what is skipped is not compared. A longer `--checkpoint-seconds` of"
                " the job gives a fork more time.",
            )
        )
        return AfterRefusal.LEAVE

    def failed(self, error: BaseException) -> None:
        self._edges.failed(error)


class RunningJob:
    """A running job that can be forked."""

    def __init__(self, asked: ChangedJob[RunningCode]) -> None:
        self._asked = asked
        self.run = asked.run
        self.code: RunningCode = asked.now()

    def begin(self, name: str, plan: Plan) -> tuple[LiveEdges, Images]:
        """Its edges from the committed checkpoint on, and the images of that.

        Args:
            name: of the fork. plan: of the flow that the job runs.

        Raises:
            JobError: there is no checkpoint with which it can begin.
        """
        due, why = time.monotonic() + CHECKPOINT_SECONDS, ""
        while time.monotonic() < due:
            routes = self._routes()
            why = f"{self.run} does not answer" if routes is None else self._not_yet(routes)
            if routes is not None and not why:
                edges = LiveEdges(name, plan, self.code.number, routes, self._routes)
                images = self._images(plan, routes)
                if images is not None:
                    return edges, images
                edges.stop()
                why = f"checkpoint {routes.committed} was gone before it was read"
            time.sleep(LOOK_SECONDS)
        raise JobError(f"{self.run} cannot be forked within {CHECKPOINT_SECONDS:g} s: {why}")

    def _not_yet(self, routes: StateRoutes) -> str:
        """Why a fork cannot begin now; empty if it can."""
        versions = routes.assignment.versions
        made = version_at(versions, routes.committed)
        if not routes.committed:
            return "it has committed no checkpoint"
        if versions != routes.assignment.settled:
            return "it is being upgraded"
        if (0 if made is None else made.number) != self.code.number:
            return "it has committed no checkpoint since its upgrade"
        return ""

    def _routes(self) -> StateRoutes | None:
        controller = self._asked.controller
        try:
            found: StateRoutes | None = ray.get(
                controller.state_routes.remote(), timeout=CALL_SECONDS
            )
        except RayError:
            return None
        return found

    def over(self) -> bool:
        """Whether the job has ended."""
        if actor(self.run, CONTROLLER) is None:
            return True
        try:
            call = self._asked.controller.outcome.remote()
            return bool(ray.get(call, timeout=CALL_SECONDS).ended)
        except RayError:  # it is restarted
            return False

    def _images(self, plan: Plan, routes: StateRoutes) -> Images | None:
        """The images of all operators and sinks, and of sources that are read again, at the
        committed checkpoint; None if they are gone."""
        keepers = [k for p in routes.keepers if (k := actor(self.run, p)) is not None]
        begins, found = begins_of(routes.assignment.versions), dict[str, Any]()
        for v in (v for v in plan.vertices if v.kind != "source" or is_read_again(plan, v)):
            place = Place(v.id, v.name, KeyRange(0, plan.groups), 0)
            try:
                fetched = fetch(keepers, place, routes.committed, versions=begins)
                if fetched is None:
                    return None
                found[v.name] = list(fetched.chains)
            except (RayError, NotHeldError):
                return None
        return found


@contextmanager
def running_job(job: str, address: str) -> Iterator[RunningJob]:
    """A context in which this process is connected to a running job.

    Args:
        job: the name of the job, or of one of its runs. address: of the cluster.

    Raises:
        ConfigError: there is no such job or cluster.
    """
    with changed_job(job, address, "code") as asked:
        found = RunningJob(asked)
        if found.code.over:
            raise ConfigError(f"{asked.run} has ended")
        yield found
