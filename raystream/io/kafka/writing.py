"""What a sink writes to a cluster: messages to its topic, records to the journal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from zlib import crc32

from raystream.errors import OutputError
from raystream.io.kafka.client import (
    ASK_SECONDS,
    admin,
    admin_types,
    cause_of,
    consumer,
    driver,
    is_refused,
    producer,
    words_of,
)
from raystream.io.kafka.journal import JournalRecord, Outgoing
from raystream.io.kafka.settings import Settings

TRANSACTION_SECONDS = 30.0
"""How long one step of a transaction may take."""
PARTITIONS = 8
"""How many partitions the journal has at least. A sink's records are in one of them."""
JOURNAL = {
    "cleanup.policy": "compact",
    "segment.bytes": str(16 << 20),
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}
"""The settings of a journal that is made here. It is read up to its end by each instance that
begins, so it is to be compacted early."""


class TopicWriter:
    """Writes messages in transactions, under an id."""

    def __init__(self, settings: Settings, id: str, topic: str, journal: str, at: int) -> None:
        self._topic, self._journal, self._at = topic, journal, at
        self._client = producer(settings, id)

    def init(self) -> None:
        self._client.init_transactions(TRANSACTION_SECONDS)

    def begin(self) -> None:
        self._client.begin_transaction()

    def send(self, messages: Sequence[Outgoing]) -> None:
        send(self._client, self._topic, messages)

    def note(self, entries: Sequence[JournalRecord]) -> None:
        for key, value in entries:
            _put(self._client, self._journal, value, key, self._at)

    def commit(self) -> None:
        self._client.commit_transaction(TRANSACTION_SECONDS)

    def abort(self) -> None:
        self._client.abort_transaction(TRANSACTION_SECONDS)

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                client.purge()  # or it would wait for messages that are not to be sent any more


def send(client: Any, topic: str, messages: Sequence[Outgoing]) -> None:
    """Hand messages to a client, which sends them soon."""
    produce = client.produce
    for key, value, at, headers in messages:
        try:  # arguments by place take half the time of those by name
            if at is None and not headers:
                produce(topic, value, key)
            else:
                produce(topic, value, key, timestamp=at or 0, headers=list(headers))
        except BufferError:
            _put(client, topic, value, key, timestamp=at or 0, headers=list(headers))
    client.poll(0)


def _put(client: Any, *message: Any, **more: Any) -> None:
    while True:
        try:
            client.produce(*message, **more)
            return
        except BufferError:
            client.poll(0.05)  # it holds as many as it may: some have to be sent first


class Topic:
    """A topic that a sink writes to, and the journal.

    Args:
        topic: the target. create: whether it is made if it is not there.
        journal: the topic of the journal. sink: the name of the sink there.
        table: the target, for messages.
    """

    def __init__(
        self, settings: Settings, topic: str, journal: str, sink: str, table: str, *, create: bool
    ) -> None:
        self._settings, self._topic, self._journal = settings, topic, journal
        self._at = crc32(sink.encode()) % PARTITIONS
        self._table, self._create = table, create
        self._admin: Any = None

    def prepare(self) -> None:
        """Make the topics that are missing.

        Raises:
            OutputError: the topic is missing and is not to be made, or the topic that should be the
                journal was made for something else.
        """
        client = self._asked()
        made: dict[str, tuple[int, dict[str, str]]] = {}
        if self._create and not partitions_there(client, self._topic):
            made[self._topic] = (-1, {})
        if not (there := partitions_there(client, self._journal)):
            made[self._journal] = (PARTITIONS, JOURNAL)
        make_topics(client, made)
        if not self._create and not partitions_there(client, self._topic):
            raise OutputError(f"{self._table} is not there", hint="Make it, or say create=True.")
        if there:
            self._refuse_journal(client, there)

    def _refuse_journal(self, client: Any, partitions: int) -> None:
        policy = policy_of(client, self._journal)
        if partitions < PARTITIONS or policy not in (None, "compact"):
            raise OutputError(
                f"{self._table}: the topic {self._journal} cannot be its journal: it has"
                f" {partitions} partitions and the policy {policy}, and what it says must not be"
                " lost.",
                hint=f"Make it with {PARTITIONS} partitions and cleanup.policy=compact, or leave"
                " it to the job, or name another one with journal=.",
            )

    def writer(self, id: str) -> TopicWriter:
        return TopicWriter(self._settings, id, self._topic, self._journal, self._at)

    def read(self, *, whole: bool) -> list[JournalRecord]:
        place = driver().TopicPartition(self._journal, self._at)
        end = end_of(self._asked(), place) if whole else 0
        client = consumer(self._settings, None)
        try:
            low, _ = client.get_watermark_offsets(place, ASK_SECONDS)
            client.assign([driver().TopicPartition(self._journal, self._at, low)])
            return _upto(client, end)
        finally:
            client.close()

    def _asked(self) -> Any:
        if self._admin is None:
            self._admin = admin(self._settings)
        return self._admin

    def close(self) -> None:
        self._admin = None


def _upto(client: Any, end: int) -> list[JournalRecord]:
    """The records up to an offset, or to the end of what is committed if that is later."""
    codes, found = driver().KafkaError, []
    waited = 0.0
    while True:
        first = client.poll(ASK_SECONDS)
        if first is None:
            waited += ASK_SECONDS
            if waited > _WAITED_MOST:
                raise driver().KafkaException(
                    codes(codes._TIMED_OUT, "a transaction of another instance stays open")
                )
            continue
        for message in [first, *client.consume(5_000, 0)]:
            error = message.error()
            if error is None:
                found.append(JournalRecord(message.key(), message.value()))
            elif error.code() != codes._PARTITION_EOF:
                raise driver().KafkaException(error)
            elif message.offset() >= end:
                return found


_WAITED_MOST = 90.0
"""How long open transactions of other instances are waited for: the cluster undoes those of dead
ones before that."""


def end_of(client: Any, place: Any) -> int:
    """The offset after all that was written to a partition, decided or not. client: an admin."""
    asked = client.list_offsets(
        {place: admin_types().OffsetSpec.latest()},
        isolation_level=driver().IsolationLevel.READ_UNCOMMITTED,
        request_timeout=ASK_SECONDS,
    )
    return int(asked[place].result(ASK_SECONDS).offset)


def partitions_there(client: Any, topic: str) -> int:
    """How many partitions a topic has; 0 if it is not there."""
    kafka = driver().KafkaException
    try:
        found = client.list_topics(topic, ASK_SECONDS).topics.get(topic)
    except kafka as error:
        raise kafka(cause_of(client, error.args[0])) from None
    if found is None or (found.error is not None and not found.partitions):
        if found is not None and is_refused(found.error):
            raise kafka(found.error)
        return 0
    return len(found.partitions)


def make_topics(client: Any, wanted: dict[str, tuple[int, dict[str, str]]]) -> None:
    """Make topics, of so many partitions and with these settings; -1: as many as is usual. One that
    another instance makes meanwhile is fine."""
    if not wanted:
        return
    new = admin_types().NewTopic
    asked = client.create_topics(
        [new(name, number, -1, config=config) for name, (number, config) in wanted.items()],
        request_timeout=ASK_SECONDS,
    )
    for made in asked.values():
        try:
            made.result(ASK_SECONDS)
        except driver().KafkaException as error:
            if error.args[0].code() != driver().KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    for name in wanted:
        _known(client, name)


def _known(client: Any, topic: str) -> None:
    """Wait until the cluster answers with a topic that was just made."""
    for _ in range(100):
        if partitions_there(client, topic):
            return
        client.poll(0.05)
    code = driver().KafkaError
    raise driver().KafkaException(code(code.UNKNOWN_TOPIC_OR_PART, f"{topic} does not appear"))


def policy_of(client: Any, topic: str) -> str | None:
    """The cleanup policy of a topic; None if it may not be asked for."""
    resource = admin_types().ConfigResource("topic", topic)
    asked = client.describe_configs([resource], request_timeout=ASK_SECONDS)
    try:
        return str(asked[resource].result(ASK_SECONDS)["cleanup.policy"].value)
    except driver().KafkaException as error:
        if is_refused(error.args[0]):
            return None
        raise


def explained(settings: Settings, error: Exception) -> str:
    """An error of a client in words, without what is secret."""
    return settings.words(words_of(error))
