"""Topics of a real Kafka as a source."""

from __future__ import annotations

import importlib
import json
import re
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.api.looking import look_at
from raystream.errors import ConfigError, InputError, OutputError, RaystreamError
from raystream.io.kafka import partitions, reading, writing
from raystream.io.kafka.partitions import position_of
from raystream.io.kafka.reading import PartitionReader
from raystream.io.kafka.settings import settings_of
from raystream.testing import Collect
from tests.docs.test_docs import blocks
from tests.gates import LIMIT_SECONDS, until
from tests.kafka_server import Kafka


class Order(NamedTuple):
    time: int
    shop: str
    n: int


def values(*numbers: int) -> list[bytes | None]:
    return [json.dumps({"n": n, "time": n}).encode() for n in numbers]


def orders(kafka: Kafka, topic: Any, **options: Any) -> Any:
    return rs.io.kafka(topic, Order, servers=kafka.servers, key="shop", **options)


def run(source: Any, epochs: Any = None, **options: Any) -> list[Any]:
    flow, sink = rs.Flow("orders", key_groups=8), Collect()
    flow.source(source, epochs=epochs or rs.by_arrival(seconds=0.01)).to(sink)
    flow.run(**options)
    return sink.records()


def test_what_is_there_is_read_once(kafka: Kafka) -> None:
    kafka.topic("read", 2)
    kafka.produce("read", *values(1, 2, 3), key=b"north")
    kafka.produce("read", *values(4, 5), key=b"south", partition=1)
    kafka.topic("empty")
    found = run(orders(kafka, ["read", "empty"], end="latest"))
    assert sorted((r.n, r.shop) for r in found) == [
        (1, "north"), (2, "north"), (3, "north"), (4, "south"), (5, "south"),
    ]  # fmt: skip
    by_time = run(orders(kafka, "read", end="latest"), rs.by_time("time", seconds=2))
    assert sorted(by_time) == sorted(found)
    assert [r.n for r in run(orders(kafka, "read", end="latest", start={"read/0": 2}))
            if r.shop == "north"] == [3]  # fmt: skip
    assert run(orders(kafka, "read", end="latest", start="latest")) == []
    assert [r.n for r in run(orders(kafka, "read", end={"read/0": 1, "read/1": 0}))] == [1]
    with pytest.raises(InputError, match="end= names read/7"):
        orders(kafka, "read", end={"read/7": 1}).splits()
    source = orders(kafka, "read")
    assert source.check() == "2 partitions, 5 offsets; read a record (Order) of read/0"
    assert look_at(source) == "2 splits; read a record (Order) of read/0"
    assert orders(kafka, "empty").check() == "1 partition, 0 offsets; no records now"


class Enough(Exception):
    """A test has seen what it waits for."""


def broken_off(flow: rs.Flow, **options: Any) -> threading.Thread:
    """Run a flow that ends by `Enough`."""

    def job() -> None:
        with pytest.raises(RaystreamError, match="Enough"):
            flow.run(**options)

    thread = threading.Thread(target=job)
    thread.start()
    return thread


def drain(take: Callable[[], Any]) -> None:
    """Go on until an error comes."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        take()


def test_it_begins_at_a_time(kafka: Kafka) -> None:
    kafka.topic("timed")
    now = datetime.now(UTC).replace(microsecond=0)
    for n in range(3):
        at = now - timedelta(minutes=10 - n)
        kafka.produce("timed", *values(n), key=b"x", timestamp=int(at.timestamp() * 1000))
    since = orders(kafka, "timed", end="latest", start=now - timedelta(minutes=9))
    assert [r.n for r in run(since)] == [1, 2]
    assert run(orders(kafka, "timed", end="latest", start=now)) == []


def test_nothing_now_does_not_block_and_later_records_come(kafka: Kafka) -> None:
    """Also in one process, where other partitions have nothing."""
    kafka.topic("later", 3)
    found: list[int] = []

    def take(batch: Any) -> None:
        found.extend(r.n for r in batch.records())
        if 4 in found:
            raise Enough

    flow = rs.Flow("later")
    source = orders(kafka, "later")
    flow.source(source, epochs=rs.by_arrival(seconds=0.01)).to(rs.io.callable(take))
    job = broken_off(flow)
    kafka.produce("later", *values(1, 2), key=b"x", partition=1)
    until(lambda: found == [1, 2])
    kafka.produce("later", *values(4), key=b"x", partition=2)
    job.join(LIMIT_SECONDS)
    assert found == [1, 2, 4]


def test_only_what_is_committed_is_read(kafka: Kafka) -> None:
    """And positions go on over what is not shown."""
    kafka.topic("committed")
    producer = kafka.producer(transactional_id="t")
    producer.init_transactions(LIMIT_SECONDS)
    for numbers, done in (((1, 2), True), ((3,), False), ((4,), True)):
        producer.begin_transaction()
        for value in values(*numbers):
            producer.produce("committed", value, key=b"x", partition=0)
        producer.flush(LIMIT_SECONDS)  # or what is aborted is not even sent
        (producer.commit_transaction if done else producer.abort_transaction)()
    source = orders(kafka, "committed", end="latest")
    assert [r.n for r in run(source)] == [1, 2, 4]
    split = source.splits()[0]
    *_, (position, _, _) = source.read(split, split.begin)
    assert position == position_of(kafka_end(kafka, "committed")) == position_of(7)
    dirty = orders(
        kafka, "committed", end="latest", settings={"isolation.level": "read_uncommitted"}
    )
    assert [r.n for r in run(dirty)] == [1, 2, 3, 4]


def kafka_end(kafka: Kafka, topic: str) -> int:
    from confluent_kafka import Consumer, TopicPartition

    client = Consumer({"bootstrap.servers": kafka.servers, "group.id": "end"})
    _, high = client.get_watermark_offsets(TopicPartition(topic, 0), 10)
    client.close()
    return int(high)


def test_messages_that_are_gone_end_the_job(kafka: Kafka) -> None:
    from confluent_kafka import TopicPartition

    kafka.topic("gone")
    kafka.produce("gone", *values(*range(10)), key=b"x")
    admin = kafka.admin()
    for gone in admin.delete_records([TopicPartition("gone", 0, 6)]).values():
        gone.result(LIMIT_SECONDS)
    source = orders(kafka, "gone", end="latest")
    assert [r.n for r in run(source)] == [6, 7, 8, 9]
    with pytest.raises(InputError, match=r"gone/0 begins at offset 6 now.*3 offsets are gone"):
        next(source.read(rs.Split("gone/0"), position_of(3)))
    with pytest.raises(InputError, match="made again"):
        next(source.read(rs.Split("gone/0"), position_of(11)))
    with pytest.raises(InputError, match=r"begins at offset 6 now"):
        run(orders(kafka, "gone", start={"gone/0": 2}))


def test_messages_that_vanish_while_it_reads_end_the_job(kafka: Kafka) -> None:
    from confluent_kafka import TopicPartition

    kafka.topic("vanish")
    kafka.produce("vanish", *values(1, 2), key=b"x")
    reader = PartitionReader(settings_of("kafka", kafka.servers, None, 30), "vanish/0", 0)
    until(lambda: [reader.take(0.2), reader.next == 2][1])
    reader._client.pause([TopicPartition("vanish", 0)])
    kafka.produce("vanish", *values(3, 4, 5), key=b"x")
    admin = kafka.admin()
    for gone in admin.delete_records([TopicPartition("vanish", 0, 4)]).values():
        gone.result(LIMIT_SECONDS)
    reader._client.seek(TopicPartition("vanish", 0, 2))
    reader._client.resume([TopicPartition("vanish", 0)])
    with pytest.raises(InputError, match=r"vanish/0 begins at offset 4 now.*2 offsets are gone"):
        drain(lambda: reader.take(0.2))
    reader.close()


def test_offsets_of_a_group_are_committed_for_lag_tools(kafka: Kafka, tmp_path: Any) -> None:
    from confluent_kafka import Consumer, TopicPartition

    kafka.topic("lag", 2)
    kafka.produce("lag", *values(1, 2, 3), key=b"x")
    source = orders(kafka, "lag", end="latest", group="watched")
    assert len(run(source, durable=str(tmp_path))) == 3
    client = Consumer({"bootstrap.servers": kafka.servers, "group.id": "watched"})
    places = [TopicPartition("lag", n) for n in (0, 1)]
    found = {p.partition: p.offset for p in client.committed(places, 10)}
    client.close()
    assert found[0] == 3 and found[1] in (0, -1001)


def test_a_resumed_job_reads_on_and_reads_new_partitions_from_their_first_message(
    kafka: Kafka, tmp_path: Path
) -> None:
    """With `start="latest"`, too: what came between the two runs is not skipped."""
    from confluent_kafka.admin import NewPartitions

    kafka.topic("grown", 1)
    kafka.produce("grown", *values(0), key=b"x")
    found: list[int] = []

    def flow_of(wanted: int, **options: Any) -> rs.Flow:
        def take(batch: Any) -> None:
            found.extend(r.n for r in batch.records())
            if wanted in found:
                raise Enough

        flow = rs.Flow("grown", key_groups=8)
        source = orders(kafka, "grown", start="latest", **options)
        flow.source(source, name="orders").to(rs.io.callable(take), name="taken")
        return flow

    job = broken_off(flow_of(1), durable=str(tmp_path), checkpoint_seconds=0.1)
    until(lambda: list(tmp_path.glob("grown/cuts/*")))
    kafka.produce("grown", *values(1), key=b"x")
    job.join(LIMIT_SECONDS)
    assert found == [1]
    kafka.produce("grown", *values(2), key=b"x")
    admin = kafka.admin()
    admin.create_partitions([NewPartitions("grown", 2)])["grown"].result(LIMIT_SECONDS)
    until(lambda: len(orders(kafka, "grown").splits()) == 2)
    kafka.produce("grown", *values(3), key=b"x", partition=1)
    found.clear()
    flow_of(9, end="latest").run(durable=str(tmp_path), resume=True)
    assert sorted(found) == [1, 2, 3]


def test_partitions_that_are_added_are_told(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    from confluent_kafka.admin import NewPartitions

    monkeypatch.setattr(reading, "GROWTH_SECONDS", 0.0)
    kafka.topic("more", 1)
    read = orders(kafka, "more").read(rs.Split("more/0"), 0)
    next(read)
    admin = kafka.admin()
    admin.create_partitions([NewPartitions("more", 3)])["more"].result(LIMIT_SECONDS)
    with pytest.warns(RuntimeWarning, match="The topic more has 3 partitions by now"):
        [next(read) for _ in range(8)]
    read.close()


class Most(rs.State):
    n: int = 0


@rs.operator(key="shop", window=rs.tumbling(seconds=10))
class Greatest:
    """The greatest number of a shop in ten seconds, at their end."""

    def process(self, order: Order, most: Most) -> None:
        most.n = max(most.n, order.n)

    def close(self, key: str, window: rs.Window, most: Most) -> Iterator[Order]:
        yield Order(int(window.start), key, most.n)


def test_partitions_that_are_added_are_read_where_there_is_room(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From their first message; before they are there they hold no event time back."""
    from confluent_kafka.admin import NewPartitions

    kafka.topic("roomy", 1)
    source = orders(kafka, "roomy", partitions=3)
    monkeypatch.setattr(sys.modules[type(source).__module__], "GROWTH_SECONDS", 0.1)
    assert [s.name for s in source.splits()] == ["roomy/0", "roomy/1", "roomy/2"]
    assert [source.comes_later(s.name) for s in source.splits()] == [False, True, True]
    closed: list[int] = []
    seen: list[int] = []

    def take(batch: Any) -> None:
        seen.extend(r.n for r in batch.records())
        if 60 in seen:
            raise Enough

    flow = rs.Flow("roomy", key_groups=8)
    stream = flow.source(source, epochs=rs.by_arrival(seconds=0.01))
    windows = stream.through(Greatest())
    windows.to(rs.io.callable(lambda batch: closed.extend(r.n for r in batch.records())))
    stream.to(rs.io.callable(take), name="seen")
    job = broken_off(flow)
    kafka.produce("roomy", *values(5, 25), key=b"x")
    until(lambda: closed == [5])
    admin = kafka.admin()
    admin.create_partitions([NewPartitions("roomy", 2)])["roomy"].result(LIMIT_SECONDS)
    kafka.produce("roomy", *values(60), key=b"y", partition=1)
    job.join(LIMIT_SECONDS)
    assert seen == [5, 25, 60] and closed == [5]


def test_the_page_says_what_comes_out(
    kafka: Kafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kafka.topic("orders")
    kafka.produce("orders", b'{"amount": 3}', b'{"amount": 4}', key=b"north")
    code, said, secured, *_ = blocks("docs/connectors/kafka.md")
    text = "\n".join([*code.lines, *secured.lines])
    assert "127.0.0.1:9092" in text
    (tmp_path / "kafka_page.py").write_text(text.replace("127.0.0.1:9092", kafka.servers))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("kafka_page")
    assert capsys.readouterr().out.splitlines() == list(said.lines)


def test_what_is_not_there_is_said(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match="has no topic nowhere"):
        orders(kafka, "nowhere").splits()
    monkeypatch.setattr(partitions, "ASK_SECONDS", 0.5)
    gone = rs.io.kafka("x", Order, servers="127.0.0.1:1", wait=0.3)
    with pytest.raises(InputError, match=r"Kafka at 127\.0\.0\.1:1 .* refused\n") as said:
        gone.splits()
    assert said.value.hint.startswith("Is it running")
    kafka.topic("bad")
    kafka.produce("bad", *values(1), b"no json", key=b"x")
    with pytest.raises(RaystreamError, match="bad/0, offset 1"):
        run(orders(kafka, "bad", end="latest"))


def test_it_is_said_why_there_is_no_connection(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer of the client is only that there was none."""
    monkeypatch.setattr(partitions, "ASK_SECONDS", 2.0)
    monkeypatch.setattr(writing, "ASK_SECONDS", 2.0)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
             "sasl.username": "ann", "sasl.password": "hush"}  # fmt: skip
    for port, settings, why, hint in [
        (1, {}, "Connection refused", "Is it running"),
        (kafka.servers.rpartition(":")[2], login, "handshake failed", "user, password"),
        (kafka.servers.rpartition(":")[2], {"security.protocol": "SSL"}, "SSL", ""),
    ]:
        given = {"servers": f"127.0.0.1:{port}", "settings": settings, "wait": 0.3}
        for end, kind in (
            (rs.io.kafka("x", Order, **given), InputError),
            (rs.io.kafka("x", **given), OutputError),
        ):
            with pytest.raises(kind, match=why) as said:
                end.check()
            assert hint in said.value.hint
            assert "hush" not in f"{said.value}{said.value.hint}"
    with pytest.raises(ConfigError, match='"host:port"'):
        rs.io.kafka("x", Order, servers="kafka://127.0.0.1:9092")
    words = [re.sub(r"\(after.*", "", r.getMessage()) for r in caplog.records]
    assert len(words) == len({*words})  # a client says them with each attempt


def test_a_server_that_is_killed_and_comes_back_is_waited_for(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "ASK_SECONDS", 0.5)
    kafka.topic("back")
    kafka.produce("back", *values(1), key=b"x")
    source = orders(kafka, "back", settings={"reconnect.backoff.max.ms": 200})
    read = source.read(rs.Split("back/0"), 0)
    impatient = orders(kafka, "back", wait=0.0).read(rs.Split("back/0"), 0)

    def upto(n: int) -> None:
        until(lambda: n in [r.n for r in next(read)[1].records()])

    upto(1)
    next(impatient)
    kafka.stop()
    with pytest.raises(InputError, match="cannot be reached any more"):
        drain(lambda: next(impatient))
    next(read)
    kafka.start()
    kafka.produce("back", *values(2), key=b"x")
    upto(2)


def test_a_topic_that_is_unknown_for_a_moment_is_asked_for_again() -> None:
    """So it is after a server was started again. A topic that never was there is refused."""
    from confluent_kafka import KafkaError

    known = types.SimpleNamespace(error=None, partitions={0: "", 1: ""})
    answers = [None, types.SimpleNamespace(error=KafkaError(3), partitions={}), known]

    class Client:
        def list_topics(self, topic: str, _: float) -> Any:
            return types.SimpleNamespace(topics={topic: answers.pop(0)})

    there = settings_of("kafka", "127.0.0.1:1", None, 60)
    assert partitions.partitions_of(Client(), there, "orders", was_there=True) == 2
    for was_there, wait in ((False, 60), (True, 0)):
        answers = [None, known]
        settings = settings_of("kafka", "127.0.0.1:1", None, wait)
        with pytest.raises(InputError, match="has no topic orders"):
            partitions.partitions_of(Client(), settings, "orders", was_there=was_there)


def test_an_offset_that_is_not_there_for_a_moment_is_read_again(kafka: Kafka) -> None:
    """As of a partition that is new: its server may say so."""
    from confluent_kafka import KafkaError

    kafka.topic("moment")
    kafka.produce("moment", *values(1), key=b"x")
    reader = PartitionReader(settings_of("kafka", kafka.servers, None, 60), "moment/0", 0)
    for _ in range(2):
        reader._failed(KafkaError(KafkaError._AUTO_OFFSET_RESET, "not there"))
    found: list[Any] = []
    until(lambda: [found.extend(reader.take(0.2)), found][1])
    assert [m.offset() for m in found] == [0] and reader.next == 1
    error = KafkaError(KafkaError._AUTO_OFFSET_RESET, "not there")
    reader.close()
    reader = PartitionReader(settings_of("kafka", kafka.servers, None, 0), "moment/0", 0)
    with pytest.raises(InputError, match="moment/0 cannot be read on at offset 0: not there"):
        reader._failed(error)
    reader.close()
