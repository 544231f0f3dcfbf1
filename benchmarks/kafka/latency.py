"""From produce to a committed read: a running count from one topic to another, exactly once.

A process of its own produces at a pace; each record says when it was produced. The job counts by
key and writes to a second topic, in transactions. This process reads there what is committed, and
looks at the clock. In the end each record must have been read once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import raystream as rs
from benchmarks.kafka.server import KafkaServer, Unavailable

KEYS = 1000


class Event(NamedTuple):
    key: int
    sent: int


class Counted(NamedTuple):
    key: int
    n: int
    sent: int


class Tally(rs.State):
    n: int = 0


@rs.operator(key="key")
def count(event: Event, tally: Tally) -> Iterator[Counted]:
    tally.n += 1
    yield Counted(event.key, tally.n, event.sent)


def main(
    rate: Annotated[int, typer.Option(min=1, help="Records a second.")] = 10_000,
    seconds: Annotated[int, typer.Option(min=5, help="Seconds that are measured.")] = 30,
    warm: Annotated[int, typer.Option(min=0, help="Seconds before that.")] = 10,
    partitions: Annotated[int, typer.Option(min=1, help="Of each topic.")] = 2,
    epoch_ms: Annotated[int, typer.Option(min=1, help="Length of an epoch.")] = 5,
    local: Annotated[bool, typer.Option("--local", help="In this process, without Ray.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Kafka to Kafka, exactly once: from produce to a committed read."""
    try:
        server = KafkaServer(brief=False)
    except Unavailable as why:
        raise typer.BadParameter(str(why)) from None
    try:
        cluster = None if local else "auto"
        found = measured(server, rate, seconds, warm, partitions, epoch_ms / 1000, cluster)
    finally:
        server.remove()
    if as_json:
        print(json.dumps(found))
        return
    heads = ("records/s", "records", "p50 ms", "p90 ms", "p99 ms", "most ms", "missing", "twice")
    table = Table(*heads)
    table.add_row(*(f"{found[k]:,}" for k in found))
    Console().print(table)


def measured(
    server: KafkaServer,
    rate: int,
    seconds: int,
    warm: int,
    partitions: int,
    epoch: float,
    cluster: str | None,
) -> dict[str, Any]:
    """Run it once."""
    for topic in ("events", "counts"):
        make_topic(server.servers, topic, partitions)
    total = rate * (warm + seconds) // partitions * partitions
    ends = {f"events/{n}": total // partitions + 1 for n in range(partitions)}
    produce(server.servers, 1000, partitions, partitions)  # when they are read, the job runs
    flow = rs.Flow("kafka-latency")
    events = rs.io.kafka("events", Event, servers=server.servers, end=ends)
    stream = flow.source(events, epochs=rs.by_arrival(seconds=epoch), name="events")
    counts = rs.io.kafka("counts", servers=server.servers, key="key")
    stream.through(count).to(counts, name="out")
    reader = Reader(server.servers, partitions, total + partitions)
    reader.start()

    def begin() -> None:
        if reader.came.wait(START_SECONDS):
            produce(server.servers, rate, total, partitions)

    producing = threading.Thread(target=begin)
    producing.start()
    flow.run(cluster=cluster)
    producing.join()
    reader.join(60)
    return {"rate": rate, **reader.judged(partitions + rate * warm, total + partitions)}


START_SECONDS = 120.0
"""How long the job may take to start."""


def produce(servers: str, *numbers: int) -> None:
    """Produce in a process of its own."""
    told = [*map(str, numbers), str(KEYS)]
    subprocess.run([sys.executable, "-m", "benchmarks.kafka.produce", servers, *told], check=True)


def make_topic(servers: str, name: str, partitions: int) -> None:
    admin: Any = import_module("confluent_kafka.admin")
    client = admin.AdminClient({"bootstrap.servers": servers})
    client.create_topics([admin.NewTopic(name, partitions, 1)])[name].result(30)


class Reader(threading.Thread):
    """Reads what is committed, and notes when each record came."""

    def __init__(self, servers: str, partitions: int, total: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        super().__init__(name="reader", daemon=True)
        self._client = Consumer(
            {"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False,
             "isolation.level": "read_committed", "fetch.wait.max.ms": 10}
        )  # fmt: skip
        self._client.assign([TopicPartition("counts", n, 0) for n in range(partitions)])
        self._total = total
        self.came = threading.Event()
        self._seen: set[tuple[int, int]] = set()
        self.twice = 0
        self.times: list[tuple[int, int]] = []
        """When each record was sent, and how long it took, in microseconds."""

    def run(self) -> None:
        while len(self.times) < self._total:
            if (first := self._client.poll(0.2)) is None:
                continue
            now = int(time.time() * 1e6)
            self.came.set()
            for message in [first, *self._client.consume(5000, 0)]:
                value = json.loads(message.value() or b"")
                which = int(message.key() or b""), value["n"]
                self.twice += which in self._seen
                self._seen.add(which)
                self.times.append((value["sent"], now - value["sent"]))

    def judged(self, warm: int, total: int) -> dict[str, Any]:
        """The times of what came after the first records."""
        times = np.array([took for _, took in sorted(self.times)[warm:]]) / 1000
        p50, p90, p99, most = np.percentile(times, [50, 90, 99, 100]).round(1).tolist()
        missing = total - len(self._seen)
        return {
            "records": len(times), "p50": p50, "p90": p90, "p99": p99, "most": most,
            "missing": missing, "twice": self.twice,
        }  # fmt: skip
