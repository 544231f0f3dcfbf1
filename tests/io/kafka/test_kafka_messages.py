"""Messages of Kafka as records, without a server."""

from __future__ import annotations

import pickle
import sys
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import ConfigError, GraphError, InputError
from raystream.io.kafka.layout import layout_of
from raystream.io.kafka.messages import MessageDecoder
from raystream.io.kafka.partitions import Extent, check_start, check_there, check_topics, offset_of
from raystream.io.kafka.settings import settings_of
from raystream.testing import Collect

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
SERVERS = "127.0.0.1:9092"


class Message:
    """What a client yields."""

    def __init__(
        self,
        offset: int,
        value: bytes | None,
        key: bytes | None = None,
        at: int = 0,
        headers: list[tuple[str, bytes]] | None = None,
    ) -> None:
        self._all = offset, value, key, at, headers

    def offset(self) -> int:
        return self._all[0]

    def value(self) -> bytes | None:
        return self._all[1]

    def key(self) -> bytes | None:
        return self._all[2]

    def timestamp(self) -> tuple[int, int]:
        return 1, self._all[3]

    def headers(self) -> Any:
        return self._all[4]

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3


class Order(NamedTuple):
    at: datetime
    shop: str
    n: int = 0
    trace: str | None = None
    gone: bool = False


OPTIONS: dict[str, Any] = dict.fromkeys(
    ("format", "key", "key_format", "timestamp", "headers", "delete")
)


def decoder(
    record: Any, tombstones: Any = "refuse", unit: str = "s", **options: Any
) -> MessageDecoder:
    import dataclasses

    layout = layout_of("kafka", record, **{**OPTIONS, **options})
    return MessageDecoder(record, dataclasses.replace(layout, unit=unit), tombstones, "orders")


WHOLE: dict[str, Any] = {
    "key": "shop", "timestamp": "at", "headers": {"trace": "trace-id"}, "delete": "gone",
}  # fmt: skip


def test_each_part_of_a_message_is_a_field() -> None:
    moment = datetime(2024, 1, 2, 3, 4, 5, 678_000, UTC)
    at = int(moment.timestamp() * 1000)
    messages = [
        Message(7, b'{"n": 5}', b"north", at, [("trace-id", b"x"), ("trace-id", b"y")]),
        Message(9, None, b"south", at + 1),
        Message(12, b"{}", b"south", at, [("other", b"z")]),
    ]
    found = decoder(Order, **WHOLE)(messages)
    assert list(found.batch.records()) == [
        Order(moment, "north", 5, "y"),
        Order(moment.replace(microsecond=679_000), "south", 0, None, True),
        Order(moment, "south"),
    ]
    assert found.ends.tolist() == [8, 10, 13]
    assert len(decoder(Order, **WHOLE)([]).batch) == 0


class Plain(NamedTuple):
    n: int


class Timed(NamedTuple):
    time: int
    n: int


@pytest.mark.parametrize(("unit", "time"), [("s", 1), ("ms", 1500), ("us", 1_500_000)])
def test_timestamps_are_in_the_unit_of_the_flow(unit: str, time: int) -> None:
    decode = decoder(Timed, timestamp="time", unit=unit)
    assert list(decode([Message(0, b'{"n": 1}', at=1500)]).batch.records()) == [Timed(time, 1)]


def test_tombstones_are_refused_or_left_out() -> None:
    messages = [Message(0, b'{"n": 1}'), Message(1, None, b"k"), Message(2, b'{"n": 2}')]
    with pytest.raises(InputError, match=r"orders/3, offset 1 has no value.*tombstone"):
        decoder(Plain)(messages)
    found = decoder(Plain, "skip")(messages)
    assert [r.n for r in found.batch.records()] == [1, 2] and found.ends.tolist() == [1, 3]
    assert len(decoder(Plain, "skip")(messages[1:2]).batch) == 0


class Keyed(NamedTuple):
    shop: str | None
    till: int | None
    n: int


def test_keys_may_be_missing_where_fields_may_be_none() -> None:
    messages = [Message(0, b'{"n": 1}', b'{"shop": "a", "till": 2}'), Message(1, b'{"n": 2}')]
    found = decoder(Keyed, key=("shop", "till"))(messages)
    assert list(found.batch.records()) == [Keyed("a", 2, 1), Keyed(None, None, 2)]
    with pytest.raises(InputError, match=r"offset 1 has no key, and Order.shop is in it"):
        decoder(Order, key="shop", timestamp="at", headers={"trace": "t"})(
            [Message(0, b"{}", b"x"), Message(1, b"{}")]
        )


def test_a_message_that_is_no_record_is_named() -> None:
    with pytest.raises(InputError, match=r"orders/3, offset 5: .*n"):
        decoder(Plain)([Message(4, b'{"n": 1}'), Message(5, b'{"n": "x"}')])
    with pytest.raises(InputError, match="has no header 't'"):
        decoder(Head, headers={"text": "t"})([Message(0, b'{"n": 1}')])
    with pytest.raises(InputError, match="is not UTF-8"):
        decoder(Head, headers={"text": "t"})([Message(0, b'{"n": 1}', headers=[("t", b"\xff")])])


class Head(NamedTuple):
    text: str
    n: int


class Empty(NamedTuple):
    shop: str
    n: int
    gone: bool


@pytest.mark.parametrize(
    ("record", "options", "said"),
    [
        (Order, {"key": "shops"}, "has no field 'shops'"),
        (Order, {"key": "shop", "timestamp": "shop"}, "in two parts"),
        (Order, {"timestamp": "shop"}, "an int or a datetime"),
        (Order, {"headers": {"n": "n"}}, "a header is str or bytes"),
        (Order, {"delete": "n", "key": "shop"}, "a bool"),
        (Order, {"delete": "gone"}, "needs key="),
        (Empty, {"delete": "gone", "key": "shop"}, "Empty.n has no value when"),
    ],
)
def test_records_that_do_not_fit_are_refused(record: Any, options: Any, said: str) -> None:
    with pytest.raises(GraphError, match=said):
        rs.io.kafka("orders", record, servers=SERVERS, **options)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"servers": "127.0.0.1"}, "host:port"),
        ({"settings": {"group.id": "g"}}, "'group.id' is not set there"),
        ({"settings": {"no.such.setting": "x"}}, "does not take its settings"),
        ({"start": "soon"}, "where to begin"),
        ({"start": datetime(2024, 1, 1)}, "where to begin"),  # noqa: DTZ001
        ({"end": "soon"}, "where to end"),
        ({"tombstones": "keep"}, "tombstones="),
        ({"format": "json"}, "a format"),
        ({"wait": -1}, "wait=-1"),
        ({"group": ""}, "group=''"),
    ],
)
def test_arguments_that_cannot_be_are_refused(options: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        rs.io.kafka("orders", Order, **{"servers": SERVERS, **options}).splits()


@pytest.mark.parametrize("topics", ["", "a/b", "^o.*", ["a", "a"], [], ".."])
def test_names_that_no_topic_has_are_refused(topics: Any) -> None:
    with pytest.raises(ConfigError, match="name of a topic"):
        check_topics("kafka", topics)
    assert check_topics("kafka", ["a.b_c-d", "e"]) == ("a.b_c-d", "e")
    assert check_start("kafka", {"a/0": 3}) == {"a/0": 3}


def test_secrets_are_not_shown() -> None:
    given = {"sasl.username": "me", "sasl.password": "horse", "ssl.key.password": "battery"}
    settings = settings_of("kafka", SERVERS, given, 1)
    source = rs.io.kafka("orders", Order, servers=SERVERS, settings=given)
    for shown in (repr(settings), repr(source), settings.words("me: horse, battery")):
        assert "horse" not in shown and "battery" not in shown
    assert pickle.loads(pickle.dumps(source)).settings.consumer(None)["sasl.password"] == "horse"
    assert settings.consumer("g")["group.id"] == "g"


def test_offsets_that_are_gone_end_the_job_with_words() -> None:
    assert offset_of(0, 7) == 7 and offset_of(8, 0) == 7
    there = Extent(100, 200)
    check_there("orders/0", 100, there)
    check_there("orders/0", 200, there)
    with pytest.raises(InputError, match=r"begins at offset 100 now.* 40 offsets are gone"):
        check_there("orders/0", 60, there)
    with pytest.raises(InputError, match="made again"):
        check_there("orders/0", 201, there)


class Fake:
    """What reads a partition, without a server: some messages at a time."""

    def __init__(self, at_once: int, messages: list[Message]) -> None:
        self.at_once, self.messages = at_once, messages

    def __call__(self, settings: Any, split: str, position: int) -> Fake:
        self.next = max(position - 1, 0)
        return self

    def take(self, seconds: float) -> list[Message]:
        taken = self.messages[self.next : self.next + self.at_once]
        self.next += len(taken)
        return taken

    def close(self) -> None:
        pass


class Sale(NamedTuple):
    time: int
    shop: str


@pytest.mark.parametrize("at_once", [1, 3, 100])
def test_messages_that_are_no_records_are_a_stream(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However they come, each is there once, with its place; what is skipped is in none."""
    sound = [Message(n, b'{"time": %d}' % n, b"north") for n in range(40)]
    messages: list[Message] = list(sound)
    messages[1] = Message(1, b"oops", b"north")
    messages[5] = Message(5, b'{"time": "late"}', b"north")
    messages[6] = Message(6, None, b"north")
    messages[39] = Message(39, b'{"time": 39}', b"\xff")
    source = rs.io.kafka(
        "orders", Sale, servers=SERVERS, key="shop", tombstones="skip", bad="stream", end="latest"
    )
    source._ends = {"orders/3": len(messages)}
    monkeypatch.setattr(type(source), "splits", lambda self: [rs.Split("orders/3")])
    module = sys.modules[type(source).__module__]
    monkeypatch.setattr(module, "PartitionReader", Fake(at_once, messages))
    rows, bad, flow = Collect(), Collect(), rs.Flow("bad")
    stream = flow.source(source, epochs=rs.by_arrival(seconds=0.01))
    stream[Sale].to(rows)
    stream[rs.io.BadMessage].to(bad, name="bad")
    flow.run()
    assert rows.records() == [Sale(n, "north") for n in range(39) if n not in (1, 5, 6)]
    assert [(b.split, b.number, b.field, b.data) for b in bad.records()] == [
        ("orders/3", 1, None, b"oops"),
        ("orders/3", 5, "time", b'{"time": "late"}'),
        ("orders/3", 39, None, b'{"time": 39}'),
    ]
    assert all(b.reason and "orders/3" not in b.reason for b in bad.records())
    with pytest.raises(ConfigError, match='"refuse" or "stream"'):
        rs.io.kafka("orders", Sale, servers=SERVERS, bad="drop")  # type: ignore[call-overload]


def test_a_partition_is_read_once_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those for which there is room; meanwhile nothing of it is read."""
    there = {"orders": 1}
    source = rs.io.kafka("orders", Sale, servers=SERVERS, key="shop", partitions=2)
    module = sys.modules[type(source).__module__]
    monkeypatch.setattr(module, "GROWTH_SECONDS", 0.0)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(module, "consumer", lambda settings, group: None)
    monkeypatch.setattr(module, "closing", lambda client: nullcontext(client))
    monkeypatch.setattr(module, "partitions_of", lambda *of, **_: there[of[-1]])
    monkeypatch.setattr(module, "begins", lambda client, settings, names, start: {"orders/0": 7})
    fake = Fake(9, [Message(0, b'{"time": 3}', b"north")])
    monkeypatch.setattr(fake, "grown", lambda: 2, raising=False)
    monkeypatch.setattr(module, "PartitionReader", fake)
    assert source.splits() == [rs.Split("orders/0", 8), rs.Split("orders/1")]
    later = pickle.loads(pickle.dumps(source))
    assert [later.comes_later(f"orders/{n}") for n in range(2)] == [False, True]
    read = later.read(rs.Split("orders/1"), 0)
    for _ in range(5):
        position, batch, _ = next(read)
        assert (position, len(batch)) == (0, 0)
    there["orders"] = 2
    position, batch, ends = next(part for part in read if len(part[1]))
    assert [*batch.records()] == [Sale(3, "north")] and ends.tolist() == [2] and position == 2
    with pytest.raises(ConfigError, match="those that are there"):
        rs.io.kafka("orders", Sale, servers=SERVERS, partitions=2, end="latest")
