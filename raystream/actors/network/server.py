"""Serving epoch logs: a subscription is a cursor that replays, then follows."""

from __future__ import annotations

import socket
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from raystream.actors.network.connections import Joining, direct, end
from raystream.actors.network.epoch_frame import epoch_frame
from raystream.actors.network.flow_control import ARRIVED_BOUND, BOUND, AppliedReceiver
from raystream.actors.network.frames import (
    ACCEPTED,
    LATER,
    PIECES,
    QUERIES,
    REFUSED,
    SMALL,
    Frame,
    Reader,
    Refused,
    packed,
    send,
    send_now,
)
from raystream.actors.network.listener import Listener
from raystream.actors.network.lookups import LookUp, serve_queries
from raystream.actors.network.wire import Ticket, messages
from raystream.dataflow.instances.outlets import Outlets
from raystream.dataflow.plan import Edge
from raystream.dataflow.routing import Served
from raystream.schema.types import KeyRange
from raystream.state.log.epoch_log import LogEntry

WAIT_SECONDS = 0.5
"""How long a cursor sleeps at most before it looks whether it should stop."""
BURST = 16
"""Epochs that a cursor takes from a log under the lock at once."""


class Later(Exception):
    """A subscription cannot be served yet: the subscriber is to ask again."""


class Cursors(Served):
    """How far each subscriber was served, and the lock under which logs change."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.RLock()
        """Held while logs or subscribers change."""
        self.changed = threading.Condition(self.lock)
        self.stopped = False

    def expect(
        self,
        subscribers: Mapping[tuple[int, str], int],
        candidates: Collection[tuple[int, str]] = (),
    ) -> None:
        """As `Served.expect`. The streams of other subscribers end."""
        with self.changed:
            super().expect(subscribers, candidates)
            self.changed.notify_all()

    def notify(self) -> None:
        """Let waiting threads look again: something was logged or served."""
        with self.changed:
            self.changed.notify_all()

    def stop(self) -> None:
        """End all subscriptions."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()


class ServedStream:
    """A subscription that is served."""

    def __init__(self, connection: socket.socket, asked: Ticket) -> None:
        self.connection = connection
        self.subscriber = (asked.edge, asked.instance)
        self.keys = asked.keys
        self.next = asked.first
        """The epoch that is sent next."""
        self.guest = asked.guest
        """Whether nobody waits for the subscriber."""
        self.direct = direct(connection) and not asked.guest
        """Whether the compute thread may send by itself."""
        self.says = AppliedReceiver(connection, asked.first - 1) if self.direct else None
        """What the subscriber says that it has applied; None if nobody listens to it."""
        self.sending = threading.Lock()
        """Held by the thread that sends."""
        self.rest = b""
        """What is left of a frame that was sent in part; it is sent first."""


def _frames(entries: Sequence[LogEntry[Any]], keys: KeyRange) -> bytes:
    """The frames of a few small epochs."""
    each = []
    for entry in entries:
        frame = epoch_frame(entry, keys)
        if frame is None:
            return b"".join([packed(PIECES, *m) for m in messages(entries, keys)])
        each.append(frame)
    return each[0] if len(each) == 1 else b"".join(each)


class LogServer:
    """Serves the logs of one instance: one thread for each subscription. The compute thread itself
    sends small pieces, because handing them to another thread costs more than the work."""

    def __init__(self, host: str, joining: Joining, outlets: Outlets, cursors: Cursors) -> None:
        self.outlets, self.cursors = outlets, cursors
        self._edges: dict[int, Edge] = {e.id: e for e in outlets.vertex.outputs}
        self.look_up: LookUp | None = None
        """Answers queries for rows of state; None if the instance keeps none."""
        self._streams: tuple[ServedStream, ...] = ()
        self._arrives = outlets.plan.clock is None
        self._bound = ARRIVED_BOUND if self._arrives else BOUND
        self._port = Listener(host, joining, _asked, self._answer, "subscription")
        self.address = self._port.address

    def shutdown(self) -> None:
        """End all connections, and accept no more."""
        self._port.shutdown()

    def slowest(self) -> int:
        """The earliest epoch that some owner was not yet served; where epochs are cut by arrival,
        that it has not applied, as far as it is listened to."""
        slowest = self.cursors.slowest()
        if not self._arrives:
            return slowest
        applied: dict[tuple[int, str], int] = {}
        for stream in self._streams:
            if (says := stream.says) is None:
                continue
            says.hear()
            if not says.gone and self.cursors.slows(stream.subscriber):
                applied[stream.subscriber] = says.applied  # of two connections the newer one counts
        return min([slowest, *[epoch + 1 for epoch in applied.values()]])

    def is_near(self) -> bool:
        """Whether the slowest subscriber is near enough for the next epoch."""
        return not self.outlets.is_ahead(self.slowest(), self._bound)

    def await_near(self, seconds: float) -> None:
        """Wait until a subscriber has come nearer, or for so many seconds."""
        with self.cursors.changed:
            if not self.cursors.stopped and not self.is_near():
                self.cursors.changed.wait(seconds)

    def end_others(self) -> None:
        """End the streams of subscribers that are not expected any more, even if such a subscriber
        receives nothing at the moment."""
        for stream in self._streams:
            if not self._goes_on(stream):
                end(stream.connection)

    def push(self, at_leisure: bool) -> bool:
        """Send what is new to every subscriber to which that is possible without a wait. Returns
        whether all subscribers have everything.

        Args:
            at_leisure: the caller has no other work to do at once. Otherwise epochs without rows
                are left to the threads, which send them as one message with what follows.
        """
        left = [stream for stream in self._streams if not self._push(stream, at_leisure)]
        return not left

    def _push(self, stream: ServedStream, at_leisure: bool) -> bool:
        """Send one subscriber what is new. Returns whether nothing is left to send."""
        if not stream.direct or not stream.sending.acquire(blocking=False):
            return False
        try:
            log = self.outlets.logs[stream.subscriber[0]]
            first, end = stream.next, log.next
            if stream.rest or first >= end:  # a new instance makes again what others have
                return not stream.rest
            if first < log.first or not self._goes_on(stream):
                return False
            entries = log.since(first, BURST + 1)
            if len(entries) > BURST:
                return False
            size = sum([entry.rows.nbytes() for entry in entries if entry.rows.length])
            if size > SMALL or entries[-1].header.ended or not (size or at_leisure):
                return False
            frame = _frames(entries, stream.keys)
            rest = send_now(stream.connection, frame)
            if len(rest) == len(frame):
                return False
            stream.rest = rest
            self._sent(stream, end - 1)
            return not rest
        except OSError:  # its thread will find that, too
            return False
        finally:
            stream.sending.release()

    def _answer(self, connection: socket.socket, asked: Ticket | None) -> None:
        """Serve a subscription, or answer queries."""
        if asked is None:
            self._answer_queries(connection)
        else:
            self._serve(connection, asked)

    def _answer_queries(self, connection: socket.socket) -> None:
        """Answer the queries of a client that has shown the token, until the client has gone."""
        try:
            if self.look_up is None:
                raise Refused("this instance keeps no rows that can be asked for")
            connection.settimeout(None)
            send(connection, ACCEPTED, b"")
            with Reader(connection) as reader:
                serve_queries(connection, reader, self.look_up)
        except Refused as error:
            send(connection, REFUSED, str(error).encode())

    def _serve(self, connection: socket.socket, asked: Ticket) -> None:
        """Serve a subscriber that has shown the token of the run."""
        try:
            stream = ServedStream(connection, self.admit(asked))
            connection.settimeout(None)
            send(connection, ACCEPTED, b"")
            self._follow(stream)
        except OSError:
            raise
        except Later as error:
            send(connection, LATER, str(error).encode())
        except Refused as error:
            send(connection, REFUSED, str(error).encode())
        except Exception as error:
            send(connection, REFUSED, f"{type(error).__name__}: {error}".encode())

    def admit(self, asked: Ticket) -> Ticket:
        """What is to be sent: key groups [lo, hi) of an edge from an epoch on.

        In checking mode a consumer asks for what it has applied as well, and is given what of that
        is not trimmed.

        Raises:
            Refused: the edge or range is unknown, or the epoch was trimmed. Later: the subscriber
            is not assigned.
        """
        edge = self._edges.get(asked.edge)
        if edge is None:
            raise Refused(f"edge {asked.edge} does not start here")
        if not 0 <= asked.keys.lo < asked.keys.hi <= self.outlets.plan.groups:
            raise Refused(f"there are no key groups {asked.keys}")
        with self.cursors.changed:
            if self.cursors.stopped:
                raise Later("this instance serves nobody any more")
            if not asked.guest and (edge.id, asked.instance) not in self.cursors.next:
                raise Later(f"{asked.instance} is not assigned (yet)")
            first = self.outlets.logs[edge.id].first
            if asked.first < first and (asked.guest or not self.outlets.plan.check):
                raise _trimmed(asked.first, edge.id, first)
            asked = asked._replace(first=max(asked.first, first))
            if not asked.guest:
                self.cursors.next[edge.id, asked.instance] = asked.first
                self.cursors.changed.notify_all()
        return asked

    def _follow(self, stream: ServedStream) -> None:
        """Send what there is and what comes, until the range or the serving ends."""
        with self.cursors.changed:
            self._streams += (stream,)
        try:
            while self._await(stream):
                with stream.sending:
                    if stream.rest:
                        stream.connection.sendall(stream.rest)
                        stream.rest = b""
                    entries = self._entries(stream)
                    for message in messages(entries, stream.keys):
                        send(stream.connection, PIECES, *message)
                    if entries:
                        self._sent(stream, entries[-1].epoch)
                        self.cursors.notify()
                if entries and entries[-1].header.ended:
                    return
        finally:
            with self.cursors.changed:
                self._streams = tuple(s for s in self._streams if s is not stream)

    def _sent(self, stream: ServedStream, epoch: int) -> None:
        """Note that a subscriber was served up to an epoch."""
        stream.next = epoch + 1
        with self.cursors.lock:
            if stream.subscriber in self.cursors.next:
                self.cursors.next[stream.subscriber] = epoch + 1

    def _goes_on(self, stream: ServedStream) -> bool:
        known = stream.guest or stream.subscriber in self.cursors.next
        return known and not self.cursors.stopped

    def _await(self, stream: ServedStream) -> bool:
        """Wait until there is something to send; False when serving ends."""
        edge = stream.subscriber[0]
        log, cursors = self.outlets.logs[edge], self.cursors
        with cursors.changed:
            while self._goes_on(stream):
                if stream.rest or log.next > max(stream.next, log.first):
                    return True
                if self.outlets.silent(edge, stream.next) is not None:
                    return True
                cursors.changed.wait(WAIT_SECONDS)
        return False

    def _entries(self, stream: ServedStream) -> list[LogEntry[Any]]:
        """The next entries of a log; after the last one, that the range has ended.

        What was trimmed meanwhile is left out: it is committed, so the subscriber has applied it.
        After a recovery it may have had it from the instance that was here before.

        Raises:
            Refused: a guest has not had what was trimmed.
        """
        edge = stream.subscriber[0]
        log = self.outlets.logs[edge]
        with self.cursors.changed:
            first = max(stream.next, log.first)
            if first > stream.next and stream.guest:
                raise _trimmed(stream.next, edge, first)
            if log.next > first:
                return log.since(first, BURST)
            silent = self.outlets.silent(edge, stream.next)
            return [] if silent is None else [silent]


def _trimmed(epoch: int, edge: int, first: int) -> Refused:
    return Refused(f"epoch {epoch} of edge {edge} was trimmed: the log begins at {first}")


def _asked(frame: Frame) -> tuple[bytes, Ticket | None]:
    """The token that a first frame shows, and its ticket; None if queries will follow.

    Raises:
        ValueError: it is neither.
    """
    if frame.kind == QUERIES:
        return frame.head, None
    ticket = Ticket.unpack(frame.head)
    return ticket.token.encode(), ticket
