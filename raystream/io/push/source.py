"""The source of what clients push."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from raystream.api.arguments import check_record
from raystream.api.batch import Batch
from raystream.api.connectors import Source
from raystream.api.looking import counted
from raystream.errors import ConfigError, InputError, placed
from raystream.schema.columns import empty
from raystream.schema.fields import AnyRecord
from raystream.schema.records import caller, record_schema
from raystream.schema.types import SourceContext, Split

if TYPE_CHECKING:
    from raystream.io.push.hub import Hub

U = TypeVar("U", bound=AnyRecord)

PORT = 7700
MOST_LANES = 4096
LOOK_SECONDS = 0.2
"""How soon a thread that waits for a request sees that it should stop."""


@placed
def push(
    record: type[U],
    /,
    *,
    port: int = PORT,
    lanes: int = 8,
    path: str = "/push",
    token: str | None = None,
    max_bytes: int = 16 << 20,
    flight: int | None = None,
) -> Pushed[U]:
    """Records that clients push over HTTP, as a source. The job records them before it answers:

        orders = flow.source(rs.io.push(Order, token="secret"), epochs=rs.by_arrival())

        curl -H "Authorization: Bearer secret" --data-binary @orders.jsonl http://HOST:7700/push

    The body of a request is JSON Lines, or an Arrow IPC stream where its content type is
    `application/vnd.apache.arrow.stream`. What a request says is taken as a whole or not at all.

    Every node where an instance of the source runs listens on the port, and any of them takes any
    request. `raystream.push.Client` sends in batches and repeats what has no answer; since it says
    its name and a sequence, what it repeats counts once.

    Args:
        record: their type.
        port: the port that clients know. In one process it is open to this machine only.
        lanes: the number of splits of the source: up to that many instances share the work. The
            requests of one sender go to one lane.
        path: of the URL to which requests are posted. A post to `{path}/end` ends the input.
        token: what requests have to show. Unless given: RAYSTREAM_PUSH_TOKEN in the environment, or
            a new one, which is said when the job begins.
        max_bytes: how many bytes the body of a request may have.
        flight: a second port, for clients that put record batches by Arrow Flight.

    Raises:
        GraphError: `record` is no type of records.
        ConfigError: a number or the path cannot be.
    """
    check_record("rs.io.push", record)
    where = caller()[0]

    def refuse(why: str) -> ConfigError:
        return ConfigError(f"push({why})", where=where)

    if type(port) is not int or not 0 < port < 1 << 16:
        raise refuse(f"port={port!r}): a whole number from 1 to 65535")
    if type(lanes) is not int or not 0 < lanes <= MOST_LANES:
        raise refuse(f"lanes={lanes!r}): a whole number from 1 to {MOST_LANES}")
    if type(max_bytes) is not int or max_bytes < 1:
        raise refuse(f"max_bytes={max_bytes!r}): a whole number, at least 1")
    if not isinstance(path, str) or not path.startswith("/") or set(path) & set("{}?#% "):
        raise refuse(f'path={path!r}): a path such as "/push"')
    if token is not None and (not isinstance(token, str) or not token.isascii() or not token):
        raise refuse("token=...): text in ASCII")
    if flight is not None and (type(flight) is not int or not 0 < flight < 1 << 16):
        raise refuse(f"flight={flight!r}): a whole number from 1 to 65535, or None")
    if flight == port:
        raise refuse(f"flight={flight}): another port than port=")
    return Pushed(record, port, lanes, path, token, max_bytes, flight)


class Pushed(Source[U]):
    """Lane i is split `lane-i`. The process that reads a lane owns it, and takes requests for it.

    The attributes are the arguments of `push`.
    """

    recorded: ClassVar[bool] = True
    read_ahead: ClassVar[int] = 256

    def __init__(
        self,
        record: type[U],
        port: int,
        lanes: int,
        path: str,
        token: str | None,
        max_bytes: int,
        flight: int | None = None,
    ) -> None:
        self.record, self.flight = record, flight
        self.port, self.lanes, self.path, self.max_bytes = port, lanes, path, max_bytes
        given = token or os.environ.get("RAYSTREAM_PUSH_TOKEN")
        self.token = given or secrets.token_urlsafe(24)
        self.note = "" if given else f"clients of port {port} show the token {self.token}"
        """What the user is told when the job begins."""
        self._hub: Hub | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_hub": None}

    def __repr__(self) -> str:
        return f"push({self.record.__name__}, port={self.port}, lanes={self.lanes})"

    def splits(self) -> Sequence[Split]:
        return [Split(f"lane-{i}") for i in range(self.lanes)]

    def check(self) -> str:
        """See whether the port is free on this machine."""
        for port in (self.port, self.flight):
            if port is not None:
                _check_free(port)
        return f"port {self.port} of this machine is free, for {counted(self.lanes, 'lane')}"

    def open(self, context: SourceContext, /) -> None:
        """Listen, and pass on what is for lanes that other processes own."""
        from raystream.io.push.hub import Hub

        self._hub = Hub(
            context,
            self.port,
            self.lanes,
            record=self.record,
            path=self.path,
            token=self.token,
            biggest=self.max_bytes,
            flight=self.flight,
        )

    def read(self, split: Split, position: int, /) -> Iterator[Any]:
        """What comes, in the order in which it came. Numbers of batches count from 1."""
        hub = self._hub
        if hub is None:
            raise InputError(f"{self} can only be read by a job that runs with `run`")
        nothing: Batch[U] = Batch._of(empty(record_schema(self.record)))
        lane, number = hub.serve(_number(split)), 0
        try:
            while not lane.over:
                request = lane.take(LOOK_SECONDS)
                if request is None:
                    yield number, nothing  # the reader looks whether it should stop
                    continue
                number += 1
                lane.taken(number, request)
                if request.sent is None:
                    yield number, request.batch
                else:
                    yield number, request.batch, request.sent
        finally:
            hub.leave(lane)

    def acknowledge(self, split: Split, number: int, /) -> None:
        """Answer the requests up to this one."""
        lane = None if self._hub is None else self._hub.lanes.get(_number(split))
        if lane is not None:
            lane.recorded(number)

    def knows(self, split: Split, sequences: Mapping[str, int], /) -> None:
        """Refuse requests that leave a sequence out."""
        if self._hub is not None:
            self._hub.knows(_number(split), sequences)

    def ended(self, split: Split, /) -> None:
        """Answer the requests for the end of the lane."""
        if self._hub is not None:
            self._hub.ended(_number(split))

    def close(self) -> None:
        """End the server."""
        if self._hub is not None:
            self._hub.close()


def _check_free(port: int) -> None:
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("", port))
        except OSError as error:
            raise InputError(
                f"port {port} of this machine cannot be listened on: {error.strerror}",
                hint="Name another one with port= or flight=, or end what listens there.",
            ) from None


def _number(split: Split) -> int:
    return int(split.name.rpartition("-")[2])
