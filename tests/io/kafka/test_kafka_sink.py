"""Sinks to topics of a real Kafka: readers of what is committed see each record once."""

from __future__ import annotations

import importlib
import json
import pickle
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

import raystream as rs
from raystream.cli.app import app
from raystream.errors import ConfigError, GraphError, JobError, OutputError, RaystreamError
from raystream.io.kafka import writing
from tests.gates import LIMIT_SECONDS, until
from tests.io.databases.words import ROWS, Counted
from tests.kafka_server import Kafka


class Change(NamedTuple):
    time: int
    shop: str
    n: int
    at: datetime
    trace: str | None
    gone: bool


MOMENT = datetime(2024, 1, 2, 3, 4, 5, 678_000, UTC)
CHANGES = [
    Change(0, "a", 1, MOMENT, "x", False),
    Change(1, "b", 2, MOMENT, None, False),
    Change(2, "a", 3, MOMENT, "y", True),
]


def flow_of(rows: Any, sink: Any, name: str = "written") -> rs.Flow:
    flow = rs.Flow(name, key_groups=8)
    epochs = rs.by_time("time", seconds=5) if hasattr(rows[0], "time") else rs.by_arrival()
    flow.source(rs.io.iterable(rows, type(rows[0])), epochs=epochs).to(sink, name="out")
    return flow


def sink(kafka: Kafka, topic: str, **options: Any) -> Any:
    return rs.io.kafka(topic, servers=kafka.servers, **options)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_records_become_messages(kafka: Kafka, exactly_once: bool) -> None:
    # Their timestamps are older than a broker keeps messages, unless it is told to.
    topic = kafka.topic(f"changes-{exactly_once}", 2, retention_ms="-1")
    out = sink(
        kafka, topic, key="shop", timestamp="at", headers={"trace": "trace-id"}, delete="gone",
        exactly_once=exactly_once,
    )  # fmt: skip
    assert out.check() == f"The topic {topic} of Kafka at {kafka.servers} has 2 partitions"
    flow_of(CHANGES, out).run()
    found = kafka.read_all(topic, 3)
    assert [(m.key(), m.value() and json.loads(m.value()), m.headers()) for m in found
            if m.key() == b"a"] == [
        (b"a", {"time": 0, "n": 1}, [("trace-id", b"x")]),
        (b"a", None, [("trace-id", b"y")]),
    ]  # fmt: skip
    assert len(found) == 3 and {m.timestamp()[1] for m in found} == {int(MOMENT.timestamp() * 1000)}


@pytest.mark.parametrize("visible", [None, "saved"])
def test_each_record_is_there_once_whatever_dies(kafka: Kafka, visible: Any) -> None:
    """A few jobs: `test_kafka_transactions.py` plays hundreds without a server."""
    topics: list[str] = []
    soon = {"transaction.timeout.ms": 1000}  # one who sleeps amid keeps nobody waiting for longer
    rs.testing.check_sink(
        lambda: sink(kafka, topics[-1], visible=visible, settings=soon),
        ROWS[:8],
        read=lambda: [Counted(**json.loads(m.value())) for m in kafka.read(topics[-1])],
        clear=lambda: topics.append(kafka.topic(f"once-{visible}-{len(topics)}")),
        examples=1,
        every_call=False,
    )


def test_a_record_is_read_as_soon_as_its_epoch_is_written(kafka: Kafka) -> None:
    """And a job that broke off is not begun again over its output, unless that is wanted."""
    topic = kafka.topic("soon")
    wait = threading.Event()

    class Enough(Exception):
        pass

    def records() -> Any:
        yield Counted("a", 1)
        assert wait.wait(LIMIT_SECONDS)
        raise Enough

    def flow(**options: Any) -> rs.Flow:
        made = rs.Flow("soon", key_groups=4)
        made.source(rs.io.recorded(records, Counted), epochs=rs.by_arrival(seconds=0.01)).to(
            sink(kafka, topic, **options), name="out"
        )
        return made

    errors: list[str] = []

    def job() -> None:
        try:
            flow().run()
        except RaystreamError as error:
            errors.append(str(error))

    thread = threading.Thread(target=job)
    thread.start()
    until(lambda: kafka.read(topic))
    wait.set()
    thread.join(LIMIT_SECONDS)
    assert len(errors) == 1 and "Enough" in errors[0]
    with pytest.raises(OutputError, match="did not end: it holds rows up to epoch"):
        flow().run()


def test_a_server_that_is_killed_amid_is_waited_for(kafka: Kafka) -> None:
    topic = kafka.topic("killed")
    rows = [Row(n, n % 7) for n in range(3000)]
    errors: list[BaseException] = []
    out = sink(kafka, topic, settings={"reconnect.backoff.max.ms": 200})

    def job() -> None:
        try:
            flow = rs.Flow("killed", key_groups=8)
            epochs = rs.by_time("time", seconds=10, speed=1000)
            flow.source(rs.io.iterable(rows, Row), epochs=epochs).to(out, name="out")
            flow.run(instances={"out": 2})
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=job)
    thread.start()
    until(lambda: len(kafka.read(topic)) > 100 or errors)
    kafka.stop()
    time.sleep(0.2)
    kafka.start()
    thread.join(LIMIT_SECONDS)
    assert not thread.is_alive() and not errors
    found = [tuple(json.loads(m.value()).values()) for m in kafka.read_all(topic, len(rows))]
    assert sorted(found) == rows


class Row(NamedTuple):
    time: int
    key: int


def test_what_cannot_be_written_is_said(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = sink(kafka, "nowhere")
    for attempt in (nowhere.check, flow_of(ROWS, nowhere).run):
        with pytest.raises(OutputError, match=r"nowhere of Kafka at .* is not there"):
            attempt()
    with pytest.raises(OutputError, match="is not there"):
        flow_of(ROWS, sink(kafka, "nowhere", exactly_once=False)).run()
    made = sink(kafka, "made", create=True)
    assert made.check().endswith("can be made")
    flow_of(ROWS, made).run()
    assert len(kafka.read_all("made", len(ROWS))) == len(ROWS)
    kafka.topic("no-journal", 8)
    with pytest.raises(OutputError, match=r"no-journal cannot be its journal.*policy delete"):
        flow_of(ROWS, sink(kafka, "made", journal="no-journal")).run()
    kafka.topic("small", max_message_bytes="500")
    with pytest.raises(JobError, match=r"(?i)too large|larger"):
        flow_of([Counted("x" * 5000, 1)], sink(kafka, "small", wait=1)).run()
    monkeypatch.setattr(writing, "ASK_SECONDS", 0.5)
    gone = rs.io.kafka("t", servers="127.0.0.1:1", wait=0.2)
    with pytest.raises(OutputError, match="cannot be written"):
        gone.check()
    with pytest.raises(OutputError, match="could not be written"):
        flow_of(ROWS, gone).run()


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"existing": "replace"}, ConfigError, "cannot be deleted"),
        ({"exactly_once": False, "journal": "j"}, ConfigError, "exactly once"),
        ({"start": "latest"}, ConfigError, "is for topics that are read"),
        ({"journal": "a b"}, ConfigError, "name of a topic"),
        ({"key": "words"}, GraphError, "no field 'words'"),
        ({"timestamp": "n"}, GraphError, "a datetime"),
        ({"format": rs.io.formats.raw()}, GraphError, "a message is one value"),
    ],
)
def test_what_cannot_be_is_refused(options: Any, error: Any, said: str) -> None:
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    with pytest.raises(error, match=said):
        flow_of(ROWS, rs.io.kafka("t", servers="127.0.0.1:1", **options))
    with pytest.raises(ConfigError, match="is for topics that are written"):
        rs.io.kafka("t", Counted, servers="127.0.0.1:1", create=True)  # type: ignore[call-overload]
    out = rs.io.kafka("t", servers="127.0.0.1:1", settings={"sasl.password": "horse"})
    assert (
        "horse" not in f"{out!r} {out.describe()}" and pickle.loads(pickle.dumps(out)).topic == "t"
    )


def test_the_example_joins_two_topics_into_a_third(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And `raystream plan` and `check` say what is there."""
    text = (Path(__file__).parents[3] / "examples/kafka_join.py").read_text(encoding="utf-8")
    for said, here in (
        ("127.0.0.1:9092", kafka.servers),
        ('"orders", Order', '"shop-orders", Order'),
        ('group="bills"', 'group="bills", end="latest"'),
        ('delete="gone"', 'delete="gone", end="latest"'),
    ):
        assert said in text
        text = text.replace(said, here)
    (tmp_path / "kafka_join_here.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    kafka.topic("shop-orders", 2)
    kafka.topic("prices", cleanup_policy="compact")
    kafka.topic("bills")
    orders = [{"id": 1, "item": "tea", "number": 2}, {"id": 2, "item": "rum", "number": 1}]
    kafka.produce("shop-orders", *[json.dumps(order).encode() for order in orders])
    kafka.produce("prices", b'{"cents": 300}', key=b"tea")
    kafka.produce("prices", b'{"cents": 900}', None, key=b"rum")
    planned = CliRunner().invoke(app, ["plan", "kafka_join_here:flow"])
    assert planned.exit_code == 0 and "bill" in planned.output, planned.output
    checked = CliRunner().invoke(app, ["check", "kafka_join_here:flow"])
    assert checked.exit_code == 0, checked.output
    said = " ".join(checked.output.split())
    assert "2 partitions, 2 offsets; read a record (Order) of shop-orders/0" in said
    assert "has 1 partition" in said
    module = importlib.import_module("kafka_join_here")
    module.flow.run()
    found = [(m.key(), json.loads(m.value())) for m in kafka.read("bills")]
    assert (b"tea", {"order": 1, "cents": 600}) in found
    assert all(
        bill == (b"rum", {"order": 2, "cents": 900}) for bill in found[1:] if bill[0] == b"rum"
    )
