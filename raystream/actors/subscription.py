"""Reading another instance's log: one thread per edge and producing instance, which lends its
connection to the thread that computes while pieces are small."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

from raystream.actors import frames
from raystream.actors.frames import (
    LATER,
    PIECES,
    REFUSED,
    SMALL,
    TICKET,
    Frame,
    Large,
    Reader,
    Refused,
)
from raystream.actors.inbox import Inbox, Item
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
WAIT_SECONDS = 0.5
"""How long it sleeps at most, while its connection is lent, before it looks whether to stop."""
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
    inbox: of the thread that computes, if that reads small pieces itself.
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
        inbox: Inbox | None = None,
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
        self._inbox = inbox
        self._returned = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"edge-{edge.id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the subscription; the thread ends soon after."""
        self.stopped = True
        self._returned.set()
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
        self._connected = None
        self.next = max(self.next, self._since() + 1, self._first)
        ticket = Ticket(self.token, self.instance, self.edge.id, self.keys, self.next)
        with frames.connect(self.address) as self._connection, Reader(self._connection) as reader:
            frames.send(self._connection, TICKET, ticket.pack())
            stream = _Stream(self, reader)
            try:
                while not self.stopped:
                    frame = stream.read()
                    if self._inbox is not None and len(frame.head) + len(frame.body) < SMALL:
                        self._lend(self._inbox, self._connection, stream)
            except _Over:
                return True
            except EOFError:
                return False
        return True

    def _lend(self, inbox: Inbox, connection: socket.socket, stream: _Stream) -> None:
        """Have the thread that computes read on, until there is something large; raises what ended
        that otherwise."""
        self._returned.clear()
        stream.ended = None
        inbox.lend(connection, stream)
        while not (self.stopped or self._returned.wait(WAIT_SECONDS)):
            pass
        inbox.recall(connection)
        if stream.ended is not None and not isinstance(stream.ended, Large):
            raise stream.ended

    def _items(self, frame: Frame | None, decoder: Decoder) -> Iterator[Item]:
        """The pieces of a frame, for whoever reads it.

        Raises:
            Refused: the subscription was. EOFError: the other side ended the connection.
            _Over: the range has ended. InternalError: epochs are missing. JobError: it is damaged.
        """
        if frame is None or frame.kind == LATER:
            raise EOFError
        if frame.kind == REFUSED:
            raise Refused(frame.head.decode())
        if self._connected is None:
            self._connected = time.monotonic()
        if frame.kind != PIECES:
            return
        for piece in decoder.pieces(frame.head, frame.body):
            epoch = piece.header.epoch
            if epoch > self.next and epoch > self._applied() + 1:
                raise InternalError(f"{self.address} left out epochs before {epoch}")
            yield self.edge.id, piece
            self.next = epoch + 1
            if piece.header.ended:
                raise _Over


class _Over(Exception):
    """The range has ended: nothing more will come."""


class _Stream:
    """A connection of a subscription, for the thread that reads it. ended: why it was returned."""

    def __init__(self, subscription: Subscription, reader: Reader) -> None:
        self.ended: Exception | None = None
        self._subscription = subscription
        self._reader = reader
        self._decoder = Decoder(subscription.edge.schema, subscription.keys)

    @property
    def next(self) -> int:
        """The epoch that comes next."""
        return self._subscription.next

    def read(self) -> Frame:
        """Wait for a frame, and deliver its pieces."""
        subscription, frame = self._subscription, self._reader.read()
        for edge, piece in subscription._items(frame, self._decoder):
            subscription._deliver(edge, piece)
        assert frame is not None
        return frame

    def pull(self, items: list[Item], upto: int) -> None:
        """Add the pieces of the frames that are there, up to an epoch."""
        subscription = self._subscription
        while subscription.next <= upto and (frame := self._reader.read_now()) is not None:
            for item in subscription._items(frame, self._decoder):
                items.append(item)

    def give_back(self, why: Exception) -> None:
        """Let the thread of the subscription go on."""
        self.ended = why
        self._subscription._returned.set()
