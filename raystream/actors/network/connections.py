"""Where a connection is made and accepted, with TLS if the job has certificates.

Without certificates a connection is the socket itself. With them it is a `TlsSocket`: what is
written and read is the same, but only by the threads that wait for it. The compute thread leaves it
alone (`direct`), because TLS has bytes of its own to send and receive, for which it cannot wait.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, cast

from raystream.security.contexts import NAME, accepting, connecting
from raystream.security.credentials import Credentials

CONNECT_SECONDS = 10.0
"""How long the other side may take until there is a connection."""
_KEPT_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""When the system asks whether the other machine lives, in seconds and tries: a machine that
vanished never ends a connection."""


class TlsSocket(ssl.SSLSocket):
    """A connection with TLS, as frames want it."""

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """As of a socket. With `MSG_WAITALL` fewer bytes may come, as they may there."""
        return super().recv_into(buffer, nbytes or None)

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:  # type: ignore[override]
        """Send all of these buffers."""
        data = b"".join(buffers)
        self.sendall(data)
        return len(data)

    def shutdown(self, how: int) -> None:
        """End the connection. Another thread that writes at this moment gets an error: after what
        `ssl` does here it would write without TLS."""
        socket.socket.shutdown(self, how)


def listen(host: str) -> tuple[socket.socket, str]:
    """A socket that takes connections, and its address.

    Raises:
        OSError: there can be none on this host.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, 0), family=family, backlog=128)
    return listening, f"{host}:{listening.getsockname()[1]}"


class Joining:
    """Makes connections to others of the job, and accepts theirs.

    Args:
        credentials: what a process of the job shows, and asks of others.
    """

    def __init__(self, credentials: Credentials) -> None:
        self.token, self.certificates = credentials
        self._client = self._server = None
        if self.certificates is not None:
            self._client = connecting(self.certificates)
            self._server = accepting(self.certificates)
            for context in (self._client, self._server):
                context.sslsocket_class = TlsSocket

    def connect(self, address: str) -> socket.socket:
        """A connection to an address that `listen` gave.

        Raises:
            OSError: nobody answers there, or it has no certificate of the job.
        """
        host, _, port = address.rpartition(":")
        connection = socket.create_connection((host, int(port)), CONNECT_SECONDS)
        tune(connection)
        if self._client is not None:
            connection = self._client.wrap_socket(connection, server_hostname=NAME)
        connection.settimeout(None)
        return connection

    def accept(self, connection: socket.socket) -> socket.socket:
        """A connection that was accepted, once the other side has shown its certificate. Its
        timeout is kept, and holds for that as a whole; what is given is not used any more.

        Raises:
            OSError: it has shown none of the job, or has gone.
        """
        tune(connection)
        if self._server is None:
            return connection
        return cast(socket.socket, self._server.wrap_socket(connection, server_side=True))


def direct(connection: socket.socket) -> bool:
    """Whether the compute thread may read and write a connection without waiting."""
    return not isinstance(connection, TlsSocket)


def tune(connection: socket.socket) -> None:
    """Let the system send frames at once, and notice the death of the other machine."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEPT_ALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def end(connection: socket.socket) -> None:
    """End a connection, or stop accepting connections. The thread that waits for it sees that and
    closes it."""
    with suppress(OSError):  # it has ended
        connection.shutdown(socket.SHUT_RDWR)
