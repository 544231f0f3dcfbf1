"""Frames on a socket: a kind, a head of a few bytes, and a body that the reader gets as one block.

Between instances a frame is a message of pieces, or what there is to say of the subscription.
`docs/decisions/0023-pieces-cross-plain-sockets.md` says why they do not go by Arrow Flight.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from contextlib import suppress
from io import BufferedReader
from typing import NamedTuple, cast

import numpy as np

PIECES, ACCEPTED, LATER, REFUSED, TICKET = range(5)
"""Kinds. `LATER`: not now, ask again; `REFUSED`: never; the head of both says why."""

SMALL = 64 << 10
"""Bytes of a body up to which a frame is put together before it is sent; the reader's buffer."""
CONNECT_SECONDS = 10.0
"""How long the other side may take until there is a connection."""

_BEGINNING = struct.Struct("<BIQ")
_BUFFERS = 512
"""How many the system takes at once, at least."""
_KEPT_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""Seconds, and tries: a machine that vanished never ends a connection."""


class Refused(Exception):
    """A subscription will never be served; why."""


class Frame(NamedTuple):
    """What was sent. body: uint8, of nobody else, read-only."""

    kind: int
    head: bytes
    body: np.ndarray


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
    """What comes before a body, and the size of that."""
    size = sum([len(block) for block in body])
    return _BEGINNING.pack(kind, len(head), size) + head, size


def send_now(connection: socket.socket, frame: bytes) -> bytes:
    """Send as much of a packed frame as is taken at once; what is left of it.

    Raises:
        OSError: the connection is broken.
    """
    try:
        return frame[connection.send(frame, socket.MSG_DONTWAIT) :]
    except BlockingIOError:
        return frame


def _send_all(connection: socket.socket, parts: list[memoryview]) -> None:
    """All of these blocks, without a copy of them."""
    while parts:
        sent = connection.sendmsg(parts[:_BUFFERS])
        whole = 0
        while whole < len(parts) and sent >= len(parts[whole]):
            sent -= len(parts[whole])
            whole += 1
        del parts[:whole]
        if sent:
            parts[0] = parts[0][sent:]


class Reader:
    """Reads frames from a connection, which is open until both are closed."""

    def __init__(self, connection: socket.socket) -> None:
        self._stream = cast(BufferedReader, connection.makefile("rb", SMALL))

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self._stream.close()

    def read(self, most: int | None = None) -> Frame | None:
        """The next frame; None when the connection ends.

        Args:
            most: bytes that it may have.

        Raises:
            OSError: the connection is broken. ValueError: it is larger.
        """
        begun = self._stream.read(_BEGINNING.size)
        if len(begun) < _BEGINNING.size:
            return None
        kind, head_size, body_size = _BEGINNING.unpack(begun)
        if most is not None and head_size + body_size > most:
            raise ValueError(f"a frame of {head_size + body_size} bytes")
        head = self._stream.read(head_size)
        body = np.empty(body_size, np.uint8)
        if len(head) < head_size or (body_size and self._stream.readinto(body.data) < body_size):
            return None
        body.flags.writeable = False
        return Frame(kind, head, body)


def listen(host: str) -> tuple[socket.socket, str]:
    """A socket that takes connections, and its address.

    Raises:
        OSError: there can be none on this host.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, 0), family=family, backlog=128)
    return listening, f"{host}:{listening.getsockname()[1]}"


def connect(address: str) -> socket.socket:
    """A connection to an address that `listen` gave.

    Raises:
        OSError: nobody answers there.
    """
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)), CONNECT_SECONDS)
    connection.settimeout(None)
    tune(connection)
    return connection


def tune(connection: socket.socket) -> None:
    """Have frames sent at once, and the death of the other machine noticed."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEPT_ALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def end(connection: socket.socket) -> None:
    """End a connection, or have no more taken: whoever waits for it hears so, and closes it."""
    with suppress(OSError):  # it has ended
        connection.shutdown(socket.SHUT_RDWR)
