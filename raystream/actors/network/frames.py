"""Frames on a socket: a kind, a head of a few bytes, and a body that the reader gets as one block.

Between instances a frame is a message of pieces, one small epoch, or a word on the subscription.
Between a client and an instance it is a query for rows of state, or the answer; between an instance
and a keeper a claim of boundaries, or what is held.
`docs/decisions/0023-pieces-cross-plain-sockets.md` says why they do not go by Arrow Flight.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

PIECES, ACCEPTED, LATER, REFUSED, TICKET, QUERIES, QUERY, REPLY, EPOCH = range(9)
CLAIMS, CLAIM, LOOK, HELD = range(9, 13)
"""Kinds. `LATER`: not now, ask again; `REFUSED`: never; the head of both says why. A connection
to an instance begins with a `TICKET`, or with `QUERIES`, after which each `QUERY` has a `REPLY`.
One to a keeper begins with `CLAIMS`, after which each `CLAIM` or `LOOK` is answered by `HELD`."""

SMALL = 64 << 10
"""Up to this many bytes of a body, a frame is put together before it is sent; also the size of the
reader's buffer."""
LEAST_SECONDS = 0.001
"""The timeout of a read after its deadline. A timeout of 0 would make the socket non-blocking."""
BEGINNING = struct.Struct("<BIQ")
"""A frame begins with its kind, and the sizes of its head and of its body in bytes."""
_BUFFERS = 512
"""How many buffers the system takes in one call, at least."""


class Refused(Exception):
    """A subscription will never be served. The message says why."""


class Frame(NamedTuple):
    """A frame that was received."""

    kind: int
    """What kind of frame it is, for example `PIECES`."""
    head: bytes
    """Its head, which the receiver decodes."""
    body: np.ndarray
    """Its body: uint8, read-only, and shared with nothing else."""


def send(
    connection: socket.socket, kind: int, head: bytes, body: Sequence[memoryview] = ()
) -> None:
    """Send a frame; waits while the other side takes nothing.

    Args:
        body: bytes, in blocks that follow each other.

    Raises:
        OSError: the connection is broken.
    """
    begun, size = _begun(kind, head, body)
    if size <= SMALL:
        connection.sendall(b"".join([begun, *body]))
    else:
        _send_all(connection, [memoryview(begun), *body])


def packed(kind: int, head: bytes, body: Sequence[memoryview] = ()) -> bytes:
    """A frame as it is sent, in one piece."""
    return b"".join([_begun(kind, head, body)[0], *body])


def _begun(kind: int, head: bytes, body: Sequence[memoryview]) -> tuple[bytes, int]:
    """The bytes that come before a body, and the size of the body."""
    size = sum([len(block) for block in body])
    return BEGINNING.pack(kind, len(head), size) + head, size


def send_now(connection: socket.socket, frame: bytes) -> bytes:
    """Send as much of a packed frame as the system takes at once. Returns what is left of it.

    Raises:
        OSError: the connection is broken.
    """
    try:
        return frame[connection.send(frame, socket.MSG_DONTWAIT) :]
    except BlockingIOError:
        return frame


def _send_all(connection: socket.socket, parts: list[memoryview]) -> None:
    """Send all of these blocks, without a copy of them."""
    while parts:
        sent = connection.sendmsg(parts[:_BUFFERS])
        whole = 0
        while whole < len(parts) and sent >= len(parts[whole]):
            sent -= len(parts[whole])
            whole += 1
        del parts[:whole]
        if sent:
            parts[0] = parts[0][sent:]


class Large(Exception):
    """The next frame is large: the compute thread does not wait for it."""


class Reader:
    """Reads frames from a connection, which is open until both are closed."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._buffer = memoryview(bytearray(SMALL))
        self._first = self._end = 0
        """The part of the buffer that was received and not read."""
        self.until: float | None = None
        """The deadline of all reads together (`time.monotonic`), however slowly the other side
        sends; None for no limit."""

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self._buffer.release()

    def read(self, most: int | None = None) -> Frame | None:
        """The next frame; None when the connection ends.

        Args:
            most: bytes that it may have.

        Raises:
            OSError: the connection is broken, or the deadline has passed. ValueError: the frame is
            larger.
        """
        while self._end - self._first < BEGINNING.size:
            if not self._receive():
                return None
        kind, head_size, body_size = BEGINNING.unpack_from(self._buffer, self._first)
        if most is not None and head_size + body_size > most:
            raise ValueError(f"a frame of {head_size + body_size} bytes")
        self._first += BEGINNING.size
        head, body = bytearray(head_size), np.empty(body_size, np.uint8)
        if not (self._fill(memoryview(head)) and self._fill(body.data)):
            return None
        body.flags.writeable = False
        return Frame(kind, bytes(head), body)

    def read_now(self) -> Frame | None:
        """The next frame; None if it is not there yet, or not all of it.

        Raises:
            OSError: the connection is broken. EOFError: it has ended. Large: it is to be `read`.
        """
        frame = self._buffered()
        if frame is not None:
            return frame
        try:
            if not self._receive(socket.MSG_DONTWAIT):
                raise EOFError
        except BlockingIOError:
            return None
        return self._buffered()

    @property
    def drained(self) -> bool:
        """Whether all bytes that were received are read. If more come, the socket is readable."""
        return self._first == self._end

    def _buffered(self) -> Frame | None:
        """The next frame, if all of it is in the buffer."""
        received = self._end - self._first
        if received < BEGINNING.size:
            return None
        kind, head_size, body_size = BEGINNING.unpack_from(self._buffer, self._first)
        if BEGINNING.size + head_size + body_size > SMALL:
            raise Large
        begin = self._first + BEGINNING.size
        end = begin + head_size + body_size
        if end > self._end:
            return None
        self._first = end
        head = bytes(self._buffer[begin : begin + head_size])
        # Not from where it lies: nobody says that this is where numbers may begin.
        body = bytes(self._buffer[begin + head_size : end])
        return Frame(kind, head, np.frombuffer(body, np.uint8))

    def _receive(self, flags: int = 0) -> int:
        """Receive more into the buffer, which is not full. Returns how many bytes came."""
        if self._first:
            left = self._end - self._first
            self._buffer[:left] = self._buffer[self._first : self._end]
            self._first, self._end = 0, left
        if self.until is not None:
            self._connection.settimeout(max(self.until - time.monotonic(), LEAST_SECONDS))
        came = self._connection.recv_into(self._buffer[self._end :], 0, flags)
        self._end += came
        return came

    def _fill(self, block: memoryview) -> bool:
        """Fill a block. False: the connection ended before."""
        filled = min(len(block), self._end - self._first)
        block[:filled] = self._buffer[self._first : self._first + filled]
        self._first += filled
        while filled < len(block):
            if self.until is not None:
                self._connection.settimeout(max(self.until - time.monotonic(), LEAST_SECONDS))
            # All of it at once: for each part the interpreter's lock would have to be had again.
            came = self._connection.recv_into(block[filled:], 0, socket.MSG_WAITALL)
            if not came:
                return False
            filled += came
        return True
