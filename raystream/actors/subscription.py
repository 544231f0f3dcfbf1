"""Reading another instance's log: one thread per edge and producing instance."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from raystream.actors import frames
from raystream.actors.frames import LATER, PIECES, REFUSED, TICKET, Reader, Refused
from raystream.actors.wire import Decoder, Ticket
from raystream.dataflow.pieces import Piece
from raystream.dataflow.plan import Edge
from raystream.errors import InternalError, JobError
from raystream.schema.types import KeyRange

RECONNECT_SECONDS = 600.0
"""How long a broken subscription tries to reconnect before it gives up. That is for the controller
to decide: it must outlast a controller that is restarted, and a process that starts and takes its
place at the third attempt. Time for which it was connected does not count, however silent the other
side was."""
RETRY_SECONDS = 0.01
RETRY_MAX_SECONDS = 0.2
"""How long it rests between two attempts, each of which costs both sides: a tenth of the time that
it has tried, within these."""


class Subscription:
    """Follows one edge of one producing instance and hands its pieces on, until its range ends.

    instance: who subscribes. applied: the last epoch that it has applied, now. since: the epoch
    after which it asks, now; what it has applied, unless it wants that again. first: the first
    epoch that the producer has; what is before that comes from others.
    deliver: called on this thread with each piece; it blocks while the instance is too far behind.
    fail: called once when the subscription cannot go on.
    """

    def __init__(
        self,
        edge: Edge,
        address: str,
        token: str,
        instance: str,
        keys: KeyRange,
        applied: Callable[[], int],
        deliver: Callable[[int, Piece], None],
        fail: Callable[[BaseException], None],
        since: Callable[[], int] | None = None,
        first: int = 1,
    ) -> None:
        self.edge = edge
        self.address = address
        self.token = token
        self.instance = instance
        self.keys = keys
        self.next = 0
        self.stopped = False
        self._applied = applied
        self._since = since or applied
        self._first = first
        self._deliver = deliver
        self._fail = fail
        self._connection: socket.socket | None = None
        self._connected: float | None = None
        self._thread = threading.Thread(target=self._run, name=f"edge-{edge.id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the subscription; the thread ends soon after."""
        self.stopped = True
        connection = self._connection
        if connection is not None:
            frames.end(connection)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        since = time.monotonic()  # it has tried, but for the time that it was connected
        while not self.stopped:
            before = self.next
            try:
                if self._follow():
                    return
            except OSError:
                pass
            except Refused as error:
                # What was asked for may have been applied, committed and trimmed on the way.
                if self._applied() < self.next:
                    self._fail(JobError(f"{self.address} refused a subscription: {error}"))
                    return
            except BaseException as error:
                self._fail(error)
                return
            now = time.monotonic()  # the connection broke, or the other side ended it
            if self.next > before:
                since = now
            elif self._connected is not None:
                since += now - self._connected
            if now > since + RECONNECT_SECONDS:
                self._fail(JobError(f"no connection to {self.address} for {RECONNECT_SECONDS:g} s"))
                return
            time.sleep(min(max((now - since) / 10, RETRY_SECONDS), RETRY_MAX_SECONDS))

    def _follow(self) -> bool:
        """Read until the range ends (True) or the connection does (False)."""
        decoder = Decoder(self.edge.schema, self.keys)
        self._connected = None
        self.next = max(self.next, self._since() + 1, self._first)
        ticket = Ticket(self.token, self.instance, self.edge.id, self.keys, self.next)
        with frames.connect(self.address) as self._connection, Reader(self._connection) as reader:
            frames.send(self._connection, TICKET, ticket.pack())
            while not self.stopped:
                frame = reader.read()
                if frame is None or frame.kind == LATER:
                    return False
                if frame.kind == REFUSED:
                    raise Refused(frame.head.decode())
                if self._connected is None:
                    self._connected = time.monotonic()
                if frame.kind != PIECES:
                    continue
                for piece in decoder.pieces(frame.head, frame.body):
                    epoch = piece.header.epoch
                    if epoch > self.next and epoch > self._applied() + 1:
                        raise InternalError(f"{self.address} left out epochs before {epoch}")
                    self._deliver(self.edge.id, piece)
                    self.next = epoch + 1
                    if piece.header.ended:
                        return True
        return True
