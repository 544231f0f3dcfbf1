"""Server-sent events, as a source."""

from __future__ import annotations

import http.client
import queue
import socket
import threading
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeVar

from raystream.api.arguments import check_flag, check_record
from raystream.errors import InputError, placed
from raystream.io.addresses import secrets_in, shown_address
from raystream.io.formats.base import Format
from raystream.io.subscriptions.base import (
    LOOK_SECONDS,
    Incoming,
    MessageConnection,
    SubscribedSource,
    missing,
    refused,
)
from raystream.io.subscriptions.options import check_text, check_url, give_up_of, headers_of
from raystream.io.subscriptions.waiting import GIVE_UP_SECONDS, again_and_again
from raystream.schema.fields import AnyRecord
from raystream.schema.lengths import Seconds

U = TypeVar("U", bound=AnyRecord)

SILENT_SECONDS = 60.0
"""A connection over which nothing came for so long, not even a comment, is made again."""
QUEUED = 1024
REFUSED = (400, 401, 403, 405, 410)
"""What a server says that will not change its mind."""
NOT_FOUND = 404
HINT = "Look at the address, and at headers= where the server asks who comes."
MOST_DIGITS = 18
"""An id of more digits is no number here."""


@placed
def events(
    url: str,
    record: type[U],
    /,
    *,
    event: str | None = None,
    headers: Mapping[str, str] | None = None,
    format: Format | None = None,
    bad: Literal["refuse", "stream"] = "refuse",
    again: bool = True,
    give_up: Seconds = GIVE_UP_SECONDS,
) -> Events[U]:
    """Server-sent events, as a source. The job records them as they come:

        edits = flow.source(rs.io.events("https://.../stream", Edit), epochs=rs.by_arrival())

    Where the ids of events are whole numbers that rise, and the server sends again what came after
    `Last-Event-ID`, each event counts exactly once. Otherwise what is under way to a process that
    dies is lost with it.

    Args:
        url: `http://` or `https://`.
        record: the type of the records; the data of each event is one.
        event: only events of this name; unless given all of them.
        headers: of the request, such as Authorization.
        format: how data stand for records; `rs.io.formats.json()` unless given.
        bad: what becomes of messages that are no such records: `"refuse"` ends the job, with
            `"stream"` they are in `stream[rs.io.BadMessage]`.
        again: whether to connect again when the other side has ended its answer; otherwise that is
            the end of the input. A connection that breaks is made again in any case.
        give_up: after how many seconds without a connection the job ends.

    Raises:
        GraphError: `record` is no type of records. ConfigError: an argument cannot be.
    """
    check_record("rs.io.events", record)
    check_url("events", url, ("http://", "https://"))
    headers, give_up = headers_of("events", headers), give_up_of("events", give_up)
    check_flag("rs.io.events", "again", again)
    if event is not None:
        check_text("events", "event", event)
    made = Events(record, format, url, event, headers, again, give_up)
    made.sifting("rs.io.events", bad)
    return made


class Events(SubscribedSource[U]):
    """See `events`. It has one split."""

    def __init__(
        self,
        record: type[U],
        format: Format | None,
        url: str,
        event: str | None,
        headers: dict[str, str],
        again: bool,
        give_up: float,
    ) -> None:
        super().__init__(record, format, f"events {shown_address(url)}")
        self.secrets = secrets_in(url)
        self.url, self.event, self.headers = url, event, headers
        self.again, self.give_up = again, give_up

    def connect(self, split: int, since: int | None) -> MessageConnection:
        return _EventStream(self, "" if since is None else str(since))


class ServerEvent(NamedTuple):
    """An event, as it was sent."""

    name: str
    id: str
    """The last id that was sent with it or before it."""
    data: str


def parsed(lines: Iterable[str], last: str = "") -> Iterator[ServerEvent | None]:
    """The events in the lines of a stream; None for a line that ends none.

    Args:
        last: the last id before.
    """
    name, data = "", list[str]()
    for line in lines:
        if line:
            field, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if field == "data":
                data.append(value)
            elif field == "event":
                name = value
            elif field == "id" and "\0" not in value:
                last = value
            yield None
            continue
        yield ServerEvent(name or "message", last, "\n".join(data)) if data else None
        name, data = "", []


class _EventStream(MessageConnection):
    """Reads on after the last event, whenever the connection is made again."""

    def __init__(self, of: Events[Any], last: str) -> None:
        self._of, self._last = of, last
        self._socket: socket.socket | None = None

    def messages(self) -> Iterator[Sequence[Incoming]]:
        errors = (OSError, EOFError, http.client.HTTPException)
        return again_and_again(self._attempt, errors, self._of)

    def _attempt(self) -> Iterator[Sequence[Incoming]]:
        lines: queue.Queue[str | BaseException | None] = queue.Queue(QUEUED)
        connection, answer = self._asked()
        reader = threading.Thread(target=_read, args=(answer, lines), daemon=True)
        reader.start()
        try:
            yield ()
            for event in parsed(_lines(lines, again=self._of.again), self._last):
                if event is None:
                    yield ()
                    continue
                self._last = event.id
                if self._of.event in (None, event.name):
                    whole = event.id.isdecimal() and len(event.id) <= MOST_DIGITS
                    yield [Incoming(event.data.encode(), int(event.id) if whole else None)]
        finally:
            self.close()
            while reader.is_alive():  # it may wait for room
                with suppress(queue.Empty):
                    lines.get(timeout=LOOK_SECONDS)
            answer.close()
            connection.close()

    def _asked(self) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        url = urllib.parse.urlsplit(self._of.url)
        secure = url.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(url.hostname or "", url.port, timeout=SILENT_SECONDS)
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-cache", **self._of.headers}
        if self._last:
            headers["Last-Event-ID"] = self._last
        target = urllib.parse.urlunsplit(("", "", url.path or "/", url.query, ""))
        try:
            connection.request("GET", target, headers=headers)
            self._socket = connection.sock
            answer = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        if answer.status == 200:
            return connection, answer
        answer.close()
        connection.close()
        raise answered(self._of, answer.status, answer.reason) or http.client.HTTPException(
            f"status {answer.status}"
        )

    def close(self) -> None:
        """Wake the reader."""
        broken, self._socket = self._socket, None
        if broken is not None:
            with suppress(OSError):
                broken.shutdown(socket.SHUT_RDWR)


def answered(of: SubscribedSource[Any], status: int, reason: str) -> InputError | None:
    """The error of a request with such an answer, where it is of no use to ask again soon."""
    if status == NOT_FOUND:
        return missing(of, f"{status} {reason}", HINT)
    return refused(of, f"{status} {reason}", HINT) if status in REFUSED else None


def _read(answer: http.client.HTTPResponse, lines: queue.Queue[str | BaseException | None]) -> None:
    """Put the lines of an answer into a queue, and how it ends."""
    end: str | BaseException | None = None
    try:
        for line in answer:
            lines.put(line.decode(errors="replace").rstrip("\r\n"))
    except Exception as error:
        end = error if isinstance(error, OSError | http.client.HTTPException) else EOFError(error)
    lines.put(end)


def _lines(lines: queue.Queue[str | BaseException | None], *, again: bool) -> Iterator[str]:
    """The lines of a queue. A line that says nothing where none comes.

    Args:
        again: whether the end is an error.
    """
    while True:
        try:
            line = lines.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            yield ":"
            continue
        if isinstance(line, BaseException):
            raise line
        if line is None and not again:
            return
        if line is None:
            raise EOFError("the other side has ended it")
        yield line
