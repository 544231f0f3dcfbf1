"""Reading another instance's log: one thread per edge and producing instance, which lends its
connection to the thread that computes while pieces are small."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from raystream.actors.network import frames
from raystream.actors.network.connections import Joining, direct, end
from raystream.actors.network.flow_control import AppliedSender
from raystream.actors.network.frames import (
    LATER,
    REFUSED,
    SMALL,
    TICKET,
    Frame,
    Large,
    Reader,
    Refused,
)
from raystream.actors.network.inbox import Inbox, Item
from raystream.actors.network.wire import Decoder, Ticket
from raystream.dataflow.pieces import Piece
from raystream.dataflow.plan import Edge
from raystream.dataflow.tenure import AfterRefusal
from raystream.errors import InternalError, JobError
from raystream.schema.types import KeyRange

RECONNECT_SECONDS = 600.0
"""How long a broken subscription tries to reconnect before it gives up. Usually the controller
decides earlier that the producer is dead, so this must outlast a controller that is restarted, and
a process that starts and takes its place at the third attempt. Time for which it was connected does
not count, however silent the other side was."""
WAIT_SECONDS = 0.5
"""How long it sleeps at most, while its connection is lent, before it looks whether to stop."""
RETRY_SECONDS = 0.01
RETRY_MAX_SECONDS = 0.2
"""How long it rests between two attempts, each of which costs both sides: a tenth of the time that
it has tried, within these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A log to read, and the instance that reads it."""

    edge: Edge
    """The edge that the log is of."""
    address: str
    """Where the producing instance serves its logs."""
    joining: Joining
    """Makes the connection, and has the token that proves that the reader belongs to the job."""
    instance: str
    """The name of the reader."""
    keys: KeyRange
    """Its range."""
    first: int = 1
    """The first epoch that the producer has. Earlier ones come from others."""
    guest: bool = False
    """See `Ticket`."""

    def ticket(self, first: int) -> Ticket:
        """What the reader asks for. first: the first epoch that it wants."""
        return Ticket(self.joining.token, self.instance, self.edge.id, self.keys, first, self.guest)


class Callbacks(Protocol):
    """The instance that reads, as a subscription's thread sees it."""

    @property
    def inbox(self) -> Inbox | None:
        """The inbox of the compute thread, if that reads small pieces itself."""
        ...

    def applied(self) -> int:
        """The last epoch that the instance has applied, now."""
        ...

    def since(self) -> int:
        """The epoch after which to ask, now: the last one applied, unless the instance wants
        earlier ones again."""
        ...

    def deliver(self, edge: int, piece: Piece) -> None:
        """Take a piece. It blocks while the instance is too far behind."""
        ...

    def refused(self, asked: int) -> AfterRefusal:
        """The producer does not have the epoch any more that was asked for."""
        ...

    def failed(self, error: BaseException) -> None:
        """The subscription cannot go on. Called once."""
        ...


class Subscription:
    """Follows one edge of one producing instance and hands its pieces on, until its range ends."""

    def __init__(self, peer: Peer, callbacks: Callbacks) -> None:
        self.edge = peer.edge
        self.address = peer.address
        self.next = 0
        """The epoch that comes next."""
        self.stopped = False
        self._peer = peer
        self._callbacks = callbacks
        self._applied, self._deliver = callbacks.applied, callbacks.deliver
        self._connection: socket.socket | None = None
        self._connected: float | None = None
        """When the producer first answered on this connection; None before."""
        self._says: AppliedSender | None = None
        """Tells the producer how far the instance is; None while it cannot be told."""
        self._returned = threading.Event()
        """Set when the connection is not lent any more."""
        name = f"edge-{peer.edge.id}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the subscription. Its thread ends soon after."""
        self.stopped = True
        self._returned.set()
        connection = self._connection
        if connection is not None:
            end(connection)

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def say(self, applied: int) -> None:
        """Tell the producer, without a wait, which epoch was applied last."""
        if (says := self._says) is not None:
            says.say(applied)

    def _run(self) -> None:
        since = time.monotonic()  # it has tried, but for the time that it was connected
        broke: OSError | None = None
        while not self.stopped:
            before = self.next
            try:
                if self._follow():
                    return
                broke = None
            except OSError as error:
                broke = error
            except Refused as error:
                # What was asked for may have been applied, committed and trimmed on the way.
                after = self._callbacks.refused(self.next)
                if after is AfterRefusal.FAIL:
                    refused = JobError(f"{self.address} refused a subscription: {error}")
                    self._callbacks.failed(refused)
                if after is not AfterRefusal.ASK_AGAIN:
                    return
            except BaseException as error:
                self._callbacks.failed(error)
                return
            now = time.monotonic()  # the connection broke, or the other side ended it
            if self.next > before:
                since = now
            elif self._connected is not None:
                since += now - self._connected
            if now > since + RECONNECT_SECONDS:
                why = "" if broke is None else f": {broke}"
                gone = JobError(f"no connection to {self.address} for {RECONNECT_SECONDS:g} s{why}")
                self._callbacks.failed(gone)
                return
            time.sleep(min(max((now - since) / 10, RETRY_SECONDS), RETRY_MAX_SECONDS))

    def _follow(self) -> bool:
        """Read until the range ends (True) or the connection ends (False)."""
        self._connected = self._says = None
        peer, inbox = self._peer, self._callbacks.inbox
        self.next = max(self.next, self._callbacks.since() + 1, peer.first)
        ticket = peer.ticket(self.next)
        connection = self._connection = peer.joining.connect(self.address)
        lent = inbox if direct(connection) else None
        with connection, Reader(connection) as reader:
            frames.send(connection, TICKET, ticket.pack())
            stream = _Stream(self, reader)
            try:
                while not self.stopped:
                    frame = stream.read()
                    if lent is not None and len(frame.head) + len(frame.body) < SMALL:
                        self._lend(lent, connection, stream)
            except _Over:
                return True
            except EOFError:
                return False
        return True

    def _lend(self, inbox: Inbox, connection: socket.socket, stream: _Stream) -> None:
        """Let the compute thread read on until there is a large frame. An error that ended that is
        raised here."""
        self._returned.clear()
        stream.ended = None
        inbox.lend(connection, stream)
        while not (self.stopped or self._returned.wait(WAIT_SECONDS)):
            pass
        inbox.recall(connection)
        if stream.ended is not None and not isinstance(stream.ended, Large):
            raise stream.ended

    def _items(self, frame: Frame | None, decoder: Decoder) -> Iterator[Item]:
        """The pieces of a frame.

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
            connection = self._connection
            if connection is not None and direct(connection):  # it was let in, and is listened to
                self._says = AppliedSender(connection, self.next - 1)
        for piece in decoder.pieces_of(frame):
            first = piece.header.first
            if first > self.next and first > self._applied() + 1:
                raise InternalError(f"{self.address} left out epochs before {first}")
            yield self.edge.id, piece
            self.next = piece.header.epoch + 1
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
        self._decoder = Decoder(subscription.edge.schema, subscription._peer.keys)

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
        subscription, reader = self._subscription, self._reader
        while subscription.next <= upto and (frame := reader.read_now()) is not None:
            items.extend(subscription._items(frame, self._decoder))
            if reader.drained:
                return

    def give_back(self, why: Exception) -> None:
        """Let the thread of the subscription go on."""
        self.ended = why
        self._subscription._returned.set()
