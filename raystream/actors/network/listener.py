"""A port of a job: it accepts connections, and serves those that show the token of the run."""

from __future__ import annotations

import hmac
import socket
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from raystream.actors.network.connections import Joining, end, listen
from raystream.actors.network.frames import REFUSED, Frame, Reader, send

TICKET_SECONDS = 10.0
TICKET_BYTES = 64 << 10
"""Within this time, and in this many bytes, the other side must show the token."""
ADMITTED_AT_ONCE = 128
"""A port listens to at most this many connections at once that have not shown the token. It ends
those beyond; a process of the job connects again."""
ACCEPT_AGAIN_SECONDS = 0.1

A = TypeVar("A")
"""What the other side asks for with its first frame."""


class Listener(Generic[A]):
    """Accepts connections, each of which has a thread of its own.

    Args:
        host: where it listens; the system chooses the port.
        joining: has the token, and the certificates if there are any.
        read: reads the first frame: the token that it shows, and what it asks for. Raises
            ValueError if it is none of this port.
        serve: serves a connection that has shown the token, until it returns. The connection ends
            then, or with an OSError.
        called: the port, in the refusal of what is no first frame of it.

    Raises:
        OSError: no socket can listen at the host.
    """

    def __init__(
        self,
        host: str,
        joining: Joining,
        read: Callable[[Frame], tuple[bytes, A]],
        serve: Callable[[socket.socket, A], None],
        called: str,
    ) -> None:
        self._joining, self._read, self._serve, self._called = joining, read, serve, called
        self._open: set[socket.socket] = set()
        self._ended = False
        self._strangers = threading.Semaphore(ADMITTED_AT_ONCE)
        self._listening, self.address = listen(host)
        threading.Thread(target=self._accept, name="accept", daemon=True).start()

    def shutdown(self) -> None:
        """End all connections, and accept no more."""
        self._ended = True
        for connection in [self._listening, *self._open]:
            end(connection)

    def _accept(self) -> None:
        with self._listening:
            while not self._ended:
                try:
                    connection, _ = self._listening.accept()
                except OSError:  # the other side has gone, or there are too many files
                    time.sleep(0 if self._ended else ACCEPT_AGAIN_SECONDS)
                    continue
                if not self._strangers.acquire(blocking=False):
                    connection.close()
                    continue
                threading.Thread(
                    target=self._answer, args=(connection,), name="serve", daemon=True
                ).start()

    def _answer(self, accepted: socket.socket) -> None:
        """Serve a connection until the other side has everything, or goes."""
        connection = accepted
        self._open.add(accepted)
        try:
            try:
                accepted.settimeout(TICKET_SECONDS)
                connection = self._joining.accept(accepted)
                self._open.add(connection)
                asked = self._shown(connection)
            finally:
                self._strangers.release()
            if asked is not None:
                self._serve(connection, asked[0])
        except OSError:  # the other side has gone; it connects again if it wants more
            pass
        finally:
            for each in (accepted, connection):
                each.close()
                self._open.discard(each)

    def _shown(self, connection: socket.socket) -> tuple[A] | None:
        """What the other side asks for; None if it shows no token of this run. It is told so."""
        try:
            with Reader(connection) as reader:
                reader.until = time.monotonic() + TICKET_SECONDS
                frame = reader.read(TICKET_BYTES)
            if frame is None:
                raise ValueError
            shown, asked = self._read(frame)
        except ValueError:
            send(connection, REFUSED, f"not a raystream {self._called}".encode())
            return None
        if not hmac.compare_digest(shown, self._joining.token.encode()):
            send(connection, REFUSED, b"this token is not of this run of the job")
            return None
        return (asked,)
