"""Reading the log of an instance on the same thread: without a connection, and without a copy.

It means the same as a subscription: the producer's log server admits the reader, the reader is
given one epoch after the other, and it counts for flow control.
"""

from __future__ import annotations

import time

from raystream.actors.network.frames import Refused
from raystream.actors.network.inbox import Item
from raystream.actors.network.server import Later, LogServer
from raystream.actors.network.subscription import Callbacks, Peer
from raystream.actors.network.wire import Ticket
from raystream.actors.worker.driving.shared_thread import SharedInbox
from raystream.dataflow.pieces import Piece
from raystream.dataflow.tenure import AfterRefusal
from raystream.errors import JobError

AGAIN_SECONDS = 0.01
"""How soon a reader that is not admitted yet asks again, if its thread looks."""


class LocalSubscription:
    """Follows one edge of one producing instance on the thread of both, until its range ends.

    Args:
        server: serves the producer's logs to others.
        inbox: that of the reader.
        ahead: how many epochs the reader takes beyond what it has applied.
    """

    def __init__(
        self, peer: Peer, callbacks: Callbacks, server: LogServer, inbox: SharedInbox, ahead: int
    ) -> None:
        self._peer, self._callbacks = peer, callbacks
        self._server, self._inbox, self._ahead = server, inbox, ahead
        self._subscriber = (peer.edge.id, peer.instance)
        self._outlets = server.outlets
        self._log = server.outlets.logs[peer.edge.id]
        self._next = 0
        """The epoch that comes next."""
        self._admitted = self._over = False
        self._again = 0.0

    def start(self) -> None:
        """Have the reader's inbox take the pieces."""
        self._inbox.attach(self)

    def stop(self) -> None:
        """End it."""
        self._over = True
        self._inbox.detach(self)

    def say(self, applied: int) -> None:
        """Nothing is to be said: the producer sees what was taken."""

    def ready(self) -> bool:
        """Whether there may be something to take."""
        if self._over:
            return False
        if not self._admitted:
            return time.monotonic() >= self._again
        here = self._log.next > self._next or self._outlets.last < self._next
        return here and self._next <= self._callbacks.applied() + self._ahead

    def pull(self, items: list[Item]) -> None:
        """Add the pieces that the reader has room for."""
        if self._over or not (self._admitted or self._admit()):
            return
        cursors, upto = self._server.cursors, self._callbacks.applied() + self._ahead
        with cursors.lock:
            if self._subscriber not in cursors.next or cursors.stopped:
                self._admitted = False
                return
            before = self._next
            while not self._over and self._next <= upto and (piece := self._piece()) is not None:
                items.append((self._peer.edge.id, piece))
                self._next = piece.header.epoch + 1
                self._over = piece.header.ended
            if self._next > before:
                cursors.next[self._subscriber] = self._next

    def _piece(self) -> Piece | None:
        """The next piece, if there is one."""
        log, keys = self._log, self._peer.keys
        # What was trimmed is committed, so the reader has applied it.
        at = max(self._next, log.first)
        if log.next > at:
            entry = log.entry(at)
            return Piece(entry.header, *entry.part(keys))
        if self._outlets.last >= self._next:
            return None
        silent = self._outlets.silent(self._peer.edge.id, self._next)
        return None if silent is None else Piece(silent.header, *silent.part(keys))

    def _admit(self) -> bool:
        """Ask the producer for what comes after what the reader has. Whether it said yes."""
        peer = self._peer
        self._next = max(self._next, self._callbacks.since() + 1, peer.first)
        token = peer.joining.token
        ticket = Ticket(token, peer.instance, peer.edge.id, peer.keys, self._next)
        self._again = time.monotonic() + AGAIN_SECONDS
        try:
            self._next = self._server.admit(ticket).first
        except Later:
            return False
        except Refused as error:
            after = self._callbacks.refused(self._next)
            self._over = after is not AfterRefusal.ASK_AGAIN
            if after is AfterRefusal.FAIL:
                why = f"{peer.address} refused a subscription: {error}"
                self._callbacks.failed(JobError(why))
            return False
        self._admitted = True
        return True
