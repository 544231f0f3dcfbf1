"""From produce to a committed read: a running count from one topic to another, exactly once.

A process of its own produces at a pace; each record says when it was handed to the producer. The
job counts by key and writes to a second topic, in transactions. This process reads there what is
committed, and looks at the clock. In the end each record must have been read once.

With `--strike`, the broker is killed again and again meanwhile, and started again. With
`--strike-processes`, so are processes of the job, of all kinds; some only sleep for a while.

With `--others`, other systems do the same on the same broker, each after the other, and each before
the next round.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

import raystream as rs
from benchmarks.kafka.others import OTHERS, Other, Running
from benchmarks.kafka.server import KafkaServer, Unavailable
from benchmarks.kafka.strikes import BrokerStrikes, ProcessStrikes, open_partitions

KEYS = 1000
START_SECONDS = 120.0
"""How long a job may take to start."""
END_SECONDS = 60.0
"""How long the last records may take."""


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


@dataclass(frozen=True)
class Work:
    """How much is measured.

    Attributes:
        rate: records a second. seconds: that are measured. warm: seconds before that.
        partitions: of each topic.
    """

    rate: int
    seconds: int
    warm: int
    partitions: int

    @property
    def total(self) -> int:
        """How many records there are, besides the first ones."""
        return self.rate * (self.warm + self.seconds) // self.partitions * self.partitions


def main(
    rate: Annotated[int, typer.Option(min=1, help="Records a second.")] = 10_000,
    seconds: Annotated[int, typer.Option(min=5, help="Seconds that are measured.")] = 30,
    warm: Annotated[int, typer.Option(min=0, help="Seconds before that.")] = 10,
    partitions: Annotated[int, typer.Option(min=1, help="Of each topic.")] = 2,
    epoch_ms: Annotated[int, typer.Option(min=1, help="Length of an epoch.")] = 10,
    local: Annotated[bool, typer.Option("--local", help="In this process, without Ray.")] = False,
    others: Annotated[
        str, typer.Option(help="Other systems beside it: all, or some of flink,streams,quix.")
    ] = "",
    strike: Annotated[
        float, typer.Option(min=0, help="Kill the broker every so many seconds; 0: never.")
    ] = 0,
    strike_processes: Annotated[
        float, typer.Option(min=0, help="Strike a process of the job every so many seconds.")
    ] = 0,
    rounds: Annotated[int, typer.Option(min=1, help="Runs of each system, in turns.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table.")] = False,
) -> None:
    """Kafka to Kafka, exactly once: from produce to a committed read."""
    work = Work(rate, seconds, warm, partitions)
    cluster = None if local else "auto"
    asked = others.split(",") if others else []
    strikes = Strikes(strike, strike_processes)
    if local and strikes.processes:
        raise typer.BadParameter("--strike-processes: with --local there are none")
    systems: list[tuple[str, Callable[[KafkaServer], dict[str, Any]]]] = [
        ("raystream", lambda server: ours(server, work, epoch_ms / 1000, cluster, strikes))
    ]
    systems += [
        (each.shown, lambda server, each=each: other(server, work, each))  # type: ignore[misc]
        for each in OTHERS
        if asked == ["all"] or each.name in asked
    ]
    found: list[dict[str, Any]] = []
    for _ in range(rounds):
        for name, run in systems:
            try:
                found.append({"system": name, **_on_a_server(run)})
            except Unavailable as why:
                if name == "raystream":
                    raise typer.BadParameter(str(why)) from None
                print(f"{name} is skipped: {why}", file=sys.stderr)
    if as_json:
        print(json.dumps(found))
        return
    table = Table("system", *HEADS)
    for row in found:
        table.add_row(row["system"], *(f"{row[k]:,}" for k in HEADS))
        if "kills" in row:
            print(
                f"the broker was killed {row['kills']} times, and {row['strikes']} times a process"
                f" was struck; {row['open']} partitions have an open transaction",
                file=sys.stderr,
            )
    Console().print(table)


HEADS = ("p50 ms", "p90 ms", "p99 ms", "most ms", "records", "missing", "twice", "broker CPU")


def _on_a_server(run: Callable[[KafkaServer], dict[str, Any]]) -> dict[str, Any]:
    """One run on a server of its own, and how much of a processor the server took meanwhile."""
    server = KafkaServer(brief=False)
    try:
        return run(server)
    finally:
        server.remove()


class Strikes(NamedTuple):
    """Seconds between two strikes; 0: there are none."""

    broker: float = 0.0
    processes: float = 0.0


def ours(
    server: KafkaServer, work: Work, epoch: float, cluster: str | None, strikes: Strikes
) -> dict[str, Any]:
    """Run it once."""
    run = _Measuring(server, work)
    ends = {f"events/{n}": work.total // work.partitions + 1 for n in range(work.partitions)}
    flow = rs.Flow("kafka-latency")
    events = rs.io.kafka("events", Event, servers=server.servers, end=ends)
    stream = flow.source(events, epochs=rs.by_arrival(seconds=epoch), name="events")
    counts = rs.io.kafka("counts", servers=server.servers, key="key")
    stream.through(count).to(counts, name="out")
    producing = threading.Thread(target=run.produced)
    producing.start()
    broker = BrokerStrikes(server, strikes.broker, run.came) if strikes.broker else None
    chain = ("events", "count", "out")
    options: dict[str, Any] = {}
    processes = None
    if strikes.processes:
        processes = ProcessStrikes(chain, strikes.processes, run.came, seed=1)
        options = {"on_progress": processes, "checkpoint_seconds": 1.0}
    try:
        flow.run(cluster=cluster, **options)
    finally:
        for each in (processes, broker):
            if each is not None:
                each.stop()
    producing.join()
    found = run.judged()
    if broker is None and processes is None:
        return found
    struck = {
        "kills": 0 if broker is None else broker.kills,
        "strikes": 0 if processes is None else processes.made,
        "open": open_partitions(server.servers),
    }
    return {**found, "broker CPU": math.nan, **struck}  # of several processes


def other(server: KafkaServer, work: Work, system: Other) -> dict[str, Any]:
    """The same by another system.

    Raises:
        Unavailable: it cannot be had, or ended.
    """
    command = system.command()
    run = _Measuring(server, work)
    running = Running(command, server.servers, system.ms)
    try:
        run.produced(running.refuse_ended)
        return run.judged()
    finally:
        running.end()


class _Measuring:
    """Topics with one record in each partition, and a reader: once it has these, the job runs."""

    def __init__(self, server: KafkaServer, work: Work) -> None:
        self._server, self._work = server, work
        for topic in ("events", "counts"):
            make_topic(server.servers, topic, work.partitions)
        produce(server.servers, 1000, work.partitions, work.partitions)
        self._reader = Reader(server.servers, work.partitions, work.total + work.partitions)
        self._reader.start()
        self._used = 0.0

    @property
    def came(self) -> threading.Event:
        """Is set when the first record was read: the job runs."""
        return self._reader.came

    def produced(self, look: Callable[[], None] = lambda: None) -> None:
        """Produce at the pace, once the job runs. look: is called while it begins.

        Raises:
            Unavailable: nothing comes.
        """
        until = time.monotonic() + START_SECONDS
        while not self._reader.came.wait(0.5):
            look()
            if time.monotonic() > until:
                raise Unavailable(f"nothing has come within {START_SECONDS:g} s")
        work, used = self._work, self._server.cpu_seconds()
        produce(self._server.servers, work.rate, work.total, work.partitions)
        self._used = (self._server.cpu_seconds() - used) / (work.warm + work.seconds)

    def judged(self) -> dict[str, Any]:
        """What was found, when all has come."""
        work = self._work
        self._reader.join(END_SECONDS)
        found = self._reader.judged(
            work.partitions + work.rate * work.warm, work.total + work.partitions
        )
        return {"rate": work.rate, **found, "broker CPU": round(self._used, 2)}


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
            for message in [first, *self._client.consume(5000, 0)]:
                if message.error() is not None:
                    continue  # the broker is away, and comes back
                self.came.set()
                value = json.loads(message.value() or b"")
                which = int(message.key() or b""), value["n"]
                self.twice += which in self._seen
                self._seen.add(which)
                self.times.append((value["sent"], now - value["sent"]))

    def judged(self, warm: int, total: int) -> dict[str, Any]:
        """The times of what came after the first records."""
        times = np.array([took for _, took in sorted(self.times)[warm:]] or [0]) / 1000
        p50, p90, p99, most = np.percentile(times, [50, 90, 99, 100]).round(1).tolist()
        missing = total - len(self._seen)
        return {
            "records": len(times), "p50 ms": p50, "p90 ms": p90, "p99 ms": p99, "most ms": most,
            "missing": missing, "twice": self.twice,
        }  # fmt: skip
