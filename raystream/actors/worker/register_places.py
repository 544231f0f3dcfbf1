"""The keepers that hold the boundary register, as an instance asks them: on connections that stay
open."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import ray
from ray.exceptions import RayError

from raystream.actors.network.claims import ClaimConnection
from raystream.actors.network.connections import Joining
from raystream.actors.network.frames import Refused
from raystream.dataflow.register import Boundary, HeldBoundary

ASK_SECONDS = 10.0
"""How long an instance waits for a place of the boundary register before it asks again."""

T = TypeVar("T")


def address_of(keeper: Any) -> str:
    """The address at which a keeper can be asked.

    Raises:
        RayError: the keeper is gone, or does not answer in time.
    """
    address: str = ray.get(keeper.register_address.remote(), timeout=ASK_SECONDS)
    return address


class _KeeperLine:
    """The connection to one keeper, and the lock under which it is used."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.connection: ClaimConnection | None = None

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self.connection is not None:
            self.connection.close()
        self.connection = None


class RegisterPlaces:
    """Asks keepers. Any thread may call it.

    A connection that fails is closed, so an answer that comes too late is not taken for the answer
    to another question.

    Args:
        joining: makes connections to keepers.
        address_of: the address of a keeper. Raises RayError if the keeper is gone.
    """

    def __init__(self, joining: Joining, address_of: Callable[[Any], str] = address_of) -> None:
        self._joining, self._address_of = joining, address_of
        self._lines: dict[Any, _KeeperLine] = {}
        self._lock = threading.Lock()

    def claim(
        self, keeper: Any, view: int, epoch: int, wanted: Mapping[str, Boundary]
    ) -> Mapping[str, HeldBoundary] | None:
        """What a keeper holds of some entries of an epoch; see `Register.claim_all`. None when the
        keeper refuses, is gone, or does not answer in time."""
        return self._asked(keeper, lambda line: line.claim(view, epoch, wanted))

    def look(
        self, keeper: Any, view: int, epoch: int, names: Sequence[str]
    ) -> Mapping[tuple[str, int], Boundary] | None:
        """What a keeper holds from an epoch on; see `Register.look`. None as for a claim."""
        return self._asked(keeper, lambda line: line.look(view, epoch, names))

    def keep(self, keepers: Sequence[Any]) -> None:
        """End the connections to all keepers but these: others are asked no more."""
        with self._lock:
            others = [self._lines.pop(k) for k in [*self._lines] if k not in keepers]
        for line in others:
            if (connection := line.connection) is not None:
                connection.end()
            if line.lock.acquire(blocking=False):  # otherwise its user sees the end
                line.close()
                line.lock.release()

    def _asked(self, keeper: Any, ask: Callable[[ClaimConnection], T]) -> T | None:
        with self._lock:
            line = self._lines.setdefault(keeper, _KeeperLine())
        with line.lock:
            try:
                if line.connection is None:
                    address = self._address_of(keeper)
                    line.connection = ClaimConnection(address, self._joining, ASK_SECONDS)
                return ask(line.connection)
            except (OSError, Refused, RayError):
                line.close()
                return None
