"""The port of a keeper: instances claim boundaries there, and ask for those that are held."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import TypeVar

from raystream.actors.network.claims import first_of_claims, serve_claims
from raystream.actors.network.connections import Joining
from raystream.actors.network.listener import Listener
from raystream.dataflow.register import Register
from raystream.native.thread_priority import be_prompt

T = TypeVar("T")


class RegisterPort:
    """The register of a keeper, and the port where it is asked. The port opens when an instance
    first wants its address: a job without such instances has none.

    Args:
        joining: has the token of the run, and the certificates if there are any.
    """

    def __init__(self, joining: Joining) -> None:
        self._joining = joining
        self._register = Register()
        self._lock = threading.Lock()
        self._port: Listener[None] | None = None

    def ask(self, question: Callable[[Register], T]) -> T:
        """Ask the register, as one of several threads."""
        with self._lock:
            return question(self._register)

    def address(self, host: str) -> str:
        """The address of the port, "HOST:PORT".

        Raises:
            OSError: no socket can listen at the host.
        """
        with self._lock:
            if self._port is None:
                self._port = Listener(host, self._joining, first_of_claims, self._serve, "claim")
            return self._port.address

    def _serve(self, connection: socket.socket, _: None) -> None:
        be_prompt()  # an instance waits
        serve_claims(connection, self.ask)

    def stop(self) -> None:
        """Close the port."""
        with self._lock:
            if self._port is not None:
                self._port.shutdown()
