"""From one topic of Kafka to another at full speed, exactly once: a running count by key.

The records are there before a system begins. Counted is what the system has written to the second
topic, by its offsets, whether it is committed or not: so it does not matter how seldom a system
commits. Timed is what lies between the first and the last tenth. Broker and system share the
machine; each run has a broker of its own. In the end all that is committed is read, and each record
must be there once.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import raystream as rs
from benchmarks.kafka.latency import KEYS, Tally, make_topic
from benchmarks.kafka.others import FLINK, Running
from benchmarks.kafka.server import KafkaServer, Unavailable

Form = Literal["json", "avro"]
FORMS: tuple[Form, ...] = ("json", "avro")
HEADS = ("k records/s", "broker CPU", "records", "missing", "twice", "load")
PARTITIONS = 2
LOOK_SECONDS = 0.1
LIMIT_SECONDS = 300.0
"""How long one run may take."""


class Asked(NamedTuple):
    """What comes in. It has the fields of `Event`, and a key that is in no other part."""

    key: int
    sent: int


class Told(NamedTuple):
    """What goes out; the key of the message is the key."""

    key: int
    n: int
    sent: int


@rs.operator(key="key")
def count(event: Asked, tally: Tally) -> Iterator[Told]:
    """Count by key."""
    tally.n += 1
    yield Told(event.key, tally.n, event.sent)


def main(
    records: Annotated[int, typer.Option(min=1000, help="Records of each run.")] = 1_000_000,
    formats: Annotated[str, typer.Option(help="Of json,avro.")] = "json,avro",
    flink: Annotated[bool, typer.Option("--flink", help="Flink beside it, in turns.")] = False,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each system, in turns.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Kafka to Kafka at full speed, exactly once."""
    total = records // PARTITIONS * PARTITIONS
    systems: list[tuple[str, Callable[[KafkaServer, Form], dict[str, Any]]]] = [
        ("raystream", lambda server, form: ours(server, form, total))
    ]
    if flink:
        systems.append((FLINK.shown, lambda server, form: theirs(server, form, total)))
    found: list[dict[str, Any]] = []
    for _ in range(rounds):
        for form in _forms(formats):
            for name, run in systems:
                found.append({"system": name, "format": form, **_on_a_server(run, form)})
    if as_json:
        print(json.dumps(found))
        return
    table = Table("system", "format", *HEADS)
    for row in found:
        table.add_row(row["system"], row["format"], *(f"{row[k]:,}" for k in HEADS))
    Console().print(table)


def _forms(told: str) -> list[Form]:
    found: list[Form] = [form for form in FORMS if form in told.split(",")]
    if len(found) != len(told.split(",")):
        raise typer.BadParameter(f"--formats {told}: some of {','.join(FORMS)}")
    return found


def _on_a_server(run: Callable[[KafkaServer, Form], dict[str, Any]], form: Form) -> dict[str, Any]:
    try:
        server = KafkaServer(brief=False)
    except Unavailable as why:
        raise typer.BadParameter(str(why)) from None
    try:
        load = round(os.getloadavg()[0], 1)
        return {**run(server, form), "load": load}
    finally:
        server.remove()


def ours(server: KafkaServer, form: Form, total: int) -> dict[str, Any]:
    """Run raystream once."""
    fill(server.servers, form, total)
    flow = rs.Flow("kafka-throughput")
    ends = {f"events/{n}": total // PARTITIONS for n in range(PARTITIONS)}
    how = format_of(form)
    events = rs.io.kafka("events", Asked, servers=server.servers, format=how, end=ends)
    counts = rs.io.kafka("counts", servers=server.servers, key="key", format=how)
    stream = flow.source(events, epochs=rs.by_arrival(), name="events")
    stream.through(count).to(counts, name="out")
    watch = _Watch(server, total)
    flow.run(cluster="auto")
    return watch.judged(form)


def theirs(server: KafkaServer, form: Form, total: int) -> dict[str, Any]:
    """Run Flink once.

    Raises:
        Unavailable: it cannot be had, or ended.
    """
    command = FLINK.command()
    fill(server.servers, form, total)
    watch = _Watch(server, total)
    running = Running(command, server.servers, FLINK.ms, form, str(PARTITIONS))
    try:
        while not watch.done.wait(1.0):
            running.refuse_ended()
        return watch.judged(form)
    finally:
        running.end()


def format_of(form: Form) -> Any:
    return rs.io.formats.json() if form == "json" else rs.io.formats.avro()


def codec_of(form: Form, record: type[Any]) -> Any:
    return format_of(form).codec(record)


def fill(servers: str, form: Form, total: int) -> None:
    """Make the topics, and write the records to the first: as many to each partition."""
    for topic in ("events", "counts"):
        make_topic(servers, topic, PARTITIONS)
    numbers = np.arange(total)
    keys = numbers * 7919 % KEYS  # as many partitions divide the keys, so each has keys of its own
    values = codec_of(form, Asked).encode(rs.Batch(Asked, {"key": keys, "sent": numbers}))
    made: Any = import_module("confluent_kafka")
    client = made.Producer(
        {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 20,
         "queue.buffering.max.messages": 2_000_000, "log_level": 0}
    )  # fmt: skip
    for n, value in enumerate(values):
        client.produce("events", value, None, n % PARTITIONS)
        if not n % 10_000:
            client.poll(0)
    if client.flush(LIMIT_SECONDS):
        raise Unavailable("the broker did not take the records")


class _Watch(threading.Thread):
    """Looks how much has been written to the second topic, and when.

    Attributes:
        done: is set when all is written and committed.
    """

    def __init__(self, server: KafkaServer, total: int) -> None:
        super().__init__(name="watch", daemon=True)
        self._server, self._total = server, total
        self.done = threading.Event()
        self._seen: list[tuple[float, int, float]] = []
        self.start()

    def run(self) -> None:
        admin, made = import_module("confluent_kafka.admin"), import_module("confluent_kafka")
        client = admin.AdminClient({"bootstrap.servers": self._server.servers, "log_level": 0})
        latest = admin.OffsetSpec.latest()
        asked = {made.TopicPartition("counts", n): latest for n in range(PARTITIONS)}
        until = time.monotonic() + LIMIT_SECONDS
        while time.monotonic() < until:
            ends = []
            for level in (made.IsolationLevel.READ_UNCOMMITTED, made.IsolationLevel.READ_COMMITTED):
                answers = client.list_offsets(asked, isolation_level=level).values()
                ends.append(sum(each.result(10).offset for each in answers))
            self._seen.append((time.monotonic(), ends[0], self._server.cpu_seconds()))
            if min(ends) >= self._total and ends[0] == ends[1]:
                break
            time.sleep(LOOK_SECONDS)
        self.done.set()

    def judged(self, form: Form) -> dict[str, Any]:
        """What was found, once all is there."""
        if not self.done.wait(LIMIT_SECONDS):
            raise Unavailable(f"not all was written within {LIMIT_SECONDS:g} s")
        times, written, used = np.array(self._seen).T
        first = int(np.searchsorted(written, self._total * 0.1))
        last = min(int(np.searchsorted(written, self._total * 0.9)), len(times) - 1)
        seconds = times[last] - times[first]
        rate = (written[last] - written[first]) / max(seconds, 1e-9)
        cpu = (used[last] - used[first]) / max(seconds, 1e-9)
        missing, twice = checked(self._server.servers, form, self._total)
        return {
            "k records/s": round(float(rate) / 1000, 1), "broker CPU": round(float(cpu), 2),
            "records": self._total, "missing": missing, "twice": twice,
        }  # fmt: skip


def checked(servers: str, form: Form, total: int) -> tuple[int, int]:
    """Reads all that is committed; how many records are missing, and how many are there twice."""
    made: Any = import_module("confluent_kafka")
    client = made.Consumer(
        {"bootstrap.servers": servers, "group.id": "checker", "enable.auto.commit": False,
         "isolation.level": "read_committed", "enable.partition.eof": True, "log_level": 0}
    )  # fmt: skip
    client.assign([made.TopicPartition("counts", n, 0) for n in range(PARTITIONS)])
    values: list[bytes] = []
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        for message in client.consume(10_000, 1.0):
            if message.error() is None:
                values.append(message.value())
            else:
                ended.add(message.partition())
    client.close()
    sent = _sent(form, values)
    return total - len(np.unique(sent)), len(sent) - len(np.unique(sent))


class Rest(NamedTuple):
    """The value of what goes out."""

    n: int
    sent: int


def _sent(form: Form, values: Sequence[bytes]) -> Any:
    return np.asarray(codec_of(form, Rest).decode(values)["sent"])
