"""Claims at the boundary register, and what is held there, on a connection to a keeper.

An instance shows the token of the run once, in a frame of kind `CLAIMS`. Then each `CLAIM` and each
`LOOK` is answered by `HELD`, in order. A source that is cut by arrival claims once an epoch, and a
call through Ray takes many times as long (`python -m benchmarks claims`).
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgpack

from raystream.actors.network.connections import Joining, end
from raystream.actors.network.frames import (
    ACCEPTED,
    CLAIM,
    CLAIMS,
    HELD,
    LOOK,
    SMALL,
    Frame,
    Reader,
    Refused,
    send,
)
from raystream.dataflow.register import Boundary, HeldBoundary, Register

CLAIM_BYTES = 1 << 30
"""A claim has at most this many bytes; it holds the rows of an epoch, where they cannot be read
again."""
WIDE = 1 << 63
"""Positions from here on travel as bytes: msgpack has no integers of more than 64 bits."""

Asked = Callable[[Register], Any]
"""What is asked of a register."""


def first_of_claims(frame: Frame) -> tuple[bytes, None]:
    """The token that the first frame of an instance shows.

    Raises:
        ValueError: the frame is none of these.
    """
    if frame.kind != CLAIMS:
        raise ValueError("not a claim")
    return frame.head, None


def serve_claims(connection: socket.socket, ask: Callable[[Asked], Any]) -> None:
    """Answer an instance that has shown the token, until it has gone.

    Args:
        ask: asks the register of this keeper.

    Raises:
        OSError: the connection is broken, or what came is no claim.
    """
    connection.settimeout(None)
    send(connection, ACCEPTED, b"")
    with Reader(connection) as reader:
        try:
            while (frame := reader.read(CLAIM_BYTES)) is not None:
                answer = msgpack.packb(_answer(frame, ask))
                send(connection, HELD, b"", [memoryview(answer)])
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise ConnectionError(f"this is no claim: {type(error).__name__}") from None


def _answer(frame: Frame, ask: Callable[[Asked], Any]) -> Any:
    """What the register holds, as it travels; None: refused."""
    view, epoch, wanted = msgpack.unpackb(frame.body.data)
    if type(view) is not int or type(epoch) is not int:
        raise ValueError
    if frame.kind == LOOK:
        names = [name for name in wanted if type(name) is str]
        found = ask(lambda register: register.look(view, epoch, names))
        return None if found is None else [[*at, _packed(b)] for at, b in found.items()]
    if frame.kind != CLAIM:
        raise ValueError
    claims = {str(name): _unpacked(boundary) for name, boundary in wanted.items()}
    held = ask(lambda register: register.claim_all(view, epoch, claims))
    return None if held is None else {n: [_packed(h.boundary), h.newest] for n, h in held.items()}


def _packed(boundary: Boundary) -> Sequence[Any]:
    position = boundary.position
    if -WIDE <= position < WIDE:
        return boundary
    wide = position.to_bytes(position.bit_length() // 8 + 1, "little", signed=True)
    return boundary._replace(position=wide)  # type: ignore[arg-type]


def _unpacked(values: Sequence[Any]) -> Boundary:
    position, watermark, ended, idle, beyond, rows = values
    if type(position) is bytes:
        position = int.from_bytes(position, "little", signed=True)
    numbers = (position, watermark, beyond)
    if any(type(n) is not int for n in numbers) or type(rows) is not bytes:
        raise ValueError
    return Boundary(position, watermark, bool(ended), bool(idle), beyond, rows)


class ClaimConnection:
    """An instance's connection to a keeper. Not thread-safe: its owner locks.

    Args:
        address: the port of the keeper, "HOST:PORT".
        joining: connects with the credentials of the run.
        seconds: how long each answer may take, the one to the token too.

    Raises:
        OSError: nobody answers at the address. Refused: the token is of another run.
    """

    def __init__(self, address: str, joining: Joining, seconds: float) -> None:
        self._seconds = seconds
        self._connection = joining.connect(address)
        self._reader = Reader(self._connection)
        try:
            frame = self._asked(CLAIMS, joining.token.encode(), b"", SMALL)
            if frame.kind != ACCEPTED:
                raise Refused(frame.head.decode(errors="replace"))
        except BaseException:
            self.close()
            raise

    def claim(
        self, view: int, epoch: int, wanted: Mapping[str, Boundary]
    ) -> dict[str, HeldBoundary] | None:
        """See `Register.claim_all`.

        Raises:
            OSError: the connection is broken, or no answer came in time.
        """
        packed = {name: _packed(boundary) for name, boundary in wanted.items()}
        held = self._answer(CLAIM, view, epoch, packed)
        if held is None:
            return None
        return {n: HeldBoundary(_unpacked(boundary), at) for n, (boundary, at) in held.items()}

    def look(
        self, view: int, epoch: int, names: Sequence[str]
    ) -> dict[tuple[str, int], Boundary] | None:
        """See `Register.look`.

        Raises:
            OSError: the connection is broken, or no answer came in time.
        """
        found = self._answer(LOOK, view, epoch, list(names))
        return None if found is None else {(n, at): _unpacked(b) for n, at, b in found}

    def _answer(self, kind: int, *what: Any) -> Any:
        frame = self._asked(kind, b"", msgpack.packb(what), CLAIM_BYTES)
        if frame.kind != HELD:
            raise ConnectionError("what came is no answer")
        try:
            return msgpack.unpackb(frame.body.data, use_list=False, strict_map_key=False)
        except (ValueError, msgpack.UnpackException) as error:
            raise ConnectionError(f"what came is no answer: {type(error).__name__}") from None

    def _asked(self, kind: int, head: bytes, body: bytes, most: int) -> Frame:
        self._reader.until = time.monotonic() + self._seconds
        self._connection.settimeout(self._seconds)
        send(self._connection, kind, head, [memoryview(body)])
        try:
            frame = self._reader.read(most)
        except ValueError as error:
            raise ConnectionError(str(error)) from None
        if frame is None:
            raise ConnectionError("the keeper has ended the connection")
        return frame

    def end(self) -> None:
        """Let a thread that waits for an answer see the end of the connection."""
        end(self._connection)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
