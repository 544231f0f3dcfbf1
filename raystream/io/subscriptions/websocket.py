"""What comes over a websocket, as a source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from raystream.api.arguments import check_flag, check_record
from raystream.errors import ConfigError, placed
from raystream.io.addresses import secrets_in, shown_address
from raystream.io.formats.base import Format
from raystream.io.subscriptions.base import (
    LOOK_SECONDS,
    Incoming,
    MessageConnection,
    SubscribedSource,
    package,
)
from raystream.io.subscriptions.events import answered
from raystream.io.subscriptions.options import check_url, give_up_of, headers_of
from raystream.io.subscriptions.waiting import GIVE_UP_SECONDS, again_and_again
from raystream.schema.fields import AnyRecord
from raystream.schema.lengths import Seconds

U = TypeVar("U", bound=AnyRecord)

BIGGEST = 16 << 20
"""How many bytes a message may have."""


@placed
def websocket(
    url: str,
    record: type[U],
    /,
    *,
    subscribe: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    format: Format | None = None,
    bad: Literal["refuse", "stream"] = "refuse",
    again: bool = True,
    give_up: Seconds = GIVE_UP_SECONDS,
) -> Websocket[U]:
    """The messages of a websocket, as a source. The job records them as they come:

        trades = flow.source(rs.io.websocket("wss://...", Trade), epochs=rs.by_arrival())

    A websocket has no acknowledgements: what is under way to a process that dies is lost with it,
    and so is what the other side sends while no client is connected.

    Args:
        url: `ws://` or `wss://`.
        record: the type of the records; each message is one.
        subscribe: messages that are sent when the connection is made, and made again.
        headers: of the request that opens the connection, such as Authorization.
        format: how messages stand for records; `rs.io.formats.json()` unless given.
        bad: what becomes of messages that are no such records: `"refuse"` ends the job, with
            `"stream"` they are in `stream[rs.io.BadMessage]`.
        again: whether to connect again when the other side has closed the connection in order;
            otherwise that is the end of the input. One that breaks is made again in any case.
        give_up: after how many seconds without a connection the job ends.

    Raises:
        GraphError: `record` is no type of records.
        ConfigError: an argument cannot be, or the package `websockets` is not installed.
    """
    check_record("rs.io.websocket", record)
    check_url("websocket", url, ("ws://", "wss://"))
    headers, give_up = headers_of("websocket", headers), give_up_of("websocket", give_up)
    listed = isinstance(subscribe, list | tuple)
    if not listed or not all(isinstance(text, str) for text in subscribe):
        raise ConfigError(f"websocket(subscribe={subscribe!r:.80}): a list of messages, as text")
    check_flag("rs.io.websocket", "again", again)
    package("websockets.sync.client", "websocket", "rs.io.websocket")
    made = Websocket(record, format, url, tuple(subscribe), headers, again, give_up)
    made.sifting("rs.io.websocket", bad)
    return made


class Websocket(SubscribedSource[U]):
    """See `websocket`. It has one split."""

    def __init__(
        self,
        record: type[U],
        format: Format | None,
        url: str,
        subscribe: tuple[str, ...],
        headers: dict[str, str],
        again: bool,
        give_up: float,
    ) -> None:
        super().__init__(record, format, f"websocket {shown_address(url)}")
        self.secrets = secrets_in(url)
        self.url, self.subscribe, self.headers = url, subscribe, headers
        self.again, self.give_up = again, give_up

    def connect(self, split: int, since: int | None) -> MessageConnection:
        return _Socket(self)


class _Socket(MessageConnection):
    def __init__(self, of: Websocket[Any]) -> None:
        self._of = of

    def messages(self) -> Iterator[Sequence[Incoming]]:
        from websockets.exceptions import WebSocketException

        errors = (OSError, EOFError, WebSocketException)
        return again_and_again(self._attempt, errors, self._of)

    def _attempt(self) -> Iterator[Sequence[Incoming]]:
        from websockets.exceptions import ConnectionClosedOK

        of = self._of
        with self._connected() as socket:
            for text in of.subscribe:
                socket.send(text)
            yield ()
            try:
                while True:
                    yield _taken(socket)
            except ConnectionClosedOK:
                if of.again:
                    raise EOFError("the other side has closed it") from None

    def _connected(self) -> Any:
        from websockets.exceptions import InvalidStatus
        from websockets.sync.client import connect

        of = self._of
        try:
            return connect(of.url, additional_headers=of.headers, max_size=BIGGEST)
        except InvalidStatus as error:
            answer = error.response
            told = answered(of, answer.status_code, answer.reason_phrase)
            raise told or error from None


def _taken(socket: Any) -> list[Incoming]:
    """A message; nothing where none comes."""
    try:
        said = socket.recv(timeout=LOOK_SECONDS)
    except TimeoutError:
        return []
    return [Incoming(said.encode() if isinstance(said, str) else said)]
