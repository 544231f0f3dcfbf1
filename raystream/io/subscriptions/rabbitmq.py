"""A queue of RabbitMQ, as a source."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, TypeVar

from raystream.api.arguments import check_record, whole
from raystream.api.looking import counted
from raystream.errors import ConfigError, placed
from raystream.io.addresses import shown_address
from raystream.io.formats.base import Format
from raystream.io.subscriptions.base import (
    LOOK_SECONDS,
    Incoming,
    MessageConnection,
    SubscribedSource,
    missing,
    package,
    refused,
    unreachable,
)
from raystream.io.subscriptions.options import check_text, check_url, give_up_of
from raystream.io.subscriptions.waiting import GIVE_UP_SECONDS, again_and_again, taken
from raystream.schema.fields import AnyRecord
from raystream.schema.lengths import Seconds

U = TypeVar("U", bound=AnyRecord)

ANSWER_SECONDS = 10
"""How long the broker may take to answer."""
NOT_FOUND = 404


@placed
def rabbitmq(
    url: str,
    name: str,
    record: type[U],
    /,
    *,
    prefetch: int = 1000,
    splits: int = 1,
    format: Format | None = None,
    bad: Literal["refuse", "stream"] = "refuse",
    give_up: Seconds = GIVE_UP_SECONDS,
) -> RabbitQueue[U]:
    """The messages of a queue of RabbitMQ, as a source. Each is acknowledged when the job has
    recorded it:

        orders = rs.io.rabbitmq("amqp://user:password@broker", "orders", Order)
        flow.source(orders, epochs=rs.by_arrival())

    What was recorded and not acknowledged when a process died comes again. A message with a
    message id is known by it and counts once, among the last 10,000 messages of a split and within
    a day. Messages without one are at least once. With several splits a message may come to
    another one, and counts twice.

    Args:
        url: `amqp://`, or `amqps://` with TLS; user, password and virtual host are in it.
        name: of the queue, which has to be there.
        record: the type of the records; the body of each message is one.
        prefetch: how many messages may come to a split before the first of them is recorded.
        splits: how many consumers there are, which may be on as many instances.
        format: how bodies stand for records; `rs.io.formats.json()` unless given.
        bad: what becomes of messages that are no such records: `"refuse"` ends the job, with
            `"stream"` they are in `stream[rs.io.BadMessage]`.
        give_up: after how many seconds without a connection the job ends.

    Raises:
        GraphError: `record` is no type of records.
        ConfigError: an argument cannot be, or the package `pika` is not installed.
    """
    check_record("rs.io.rabbitmq", record)
    check_url("rabbitmq", url, ("amqp://", "amqps://"))
    check_text("rabbitmq", "name", name)
    give_up = give_up_of("rabbitmq", give_up)
    prefetch = whole("rabbitmq", "prefetch", prefetch, 1, (1 << 16) - 1, ConfigError)
    splits = whole("rabbitmq", "splits", splits, 1, 1024, ConfigError)
    pika = package("pika", "rabbitmq", "rs.io.rabbitmq")
    try:
        pika.URLParameters(url)
    except Exception:
        raise ConfigError(
            f"rabbitmq({shown_address(url)!r:.80}): the address cannot be read",
            hint="amqp://user:password@host:port/vhost?heartbeat=60: what follows the question mark"
            " are options of pika.URLParameters.",
        ) from None
    made = RabbitQueue(record, format, url, name, prefetch, splits, give_up)
    made.sifting("rs.io.rabbitmq", bad)
    return made


class RabbitQueue(SubscribedSource[U]):
    """See `rabbitmq`."""

    def __init__(
        self,
        record: type[U],
        format: Format | None,
        url: str,
        queue: str,
        prefetch: int,
        splits: int,
        give_up: float,
    ) -> None:
        super().__init__(record, format, f"rabbitmq {queue}", splits, url)
        self.url, self.queue, self.prefetch, self.give_up = url, queue, prefetch, give_up

    def connect(self, split: int, since: int | None) -> MessageConnection:
        return _Consumer(self)

    def look(self) -> str:
        """See how many messages there are, and take none."""
        try:
            connection = _connected(self)
            try:
                with _told(self):
                    declared = connection.channel().queue_declare(self.queue, passive=True)
            finally:
                _close(connection)
        except (OSError, EOFError) as error:
            raise unreachable(self.once(), error) from None
        return f"{self.place} has {counted(declared.method.message_count, 'message')}"


def _connected(of: RabbitQueue[Any]) -> Any:
    """A connection to the broker.

    Raises:
        EOFError: there is none now. InputError: the broker refuses.
    """
    import pika
    from pika.exceptions import (
        AMQPConnectionError,
        ProbableAccessDeniedError,
        ProbableAuthenticationError,
    )

    logging.getLogger("pika").addHandler(logging.NullHandler())  # or it writes to the terminal
    given = pika.URLParameters(of.url)
    given.socket_timeout = given.stack_timeout = ANSWER_SECONDS
    given.blocked_connection_timeout = ANSWER_SECONDS
    given.connection_attempts = 1
    try:
        return pika.BlockingConnection(given)
    except (ProbableAccessDeniedError, ProbableAuthenticationError) as error:
        said = str(error.args[-1]) if error.args else type(error).__name__
        raise refused(of, said, "Look at the user, the password and the virtual host.") from None
    except AMQPConnectionError as error:
        cause = error.args[0] if error.args else error
        said = getattr(cause, "exception", cause)
        words = str(said).strip() or type(said).__name__
        raise EOFError(f"no connection to {given.host}:{given.port}: {words}") from None


@contextmanager
def _told(of: RabbitQueue[Any]) -> Iterator[None]:
    """Raise what pika raises as errors of a source.

    Raises:
        InputError: the broker refuses. EOFError: the connection has ended.
    """
    from pika.exceptions import AMQPError, ChannelClosedByBroker

    try:
        yield
    except ChannelClosedByBroker as error:
        if error.reply_code == NOT_FOUND:
            hint = "Make the queue first, or correct its name."
            raise missing(of, error.reply_text, hint) from None
        raise refused(of, error.reply_text, "May this user read the queue?") from None
    except AMQPError as error:
        raise EOFError(f"the connection has ended: {type(error).__name__}") from None


def _close(connection: Any) -> None:
    with suppress(Exception):  # it has ended
        connection.close()


class _Consumer(MessageConnection):
    """Its connection is served by a thread, which also answers the broker's heartbeats: the job may
    wait for minutes before it takes more."""

    def __init__(self, of: RabbitQueue[Any]) -> None:
        self._of = of
        self._lock = threading.Lock()
        self._now: tuple[Any, Any] | None = None
        """The connection and the channel on which messages come."""

    def messages(self) -> Iterator[Sequence[Incoming]]:
        errors = (OSError, EOFError)
        return again_and_again(self._attempt, errors, self._of)

    def _attempt(self) -> Iterator[Sequence[Incoming]]:
        came: queue.Queue[Any] = queue.Queue()
        stopping = threading.Event()
        connection = _connected(self._of)
        try:
            channel = self._consuming(connection, came)
        except BaseException:
            _close(connection)
            raise
        thread = threading.Thread(
            target=_serve, args=(connection, came, stopping), name="rabbitmq", daemon=True
        )
        thread.start()
        with self._lock:
            self._now = (connection, channel)
        try:
            yield ()
            while True:
                found = taken(came)
                for _, some in itertools.groupby(found, lambda m: m.number is None):
                    yield [*some]
                if not found:
                    yield ()
        finally:
            self.close()
            stopping.set()
            with suppress(Exception):
                connection.add_callback_threadsafe(_nothing)  # so that the thread looks
            thread.join(ANSWER_SECONDS)

    def _consuming(self, connection: Any, came: queue.Queue[Any]) -> Any:
        """A channel that puts messages into a queue when the connection is served.

        Raises:
            InputError: the broker refuses. EOFError: the connection has ended.
        """

        def message(_: Any, method: Any, properties: Any, body: bytes) -> None:
            token = (channel, method.delivery_tag)
            if properties.message_id:
                came.put(Incoming(body, 1, token, properties.message_id))
            else:
                came.put(Incoming(body, None, token))

        with _told(self._of):
            channel = connection.channel()
            channel.basic_qos(prefetch_count=self._of.prefetch)
            channel.add_on_cancel_callback(lambda _: came.put(EOFError("the queue is gone")))
            channel.basic_consume(self._of.queue, message)
        return channel

    def acknowledge(self, tokens: Sequence[Any]) -> None:
        with self._lock:
            if self._now is None:
                return
            connection, channel = self._now
        # Another connection would mean other messages by these numbers.
        mine = [tag for of, tag in tokens if of is channel]
        if not mine:
            return

        def tell() -> None:
            with suppress(Exception):  # it comes again
                channel.basic_ack(max(mine), multiple=True)  # all before it are recorded, too

        with suppress(Exception):
            connection.add_callback_threadsafe(tell)

    def close(self) -> None:
        with self._lock:
            self._now = None


def _serve(connection: Any, came: queue.Queue[Any], stopping: threading.Event) -> None:
    """Serve a connection, which no other thread uses, and put into a queue how it ends."""
    from pika.exceptions import AMQPError

    try:
        while not stopping.is_set():
            connection.process_data_events(time_limit=LOOK_SECONDS)
        connection.process_data_events(time_limit=0)  # what was acknowledged at the end
    except AMQPError as error:
        came.put(EOFError(f"the connection has ended: {type(error).__name__}"))
    except Exception as error:
        came.put(error)  # or the job would wait for ever
    finally:
        _close(connection)


def _nothing() -> None:
    """Wakes a thread."""
