"""Queries for rows of state, and their answers, on a connection to the instance that owns the rows.

A client shows the token of the run once, in a frame of kind `QUERIES`. Then each `QUERY` gets a
`REPLY`, in order. Keys and rows travel as Arrow batches without their schemas. The instance knows
the schemas from its operator, the client from the controller.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, NamedTuple

import msgpack
import numpy as np
import pyarrow as pa

from raystream.actors.network.connections import Joining
from raystream.actors.network.frames import (
    ACCEPTED,
    QUERIES,
    QUERY,
    REPLY,
    Frame,
    Reader,
    Refused,
    send,
)
from raystream.dataflow.queries.looking import KEYS_MAX, Looked, NotYet, StateQuery
from raystream.errors import RaystreamError

QUERY_BYTES = 1 << 20
"""A query has at most this many bytes."""
HELLO_BYTES = 1 << 16
"""An instance's first answer has at most this many bytes."""
WAIT_MAX = 60.0
"""An instance waits at most this many seconds for an epoch, whatever a client asks for."""


class LookUp(NamedTuple):
    """How an instance answers."""

    keys: Any
    """The Arrow schema of its keys."""
    answer: Callable[[StateQuery, float], Looked | NotYet]
    """Answers a query, and may wait the given seconds for an epoch. Raises StateError if a key is
    none of the operator."""


class Reply(NamedTuple):
    """What an instance has answered."""

    epoch: int
    """The epoch at whose end the rows were so; 0 if the reply has no rows."""
    not_yet: NotYet | None
    """Why the instance does not answer now; None if it has answered or refused."""
    found: list[int]
    """The positions of the keys that have a row."""
    rows: Any
    """The Arrow batch of these rows; None without an answer."""
    refused: str
    """Why the instance will never answer this query; empty if it does not refuse."""


def serve_queries(connection: socket.socket, reader: Reader, look_up: LookUp) -> None:
    """Answer queries until the client has gone.

    Raises:
        OSError: the connection is broken. Refused: the client sent something that is no query.
    """
    while True:
        try:
            frame = reader.read(QUERY_BYTES)
        except ValueError as error:
            raise Refused(f"a query has at most {QUERY_BYTES} bytes: {error}") from None
        if frame is None:
            return
        try:
            query, seconds = _query(frame, look_up.keys)
            answer = look_up.answer(query, seconds)
            head, body = _packed(answer)
        except RaystreamError as error:
            head, body = msgpack.packb([0, "", b"", str(error), ""]), []
        send(connection, REPLY, head, body)


def _query(frame: Frame, schema: Any) -> tuple[StateQuery, float]:
    try:
        if frame.kind != QUERY:
            raise ValueError
        vertex, least, seconds = msgpack.unpackb(frame.head)
        if type(vertex) is not int or type(least) is not int or not 0 <= seconds <= WAIT_MAX:
            raise ValueError
        keys = pa.ipc.read_record_batch(pa.py_buffer(frame.body), schema)
        keys.validate(full=True)
        if any(c.null_count and not f.nullable for c, f in zip(keys.columns, schema, strict=True)):
            raise ValueError
    except (ValueError, TypeError, OSError, pa.ArrowException, msgpack.UnpackException):
        raise Refused("this is no query") from None
    if keys.num_rows > KEYS_MAX:
        raise Refused(f"a query is for {KEYS_MAX} keys at most, not {keys.num_rows}")
    return StateQuery(vertex, keys, least), float(seconds)


def _packed(answer: Looked | NotYet) -> tuple[bytes, list[memoryview]]:
    if isinstance(answer, NotYet):
        return msgpack.packb([0, answer.value, b"", "", ""]), []
    at = answer.found.at.astype("<i4").tobytes()
    rows = answer.found.batch().serialize()
    return msgpack.packb([answer.epoch, "", at, "", answer.shape]), [memoryview(rows)]


class LookUpConnection:
    """A client's connection to an instance.

    Args:
        address: the data port of the instance, "HOST:PORT".
        joining: connects with the credentials of the run.
        seconds: how long the answer to the token may take.

    Raises:
        OSError: nobody answers at the address. Refused: the token is of another run, or the
        instance keeps no rows.
    """

    def __init__(self, address: str, joining: Joining, seconds: float) -> None:
        self._connection = joining.connect(address)
        self._reader = Reader(self._connection)
        try:
            self._connection.settimeout(seconds)
            send(self._connection, QUERIES, joining.token.encode())
            frame = self._reader.read(HELLO_BYTES)
            if frame is None:
                raise ConnectionError("the instance has ended the connection")
            if frame.kind != ACCEPTED:
                raise Refused(frame.head.decode(errors="replace"))
        except BaseException:
            self.close()
            raise

    def send(self, query: StateQuery, seconds: float) -> None:
        """Send a query. The instance may wait up to `seconds` for the query's epoch.

        Raises:
            OSError: the connection is broken.
        """
        seconds = max(0.0, min(seconds, WAIT_MAX))
        head = msgpack.packb([query.vertex, query.least, seconds])
        send(self._connection, QUERY, head, [memoryview(query.keys.serialize())])

    def receive(self, rows: Any, shape: str, seconds: float) -> Reply:
        """The answer to the oldest query that has none yet.

        Args:
            rows: the Arrow schema of the operator's rows. shape: their fingerprint.
            seconds: how long the answer may take.

        Raises:
            OSError: the connection is broken, no answer came in time, or it is damaged.
        """
        self._connection.settimeout(seconds)
        try:
            frame = self._reader.read()
            if frame is None:
                raise ConnectionError("the instance has ended the connection")
            if frame.kind != REPLY:
                return Reply(0, None, [], None, frame.head.decode(errors="replace"))
            epoch, not_yet, at, refused, found = msgpack.unpackb(frame.head)
            if refused or not_yet:
                return Reply(0, NotYet(not_yet) if not_yet else None, [], None, refused)
            if found != shape:
                return Reply(0, NotYet.CHANGED, [], None, "")
            batch = pa.ipc.read_record_batch(pa.py_buffer(frame.body), rows)
        except (ValueError, TypeError, pa.ArrowException, msgpack.UnpackException) as error:
            raise ConnectionError(f"what came is no answer: {error}") from None
        return Reply(epoch, None, np.frombuffer(at, "<i4").tolist(), batch, "")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
