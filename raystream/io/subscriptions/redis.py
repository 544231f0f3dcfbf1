"""A stream of Redis, as a source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar

from raystream.api.arguments import check_record
from raystream.errors import ConfigError, InputError, placed
from raystream.io.addresses import secrets_in, shown_address, without_secrets
from raystream.io.formats.base import Format
from raystream.io.subscriptions.base import (
    LOOK_SECONDS,
    Incoming,
    MessageConnection,
    SubscribedSource,
    missing,
    package,
    refused,
)
from raystream.io.subscriptions.options import check_start, check_text, check_url, give_up_of
from raystream.io.subscriptions.waiting import GIVE_UP_SECONDS, again_and_again
from raystream.schema.fields import AnyRecord
from raystream.schema.lengths import Seconds

U = TypeVar("U", bound=AnyRecord)

TAKEN = 1000
SCHEMES = ("redis://", "rediss://", "unix://")
_BITS = 20
"""Bits of an entry's number for the second part of its id; the first part is milliseconds."""


@placed
def redis(
    url: str,
    stream: str,
    record: type[U],
    /,
    *,
    field: str = "data",
    start: str = "earliest",
    format: Format | None = None,
    bad: Literal["refuse", "stream"] = "refuse",
    give_up: Seconds = GIVE_UP_SECONDS,
) -> RedisStream[U]:
    """The entries of a Redis stream, as a source:

        orders = rs.io.redis("redis://127.0.0.1", "orders", Order)
        flow.source(orders, epochs=rs.by_arrival())

    It reads without a consumer group, and after a failure goes on after the last entry that is
    recorded: each counts exactly once, as long as the stream still has it. The stream may be
    trimmed behind the job.

    Args:
        url: `redis://`, or `rediss://` with TLS.
        stream: its name.
        record: the type of the records; each entry is one.
        field: the field of an entry that holds it.
        start: where a job begins that has recorded nothing: `"earliest"` or `"latest"`.
        format: how the field stands for records; `rs.io.formats.json()` unless given.
        bad: what becomes of messages that are no such records: `"refuse"` ends the job, with
            `"stream"` they are in `stream[rs.io.BadMessage]`.
        give_up: after how many seconds without an answer the job ends.

    Raises:
        GraphError: `record` is no type of records.
        ConfigError: an argument cannot be, or the package `redis` is not installed.
    """
    check_record("rs.io.redis", record)
    check_url("redis", url, SCHEMES)
    check_text("redis", "stream", stream)
    check_text("redis", "field", field)
    check_start("redis", start)
    give_up = give_up_of("redis", give_up)
    _check_options(url, package("redis", "redis", "rs.io.redis"))
    made = RedisStream(record, format, url, stream, field, start, give_up)
    made.sifting("rs.io.redis", bad)
    return made


def _check_options(url: str, redis: Any) -> None:
    """Refuse an address with an option that redis-py does not take."""
    try:
        redis.Redis.from_url(url).connection_pool.make_connection()  # it does not connect yet
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"redis({shown_address(url)!r:.80}): redis-py does not take the address:"
            f" {without_secrets(secrets_in(url), str(error))}",
            hint="What follows the question mark are arguments of redis.Redis, such as"
            " ?socket_timeout=5.",
        ) from None


class RedisStream(SubscribedSource[U]):
    """See `redis`. It has one split."""

    def __init__(
        self,
        record: type[U],
        format: Format | None,
        url: str,
        stream: str,
        field: str,
        start: str,
        give_up: float,
    ) -> None:
        super().__init__(record, format, f"redis {stream}", url=url)
        self.url, self.stream, self.field = url, stream, field
        self.start, self.give_up = start, give_up

    def connect(self, split: int, since: int | None) -> MessageConnection:
        return _Entries(self, since)


def number_of(entry: str) -> int:
    """The number of an entry, by its id.

    Raises:
        InputError: the second part of the id is too large.
    """
    first, _, second = entry.partition("-")
    if int(second) >> _BITS:
        raise InputError(f"the id {entry} has a second part above {(1 << _BITS) - 1}")
    return int(first) << _BITS | int(second)


class _Entries(MessageConnection):
    def __init__(self, of: RedisStream[Any], since: int | None) -> None:
        self._of = of
        self._last = "$" if of.start == "latest" else "0-0"
        if since is not None:
            self._last = f"{since >> _BITS}-{since & ((1 << _BITS) - 1)}"

    def messages(self) -> Iterator[Sequence[Incoming]]:
        from redis.exceptions import ConnectionError, TimeoutError

        errors = (OSError, ConnectionError, TimeoutError)
        return again_and_again(self._attempt, errors, self._of)

    def _attempt(self) -> Iterator[Sequence[Incoming]]:
        from redis import Redis
        from redis.exceptions import (
            AuthenticationError,
            ConnectionError,
            NoPermissionError,
            RedisError,
            TimeoutError,
        )

        of = self._of
        with Redis.from_url(of.url) as client:
            while True:
                try:
                    if self._last == "$":  # or nothing would be known of what comes meanwhile
                        self._last = _newest(client, of.stream)
                    found: Any = client.xread(
                        {of.stream: self._last}, TAKEN, block=round(1000 * LOOK_SECONDS)
                    )
                except (AuthenticationError, NoPermissionError) as error:
                    raise refused(of, error) from None
                except (ConnectionError, TimeoutError):
                    raise
                except RedisError as error:
                    hint = "Look at the name of the stream, and at the database in the address."
                    raise missing(of, error, hint) from None
                yield self._taken(_entries(found))

    def _taken(self, entries: Sequence[Any]) -> list[Incoming]:
        found = []
        for name, fields in entries:
            entry = name.decode()
            data = None if fields is None else fields.get(self._of.field.encode())
            if data is None:
                raise InputError(
                    f"{self._of.name}, entry {entry}: there is no field {self._of.field!r}",
                    hint="field= names the one that holds the record.",
                )
            found.append(Incoming(data, number_of(entry)))
            self._last = entry
        return found


def _newest(client: Any, stream: str) -> str:
    """The id of the newest entry of a stream."""
    found = client.xrevrange(stream, count=1)
    newest: str = found[0][0].decode() if found else "0-0"
    return newest


def _entries(found: Any) -> Sequence[Any]:
    """What XREAD has found of the one stream, in the form of any version of the protocol."""
    if not found:
        return ()
    entries: Sequence[Any] = (
        next(iter(found.values()))[0] if isinstance(found, dict) else found[0][1]
    )
    return entries
