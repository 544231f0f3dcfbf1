"""The subscriptions of an instance: one for each log that it reads, by the newest assignment."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from raystream.actors.network.connections import Joining
from raystream.actors.network.flow_control import AHEAD, ARRIVED_AHEAD
from raystream.actors.network.inbox import Inbox
from raystream.actors.network.subscription import Peer, Subscription
from raystream.actors.worker.driving.local_subscription import LocalSubscription
from raystream.actors.worker.driving.shared_thread import SharedInbox, SharedThread
from raystream.actors.worker.fate import Fate
from raystream.dataflow.assignment import Serving
from raystream.dataflow.pieces import Piece
from raystream.dataflow.plan import Edge
from raystream.dataflow.tenure import AfterRefusal, Tenure

WAIT_SECONDS = 0.5
"""How long a thread waits at most before it looks whether the shell stops."""


class Subscriptions:
    """Starts and stops subscriptions, and answers their threads (`Callbacks`).

    Args:
        joining: makes connections to producers.
        shared: the thread that works for this instance and for others, whose logs need no
            connection. None: this one has a thread of its own.
    """

    def __init__(
        self,
        tenure: Tenure[Any],
        fate: Fate,
        inbox: Inbox | SharedInbox,
        joining: Joining,
        shared: SharedThread | None = None,
    ) -> None:
        self._put, self._shared, self._inbox = inbox.put, shared, inbox
        self._tenure = tenure
        self._machine = tenure.machine
        self._fate = fate
        self._joining = joining
        self._checks = self._machine.plan.check
        self._says = self._machine.plan.clock is None
        """Whether producers are told what is applied; see `flow_control`."""
        self._applied = threading.Condition()
        self._waiting = 0
        """The number of threads that wait until more epochs are applied."""
        self._open: dict[tuple[int, str], Subscription | LocalSubscription] = {}

    def follow(self, wanted: Mapping[tuple[int, str], tuple[Edge, Serving]]) -> None:
        """Subscribe to these logs, and to no others. See `Routes.reads`."""
        for gone in set(self._open) - set(wanted):
            self._open.pop(gone).stop()
        for name in set(wanted) - set(self._open):
            edge, serving = wanted[name]
            peer = Peer(
                edge=edge,
                address=serving.address,
                joining=self._joining,
                instance=self._tenure.name,
                keys=self._machine.takes(edge.id),
                first=serving.first,
            )
            self._open[name] = self._made(peer)
            self._open[name].start()

    def _made(self, peer: Peer) -> Subscription | LocalSubscription:
        server = None if self._shared is None else self._shared.servers.get(peer.address)
        if server is None:
            return Subscription(peer, self)
        assert isinstance(self._inbox, SharedInbox)
        ahead = ARRIVED_AHEAD if self._says else AHEAD
        return LocalSubscription(peer, self, server, self._inbox, ahead)

    def stop(self) -> None:
        """Stop all of them; their threads end soon after."""
        for subscription in self._open.values():
            subscription.stop()
        self.advanced()

    def advanced(self) -> None:
        """The instance has applied an epoch, or stops: threads that wait for it look again."""
        if self._says:
            for subscription in self._open.values():
                subscription.say(self._machine.position)
        if self._waiting:  # a thread counts itself before it looks, so none is missed
            with self._applied:
                self._applied.notify_all()

    # ------------------------------------------------------------ called by their threads

    @property
    def inbox(self) -> Inbox | None:
        """See `Callbacks`."""
        return None if isinstance(self._inbox, SharedInbox) else self._inbox

    def applied(self) -> int:
        """The last epoch that the instance has applied."""
        return self._machine.position

    def since(self) -> int:
        """The epoch after which to ask. In checking mode the instance wants again what is not
        committed, to compare it."""
        return self._tenure.committed if self._checks else self._machine.position

    def deliver(self, edge: int, piece: Piece) -> None:
        """Hand a piece to the compute thread; waits while it is too far ahead of what was applied.

        The next epoch that the instance needs is always admitted.
        """
        machine = self._machine
        first = piece.header.first
        if first > machine.position + AHEAD:
            with self._applied:
                self._waiting += 1
                while first > machine.position + AHEAD and not self._fate.stopping:
                    self._applied.wait(WAIT_SECONDS)
                self._waiting -= 1
        self._put((edge, piece))

    def refused(self, asked: int) -> AfterRefusal:
        """See `Tenure.refused`."""
        return self._tenure.refused(asked)

    def failed(self, error: BaseException) -> None:
        """A subscription cannot go on. An instance that has ended needs nothing more: what a range
        that was moved at its end says once more may be trimmed by then."""
        if not self._machine.ended:
            self._fate.fail(error)
