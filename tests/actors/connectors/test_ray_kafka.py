"""From Kafka to Kafka on real Ray: each message once, though processes that read and write die."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.api.batch import Batch
from raystream.io.kafka.partitions import offset_of
from raystream.io.kafka.sink import TransactionalTopic
from raystream.io.kafka.source import Topics
from tests.kafka_server import Kafka

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]

RECORDS, KEYS, PARTITIONS = 2400, 53, 3


class Event(NamedTuple):
    key: int


class Numbered(NamedTuple):
    key: int
    n: int


class Tally(rs.State):
    n: int = 0


@rs.operator(key="key")
def number(event: Event, tally: Tally) -> Iterator[Numbered]:
    tally.n += 1
    yield Numbered(event.key, tally.n)


def die_once(folder: Path, name: str) -> None:
    with suppress(FileExistsError):
        os.close(os.open(folder / name, os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)


class SlowTopics(Topics[Event]):
    """A topic of which little comes at a time, and other batches each time. Its process dies."""

    folder: Path

    def read(self, split: rs.Split, position: int, /) -> Iterator[Any]:
        import time

        some = 7 + os.getpid() % 11
        for upto, batch, ends in super().read(split, position):
            for lo in range(0, len(batch), some):
                time.sleep(0.03)
                part = batch._columns.slice(lo, min(lo + some, len(batch)))
                at = ends[lo : lo + some]
                if lo < len(batch) // 2 <= lo + some:
                    die_once(self.folder, f"read-{split.name.replace('/', '-')}")
                yield int(at[-1]), Batch._of(part), at
            yield upto, batch.take([]), ends[:0]


class DyingTopic(TransactionalTopic):
    """A sink whose process is killed before and after some of its transactions."""

    folder: Path

    def end_epoch(self, epoch: int, /, *, more: bool) -> None:
        lo = self._opened().context.keys.lo
        if epoch in (3, 11):
            die_once(self.folder, f"write-{epoch}-{lo}")
        super().end_epoch(epoch, more=False)
        if epoch == 17:
            die_once(self.folder, f"write-{epoch}-{lo}")


def dying(made: Any, kind: type, folder: Path) -> Any:
    made.__class__ = kind
    made.folder = folder
    return made


def test_each_message_is_there_once(kafka: Kafka, tmp_path: Path) -> None:
    kafka.topic("events", PARTITIONS)
    kafka.topic("numbered", 2)
    producer = kafka.producer()
    for n in range(RECORDS):
        producer.produce("events", json.dumps({"key": n * n % KEYS}), partition=n % PARTITIONS)
    assert producer.flush(60) == 0
    events = rs.io.kafka("events", Event, servers=kafka.servers, end="latest", group="numbering")
    source = dying(events, SlowTopics, tmp_path)
    assert offset_of(source.splits()[0].begin, 0) == 0
    sink = dying(rs.io.kafka("numbered", servers=kafka.servers, key="key"), DyingTopic, tmp_path)
    flow = rs.Flow("kafka", key_groups=16)
    stream = flow.source(source, name="events").through(number)
    stream.to(sink, name="out")
    report = flow.run(
        cluster="auto", instances={"events": 2, "out": 2}, checkpoint_every=7, spares=1
    )
    assert len(list(tmp_path.glob("read-*"))) == PARTITIONS
    assert len(list(tmp_path.glob("write-*"))) == 6
    assert len(report.recoveries) >= 5  # processes that die at once are replaced together
    read = kafka.read_all("numbered", RECORDS)
    found = [(int(m.key() or b""), json.loads(m.value())["n"]) for m in read]
    expected: dict[int, int] = {}
    for n in range(RECORDS):
        expected[n * n % KEYS] = expected.get(n * n % KEYS, 0) + 1
    assert sorted(found) == sorted(
        (key, n) for key, many in expected.items() for n in range(1, many + 1)
    )
    for key in expected:
        numbers = [n for k, n in found if k == key]
        assert numbers == sorted(numbers), "messages of a key are in order"
