"""Serving epoch logs by Arrow Flight: a subscription is a cursor that replays, then follows."""

from __future__ import annotations

import hmac
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from raystream.actors.wire import Ticket, messages, to_batch
from raystream.dataflow.instance import Outlets
from raystream.dataflow.plan import Edge
from raystream.dataflow.routing import Served
from raystream.schema.columns import arrow_schema
from raystream.state.log import Entry

WAIT_SECONDS = 0.5
"""How long a cursor sleeps at most before it looks whether it should stop."""
BURST = 16
"""Epochs that a cursor takes from a log under the lock at once."""

_OPTIONS = pa.ipc.IpcWriteOptions(use_threads=False)


class Cursors(Served):
    """How far each subscriber was served, and the lock under which logs change."""

    def __init__(self) -> None:
        super().__init__()
        self.changed = threading.Condition()
        self.stopped = False

    def expect(
        self,
        subscribers: Mapping[tuple[int, str], int],
        candidates: Collection[tuple[int, str]] = (),
    ) -> None:
        """As `Served.expect`; the streams of others end."""
        with self.changed:
            super().expect(subscribers, candidates)
            self.changed.notify_all()

    def stop(self) -> None:
        """End all subscriptions."""
        with self.changed:
            self.stopped = True
            self.changed.notify_all()


class LogServer(flight.FlightServerBase):  # type: ignore[misc]
    """Serves the logs of one instance."""

    def __init__(self, host: str, token: str, outlets: Outlets, cursors: Cursors) -> None:
        super().__init__(f"grpc://{host}:0")
        self._token = token
        self._outlets = outlets
        self._cursors = cursors
        self._edges: dict[int, Edge] = {e.id: e for e in outlets.vertex.outputs}

    def do_get(self, context: Any, ticket: Any) -> Any:
        """Key groups [lo, hi) of an edge from an epoch on.

        In checking mode a consumer asks for what it has applied as well, and is given what of that
        is not trimmed.

        Raises:
            FlightUnauthenticatedError: the token is of another job or run.
            FlightServerError: the edge or range is unknown, or the epoch was trimmed.
        """
        try:
            asked = Ticket.unpack(ticket.ticket)
        except ValueError:
            raise flight.FlightServerError("not a raystream subscription") from None
        if not hmac.compare_digest(asked.token.encode(), self._token.encode()):
            raise flight.FlightUnauthenticatedError("this token is not of this run of the job")
        edge = self._edges.get(asked.edge)
        if edge is None:
            raise flight.FlightServerError(f"edge {asked.edge} does not start here")
        if not 0 <= asked.keys.lo < asked.keys.hi <= self._outlets.plan.groups:
            raise flight.FlightServerError(f"there are no key groups {asked.keys}")
        with self._cursors.changed:
            if self._cursors.stopped:
                raise flight.FlightUnavailableError("this instance serves nobody any more")
            if (edge.id, asked.instance) not in self._cursors.next:
                raise flight.FlightUnavailableError(f"{asked.instance} is not assigned (yet)")
            first = self._outlets.logs[edge.id].first
            if asked.first < first and not self._outlets.plan.check:
                raise flight.FlightServerError(
                    f"epoch {asked.first} of edge {edge.id} was trimmed: the log begins at {first}"
                )
            asked = asked._replace(first=max(asked.first, first))
            self._cursors.next[edge.id, asked.instance] = asked.first
            self._cursors.changed.notify_all()
        schema = arrow_schema(edge.schema, ranked=edge.ranked)
        return flight.GeneratorStream(schema, self._serve(edge, asked, schema), _OPTIONS)

    def _serve(self, edge: Edge, asked: Ticket, schema: Any) -> Iterator[tuple[Any, bytes]]:
        """The entries of a subscription. Whatever goes wrong is an error of the server: some of
        Python's errors Flight would give out as a broken connection, which is tried again."""
        try:
            yield from self._entries(edge, asked, schema)
        except flight.FlightError:
            raise
        except Exception as error:
            raise flight.FlightServerError(f"{type(error).__name__}: {error}") from error

    def _entries(self, edge: Edge, asked: Ticket, schema: Any) -> Iterator[tuple[Any, bytes]]:
        none = pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)
        subscriber = (edge.id, asked.instance)
        epoch = asked.first
        while True:
            entries = self._await(subscriber, epoch)
            if not entries:
                return
            for message in messages(entries, asked.keys):
                yield to_batch(message.rows, none), message.metadata
            epoch = entries[-1].epoch + 1
            with self._cursors.changed:
                if subscriber in self._cursors.next:
                    self._cursors.next[subscriber] = epoch
                    self._cursors.changed.notify_all()
            if entries[-1].header.ended:
                return

    def _await(self, subscriber: tuple[int, str], epoch: int) -> list[Entry[Any]]:
        """The next entries of a log, as soon as there are any; none when serving ends. After the
        last one, that the range has ended.

        What was trimmed meanwhile is left out: it is at or below the floor, so the subscriber has
        applied it. After a recovery it may have had it from the instance that was here before.
        """
        log, cursors = self._outlets.logs[subscriber[0]], self._cursors
        with cursors.changed:
            while log.next <= max(epoch, log.first):
                if subscriber not in cursors.next or cursors.stopped:
                    return []
                silent = self._outlets.silent(subscriber[0], epoch)
                if silent is not None:
                    return [silent]
                cursors.changed.wait(WAIT_SECONDS)
            if subscriber not in cursors.next or cursors.stopped:
                return []
            first = max(epoch, log.first)
            return [log.entry(e) for e in range(first, min(log.next, first + BURST))]
