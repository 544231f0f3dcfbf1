"""A stream of NATS JetStream, as a source."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeVar

from raystream.api.arguments import check_record
from raystream.errors import placed
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

TAKEN = 500
ANSWER_SECONDS = 5


@placed
def nats(
    url: str,
    subject: str,
    record: type[U],
    /,
    *,
    stream: str | None = None,
    start: str = "earliest",
    format: Format | None = None,
    bad: Literal["refuse", "stream"] = "refuse",
    give_up: Seconds = GIVE_UP_SECONDS,
) -> NatsStream[U]:
    """The messages of a JetStream stream, as a source:

        orders = rs.io.nats("nats://127.0.0.1:4222", "orders.>", Order)
        flow.source(orders, epochs=rs.by_arrival())

    After a failure it goes on after the last message that is recorded, by its number in the
    stream: each counts exactly once, as long as the stream still has it. It keeps no consumer at
    the server.

    Args:
        url: `nats://`, or `tls://`; a user and password may be in it.
        subject: which messages, with `*` and `>` as NATS has it.
        record: the type of the records; each message is one.
        stream: the name of the stream; unless given the one that has the subject.
        start: where a job begins that has recorded nothing: `"earliest"` or `"latest"`.
        format: how messages stand for records; `rs.io.formats.json()` unless given.
        bad: what becomes of messages that are no such records: `"refuse"` ends the job, with
            `"stream"` they are in `stream[rs.io.BadMessage]`.
        give_up: after how many seconds without a connection the job ends.

    Raises:
        GraphError: `record` is no type of records.
        ConfigError: an argument cannot be, or the package `nats-py` is not installed.
    """
    check_record("rs.io.nats", record)
    check_url("nats", url, ("nats://", "tls://"))
    check_text("nats", "subject", subject)
    if stream is not None:
        check_text("nats", "stream", stream)
    check_start("nats", start)
    give_up = give_up_of("nats", give_up)
    package("nats", "nats", "rs.io.nats")
    made = NatsStream(record, format, url, subject, stream, start, give_up)
    made.sifting("rs.io.nats", bad)
    return made


class NatsStream(SubscribedSource[U]):
    """See `nats`. It has one split."""

    def __init__(
        self,
        record: type[U],
        format: Format | None,
        url: str,
        subject: str,
        stream: str | None,
        start: str,
        give_up: float,
    ) -> None:
        super().__init__(record, format, f"nats {subject}", url=url)
        self.url, self.subject, self.stream = url, subject, stream
        self.start, self.give_up = start, give_up

    def connect(self, split: int, since: int | None) -> MessageConnection:
        return _Numbered(self, since)


class _Numbered(MessageConnection):
    """Its loop runs only while it waits for messages."""

    def __init__(self, of: NatsStream[Any], since: int | None) -> None:
        self._of, self._last = of, since

    def messages(self) -> Iterator[Sequence[Incoming]]:
        from nats.errors import Error

        errors = (OSError, EOFError, Error)
        return again_and_again(self._attempt, errors, self._of)

    def _attempt(self) -> Iterator[Sequence[Incoming]]:
        from nats.js.errors import APIError, NotFoundError

        with asyncio.Runner() as runner:
            client = self._let_in(runner)
            try:
                subscription = runner.run(self._subscribed(client))
                yield ()
                while True:
                    yield runner.run(self._taken(client, subscription))
            except NotFoundError:
                stream = f"no stream {self._of.stream}" if self._of.stream else "no stream with it"
                hint = "Make the stream first, or correct the name."
                raise missing(self._of, f"there is {stream}", hint) from None
            except APIError as error:
                said = error.description or error
                raise missing(self._of, said, "Is there a stream with that subject?") from None
            finally:
                runner.run(_closed(client))

    def _let_in(self, runner: asyncio.Runner) -> Any:
        from nats.errors import Error

        try:
            return runner.run(self._connected())
        except Error as error:
            if "authorization violation" in str(error).lower():
                raise refused(self._of, "the server does not let this user in") from None
            raise

    async def _connected(self) -> Any:
        from nats.aio.client import Client
        from nats.errors import NoServersError

        causes: list[Exception] = []

        async def note(error: Exception) -> None:
            """The connection is made again by `again_and_again`, which says what is wrong."""
            causes.append(error)

        class Careful(Client):
            """Sends no password in the clear where TLS is asked for. nats-py does, if the server
            does not offer TLS."""

            def _connect_command(self) -> bytes:
                if tls and not self._server_info.get("tls_required"):
                    raise plain
                return super()._connect_command()

        tls = self._of.url.startswith("tls://")
        plain = refused(
            self._of, "the server does not encrypt", "Use nats://, or set up TLS there."
        )
        client = Careful()
        try:
            async with asyncio.timeout(2 * ANSWER_SECONDS):
                await client.connect(
                    self._of.url,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    connect_timeout=ANSWER_SECONDS,
                    error_cb=note,
                )
        except (NoServersError, TimeoutError) as error:  # which do not say why
            await _closed(client)
            raise next((c for c in causes if isinstance(c, OSError)), error) from None
        except BaseException:
            await _closed(client)  # it keeps the connection of a server that does not let it in
            raise
        return client

    async def _subscribed(self, client: Any) -> Any:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        of, stream = self._of, client.jetstream()
        config = ConsumerConfig(
            ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL, inactive_threshold=60
        )
        if self._last is None and of.start == "latest":
            # The place is decided once: a connection that breaks before a message has come
            # does not move it.
            name = of.stream or await stream.find_stream_name_by_subject(of.subject)
            self._last = (await stream.stream_info(name)).state.last_seq
        if self._last is not None:
            config.deliver_policy = DeliverPolicy.BY_START_SEQUENCE
            config.opt_start_seq = self._last + 1
        return await stream.pull_subscribe(of.subject, stream=of.stream, config=config)

    async def _taken(self, client: Any, subscription: Any) -> list[Incoming]:
        from nats.errors import TimeoutError

        if client.is_closed or not client.is_connected:
            raise EOFError("the connection has ended")
        try:
            messages = await subscription.fetch(TAKEN, timeout=LOOK_SECONDS)
        except TimeoutError:
            return []
        found = [Incoming(m.data, m.metadata.sequence.stream) for m in messages]
        if found:
            self._last = found[-1].number
        return found


async def _closed(client: Any) -> None:
    """Close a client. One whose TLS has failed would wait for ever."""
    with suppress(Exception):
        async with asyncio.timeout(ANSWER_SECONDS):
            await client.close()
