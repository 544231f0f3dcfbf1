"""A real Kafka for tests. Where there can be none, tests skip and say why."""

from __future__ import annotations

import time
from typing import Any

import pytest

from benchmarks.kafka.server import KafkaServer, Unavailable
from tests.gates import LIMIT_SECONDS


class Kafka(KafkaServer):
    """A server, and what tests do with it."""

    def __init__(self) -> None:
        try:
            super().__init__()
        except Unavailable as why:
            pytest.skip(str(why))

    def admin(self) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def topic(self, name: str, partitions: int = 1, **config: str) -> str:
        """Make a topic. config: with underscores in the place of dots."""
        from confluent_kafka.admin import NewTopic

        given = {k.replace("_", "."): v for k, v in config.items()}
        admin = self.admin()
        made = admin.create_topics([NewTopic(name, partitions, 1, config=given)])
        made[name].result(LIMIT_SECONDS)
        return name

    def producer(self, **settings: Any) -> Any:
        from confluent_kafka import Producer

        given = {k.replace("_", "."): v for k, v in settings.items()}
        return Producer({"bootstrap.servers": self.servers, "linger.ms": 1, **given})

    def produce(self, topic: str, *values: bytes | None, **options: Any) -> None:
        """Messages with these values, in order."""
        producer = self.producer()
        for value in values:
            producer.produce(topic, value, **{"partition": 0, **options})
        assert producer.flush(LIMIT_SECONDS) == 0

    def read_all(self, topic: str, number: int) -> list[Any]:
        """As `read`, once there are so many: a committed transaction is seen a little later, when
        the broker has marked its end in each partition."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while len(found := self.read(topic)) < number:
            assert time.monotonic() < deadline, f"{len(found)} messages came in time"
        return found

    def read(self, topic: str, isolation: str = "read_committed") -> list[Any]:
        """All messages of a topic that are there now, by partition and offset."""
        from confluent_kafka import Consumer, KafkaError, TopicPartition

        client = Consumer(
            {"bootstrap.servers": self.servers, "group.id": "reader", "isolation.level": isolation,
             "enable.auto.commit": False, "enable.partition.eof": True,
             "auto.offset.reset": "earliest"}
        )  # fmt: skip
        numbers = client.list_topics(topic, timeout=10).topics[topic].partitions
        client.assign([TopicPartition(topic, n, 0) for n in numbers])
        found, left = [], set(numbers)
        until = time.monotonic() + LIMIT_SECONDS
        while left:
            assert time.monotonic() < until, "the end of the topic does not come"
            message = client.poll(1.0)
            if message is None:
                continue
            if message.error() is None:
                found.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
        client.close()
        return sorted(found, key=lambda m: (m.partition(), m.offset()))
