"""Topics of an MQTT broker, as a source."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar

from raystream.api.arguments import check_record, whole
from raystream.errors import ConfigError, placed
from raystream.io.formats.base import Format
from raystream.io.subscriptions.base import (
    Incoming,
    MessageConnection,
    SubscribedSource,
    package,
    refused,
)
from raystream.io.subscriptions.options import check_text, give_up_of
from raystream.io.subscriptions.waiting import GIVE_UP_SECONDS, again_and_again, taken
from raystream.schema.fields import AnyRecord
from raystream.schema.lengths import Seconds

U = TypeVar("U", bound=AnyRecord)

KEEPALIVE_SECONDS = 30
ANSWER_SECONDS = 10.0
"""How long the broker may take to answer."""
NOT_NOW = (0x88, 0x89, 0x97)
"""What a broker says that is starting, or has too much to do."""
IN_FLIGHT = 1000
"""How many messages may come before the first of them is acknowledged."""


@placed
def mqtt(
    host: str,
    topic: str,
    record: type[U],
    /,
    *,
    client: str,
    port: int = 1883,
    splits: int = 1,
    user: str | None = None,
    password: str | None = None,
    tls: bool = False,
    format: Format | None = None,
    bad: Literal["refuse", "stream"] = "refuse",
    give_up: Seconds = GIVE_UP_SECONDS,
) -> Mqtt[U]:
    """The messages of MQTT topics, as a source. Each is acknowledged when the job has recorded it:

        rooms = rs.io.mqtt("broker", "rooms/#", Reading, client="rooms-job")
        flow.source(rooms, epochs=rs.by_arrival())

    It subscribes with QoS 1 and a session that outlives connections, so the broker keeps what comes
    without a connection, and sends again what was not acknowledged: at least once. A message that
    was recorded by a process that died before it could acknowledge comes twice. The session
    begins with the first connection, and is the broker's to keep after the job has ended.

    Args:
        host: the broker.
        topic: a topic, with `+` and `#` as MQTT has it.
        record: the type of the records; each message is one.
        client: names the session at the broker; no other client has this name.
        port: of the broker.
        splits: with more than one, a shared subscription: the broker deals the messages out to as
            many sessions.
        user, password: for the broker.
        tls: whether to connect with TLS.
        format: how messages stand for records; `rs.io.formats.json()` unless given.
        bad: what becomes of messages that are no such records: `"refuse"` ends the job, with
            `"stream"` they are in `stream[rs.io.BadMessage]`.
        give_up: after how many seconds without a connection the job ends.

    Raises:
        GraphError: `record` is no type of records.
        ConfigError: an argument cannot be, or the package `paho-mqtt` is not installed.
    """
    check_record("rs.io.mqtt", record)
    for argument, value in (("host", host), ("topic", topic), ("client", client)):
        check_text("mqtt", argument, value)
    if not _HOST.fullmatch(host):
        shown = "..." if "@" in host else f"{host!r:.80}"
        raise ConfigError(
            f"mqtt({shown}): the name or the address of a machine, and nothing else",
            hint="port=, user=, password= and tls=True say the rest.",
        )
    if not _is_filter(topic):
        raise ConfigError(
            f"mqtt({topic!r:.80}): no topic of MQTT",
            hint="+ and # stand for whole levels, and # for the last ones: rooms/+/heat, rooms/#.",
        )
    if (user is not None and not isinstance(user, str)) or not isinstance(password, str | None):
        raise ConfigError("mqtt(user=..., password=...): text")
    if user is None and password is not None:
        raise ConfigError("mqtt(password=...) needs user=")
    if not isinstance(tls, bool):
        raise ConfigError(f"mqtt(tls={tls!r:.80}): True or False")
    give_up = give_up_of("mqtt", give_up)
    port = whole("mqtt", "port", port, 1, (1 << 16) - 1, ConfigError)
    splits = whole("mqtt", "splits", splits, 1, 1024, ConfigError)
    package("paho.mqtt.client", "mqtt", "rs.io.mqtt")
    login = None if user is None else (user, password)
    made = Mqtt(
        record,
        format,
        (host, port, tls),
        topic,
        client,
        splits,
        login,
        give_up,
    )
    made.sifting("rs.io.mqtt", bad)
    return made


_HOST = re.compile(r"[\w.-]+|[0-9a-fA-F:]+(%\w+)?")


def _is_filter(topic: str) -> bool:
    """Whether one may subscribe to it."""
    levels = topic.split("/")
    wild = all(one in ("+", "#") or not {"+", "#"} & {*one} for one in levels)
    return wild and "#" not in levels[:-1] and "\0" not in topic


class Mqtt(SubscribedSource[U]):
    """See `mqtt`."""

    def __init__(
        self,
        record: type[U],
        format: Format | None,
        broker: tuple[str, int, bool],
        topic: str,
        client: str,
        splits: int,
        login: tuple[str, str | None] | None,
        give_up: float,
    ) -> None:
        host, port, tls = broker
        url = f"mqtt{'s' * tls}://{f'[{host}]' if ':' in host else host}:{port}"
        super().__init__(record, format, f"mqtt {topic}", splits, url)
        self.broker, self.topic, self.client, self.login = broker, topic, client, login
        self.give_up = give_up
        self.lasting = True
        """Whether the broker keeps the session, with what comes meanwhile."""

    def connect(self, split: int, since: int | None) -> MessageConnection:
        return _Session(self, split)

    def trial(self) -> MessageConnection:
        """In a session without a name, which the broker forgets: that of a job goes on."""
        once = self.once()
        once.client, once.number, once.lasting = "", 1, False
        return once.connect(0, None)


class _Session(MessageConnection):
    """The session of a split. A connection under its name ends the one before."""

    def __init__(self, of: Mqtt[Any], split: int) -> None:
        self._of = of
        several = of.number > 1
        self._name = f"{of.client}-{split}" if several else of.client
        self._topic = f"$share/{of.client}/{of.topic}" if several else of.topic
        self._lock = threading.Lock()
        self._client: Any = None

    def messages(self) -> Iterator[Sequence[Incoming]]:
        errors = (OSError, EOFError)
        return again_and_again(self._attempt, errors, self._of)

    def _attempt(self) -> Iterator[Sequence[Incoming]]:
        came: queue.Queue[Incoming | BaseException | None] = queue.Queue()
        client = self._made(came)
        try:
            host, port, _ = self._of.broker
            client.connect(host, port, keepalive=KEEPALIVE_SECONDS)
            client.loop_start()
            self._ready(came)
            with self._lock:
                self._client = client
            yield ()
            while True:
                yield taken(came)
        finally:
            self.close()
            client.disconnect()
            client.loop_stop()

    def _made(self, came: queue.Queue[Any]) -> Any:
        """A client that puts what comes into a queue; None once it has subscribed."""
        import paho.mqtt.client as paho
        from paho.mqtt.enums import CallbackAPIVersion

        client = paho.Client(
            CallbackAPIVersion.VERSION2, self._name, clean_session=not self._of.lasting,
            manual_ack=True, reconnect_on_failure=False,
        )  # fmt: skip
        client.max_inflight_messages_set(IN_FLIGHT)
        if self._of.login is not None:
            client.username_pw_set(*self._of.login)
        if self._of.broker[2]:
            client.tls_set()

        def connected(_: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
            if reason.value in NOT_NOW:
                came.put(EOFError(f"the broker takes no connection: {reason}"))
            elif reason.is_failure:
                came.put(refused(self._of, reason))
            else:
                client.subscribe(self._topic, qos=1)

        def subscribed(_: Any, __: Any, ___: Any, reasons: Any, ____: Any) -> None:
            bad = [reason for reason in reasons if reason.is_failure]
            came.put(refused(self._of, f"the subscription, {bad[0]}") if bad else None)

        def message(_: Any, __: Any, one: Any) -> None:
            came.put(Incoming(one.payload, None, (client, one.mid, one.qos)))

        def gone(_: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
            came.put(EOFError(f"the connection has ended: {reason}"))

        client.on_connect, client.on_subscribe = connected, subscribed
        client.on_message, client.on_disconnect = message, gone
        return client

    def _ready(self, came: queue.Queue[Any]) -> None:
        """Wait until it has subscribed. What a session kept may come before that."""
        before = []
        while True:
            try:
                one = came.get(timeout=ANSWER_SECONDS)
            except queue.Empty:
                raise TimeoutError("the broker does not answer") from None
            if isinstance(one, BaseException):
                raise one
            if one is None:
                break
            before.append(one)
        for one in before:
            came.put(one)

    def acknowledge(self, tokens: Sequence[Any]) -> None:
        with self._lock:
            now = self._client
            for client, mid, qos in tokens:
                if client is now and qos:  # another connection would mean other messages by it
                    client.ack(mid, qos)

    def close(self) -> None:
        with self._lock:
            self._client = None
