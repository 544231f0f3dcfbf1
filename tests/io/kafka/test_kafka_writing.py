"""Messages are handed to the client with all their parts. The broker is librdkafka's own mock."""

from __future__ import annotations

from typing import Any

import pytest

from raystream.io.kafka.journal import JournalRecord, Outgoing
from raystream.io.kafka.settings import Settings
from raystream.io.kafka.writing import TopicWriter, send
from tests.gates import LIMIT_SECONDS

confluent_kafka = pytest.importorskip("confluent_kafka")

MESSAGES = [
    Outgoing(b"k", b"plain"),
    Outgoing(None, b"no key"),
    Outgoing(b"k", None),
    Outgoing(b"k", b"timed", 1_700_000_000_123),
    Outgoing(b"k", b"headed", None, (("h", b"x"), ("i", b"y"))),
    Outgoing(b"k", None, 1_700_000_000_124, (("h", b"z"),)),
]


@pytest.fixture
def broker() -> Any:
    """A client that holds a mock of a broker; its address is the second one."""
    client = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    told = client.list_topics(timeout=LIMIT_SECONDS).brokers[1]
    return client, f"{told.host}:{told.port}"


def read(servers: str, topic: str, number: int) -> list[Any]:
    client = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "reader", "auto.offset.reset": "earliest"}
    )
    client.assign([confluent_kafka.TopicPartition(topic, n, 0) for n in range(4)])
    found: list[Any] = []
    while len(found) < number:
        messages = client.consume(number - len(found), LIMIT_SECONDS)
        assert messages, f"{len(found)} of {number} messages"
        found += [m for m in messages if m.error() is None]
    client.close()
    return found


def test_a_message_has_all_its_parts(broker: Any) -> None:
    """Also where the client holds as many messages as it may, and some have to be sent first."""
    _, servers = broker
    small = {"bootstrap.servers": servers, "queue.buffering.max.messages": 2, "log_level": 0}
    client = confluent_kafka.Producer(small)
    send(client, "out", MESSAGES * 3)
    assert client.flush(LIMIT_SECONDS) == 0
    found = [
        (m.key(), m.value(), m.timestamp()[1], tuple(m.headers() or ()))
        for m in read(servers, "out", 3 * len(MESSAGES))
    ]
    for message in MESSAGES:
        same = [f for f in found if (f[0], f[1], f[3]) == (message[0], message[1], message[3])]
        assert len(same) == 3, message
        if message.timestamp is not None:
            assert {f[2] for f in same} == {message.timestamp}


def test_a_transaction_has_messages_and_records_of_the_journal(broker: Any) -> None:
    _, servers = broker
    writer = TopicWriter(Settings(servers, {"log_level": 0}), "id", "out", "journal", 3)
    writer.init()
    writer.begin()
    writer.note([JournalRecord(b"marks", b"1"), JournalRecord(b"rows", None)])
    writer.send(MESSAGES)
    writer.commit()
    writer.close()
    assert len(read(servers, "out", len(MESSAGES))) == len(MESSAGES)
    notes = [(m.partition(), m.key(), m.value()) for m in read(servers, "journal", 2)]
    assert notes == [(3, b"marks", b"1"), (3, b"rows", None)]
