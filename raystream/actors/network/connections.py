"""Where a connection is made and accepted, with TLS if the job has certificates.

Without certificates a connection is the socket itself. With them it is a `TlsSocket`, which carries
the same frames. Only threads that may wait read and write a `TlsSocket`. The compute thread may not
wait, and TLS may have to wait for bytes of its own (`direct`).
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
"""How long the other side may take to accept a connection, and for TLS its handshake."""
_KEPT_ALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
"""When the system asks whether the other machine lives: seconds of silence, seconds between tries,
and tries. A machine that vanished never ends a connection itself."""


class TlsSocket(ssl.SSLSocket):
    """A connection with TLS, as frames want it."""

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        """Like `socket.recv_into`. It ignores flags: fewer bytes may come despite `MSG_WAITALL`."""
        return super().recv_into(buffer, nbytes or None)

    def sendmsg(self, buffers: Iterable[Any], *_: Any) -> int:  # type: ignore[override]
        """Send all of these buffers."""
        data = b"".join(buffers)
        self.sendall(data)
        return len(data)

    def shutdown(self, how: int) -> None:
        """End the connection. A thread that writes at this moment gets an error; after
        `SSLSocket.shutdown` it would go on without TLS."""
        socket.socket.shutdown(self, how)


def listen(host: str) -> tuple[socket.socket, str]:
    """A socket that accepts connections, and its address, "HOST:PORT". The system chooses the port.

    Raises:
        OSError: no socket can listen at this host.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.create_server((host, 0), family=family, backlog=128)
    return listening, f"{host}:{listening.getsockname()[1]}"


class Joining:
    """Makes connections to other processes of the job, and accepts theirs.

    Args:
        credentials: what this process shows, and asks the others to show.
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
            OSError: nobody answers there, or the server shows no certificate of the job.
        """
        host, _, port = address.rpartition(":")
        connection = socket.create_connection((host, int(port)), CONNECT_SECONDS)
        tune(connection)
        if self._client is not None:
            connection = self._client.wrap_socket(connection, server_hostname=NAME)
        connection.settimeout(None)
        return connection

    def accept(self, connection: socket.socket) -> socket.socket:
        """The connection to use from now on, once the other side has shown its certificate.

        Args:
            connection: a socket that was just accepted. Its timeout, which limits the whole
                handshake, stays. With TLS the socket itself is not to be used any more.

        Raises:
            OSError: the other side shows no certificate of the job, or has gone.
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
    """End a connection, or stop a socket from accepting more. The thread that waits at it sees the
    end, and closes it."""
    with suppress(OSError):  # it has ended
        connection.shutdown(socket.SHUT_RDWR)
