"""What pushed records cost: CPU seconds of the job's processes beside the same records from files,
and how long it takes from a post to the sink.

Clients are processes of their own, and their CPU does not count. Both jobs are cut by arrival; the
answers of each are checked.
"""

from __future__ import annotations

import multiprocessing
import secrets
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.table import Table

import raystream as rs
from benchmarks.shared.w1 import FORMS, Check, Key, Keys, expected, totals
from raystream.errors import JobError
from raystream.push import Client

BATCH = 10_000
"""Records of a request, and of a row group."""
CLIENTS = 4
LANES = 8
WARM_SECONDS = 2.0
"""What is posted this long after the first record does not count for latency."""


class Posted(NamedTuple):
    """A record, and the Unix time at which it was posted."""

    key: rs.Int32
    sent: rs.Float64


class Late(rs.Sink[Posted]):
    """Notes how long each record took, and writes it down when it closes."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.first = 0.0
        self.seconds: list[Any] = []

    def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Posted]) -> None:
        now, sent = time.time(), batch["sent"]
        self.first = self.first or now
        self.seconds.append((now - sent)[sent > self.first + WARM_SECONDS])

    def close(self) -> None:
        np.save(Path(self.folder, "seconds.npy"), np.concatenate([np.zeros(0), *self.seconds]))


# ---- clients ----------------------------------------------------------------------------------


def push_keys(address: str, token: str, source: Keys, client: int) -> None:
    """Push every so manieth block of keys as fast as the job takes them."""
    with Client(address, token) as pusher:
        for number, at in enumerate(range(0, source.rows, source.epoch_rows)):
            if number % CLIENTS == client:
                keys = source.block(at)
                time_ = np.full(len(keys), number, np.int32)
                pusher.push_arrow(pa.table({"time": time_, "key": keys}))


def push_paced(address: str, token: str, rate: float, seconds: float, client: int) -> None:
    """Push small batches at a pace: each with what is due by then, and at least one record."""
    with Client(address, token) as pusher:
        pusher.request("")  # the job is there
        begun, done, most = time.monotonic(), 0, int(rate * seconds)
        while done < most:
            due = min(most, int((time.monotonic() - begun) * rate))
            if due == done:
                time.sleep(1 / rate)
                continue
            keys = np.arange(done, due, dtype=np.int32) * CLIENTS + client
            sent = np.full(len(keys), time.time())
            pusher.push_arrow(pa.table({"key": keys, "sent": sent}))
            done = due


@contextmanager
def pushed(work: Callable[..., None], *arguments: Any) -> Iterator[tuple[int, str]]:
    """The port and token of a job that clients push to, each in a process, and which they end."""
    token = secrets.token_urlsafe(16)
    with socket.create_server(("127.0.0.1", 0)) as tried:
        port: int = tried.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    spawning = multiprocessing.get_context("spawn")
    clients = [
        spawning.Process(target=work, args=(address, token, *arguments, n), daemon=True)
        for n in range(CLIENTS)
    ]

    def end() -> None:
        for client in clients:
            client.join()
        with Client(address, token) as last:
            last.end()

    for client in clients:
        client.start()
    ending = threading.Thread(target=end, daemon=True)
    ending.start()
    yield port, token
    ending.join(60)
    if any(client.exitcode for client in clients):
        raise JobError("a client has failed")


# ---- measures ---------------------------------------------------------------------------------


class Meter:
    """Adds up the CPU seconds of the processes of a job, while it is told of its progress."""

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def __call__(self, sample: Any) -> None:
        for pid in sample.processes.values():
            with suppress(psutil.Error):
                times = psutil.Process(pid).cpu_times()
                self._seconds[pid] = times.user + times.system

    @property
    def seconds(self) -> float:
        return sum(self._seconds.values())


def _counted(source: Any, form: str, data: Keys) -> float:
    """CPU seconds of a keyed count over a source.

    Raises:
        JobError: an answer is wrong.
    """
    meter = Meter()
    with tempfile.TemporaryDirectory() as folder:
        flow = rs.Flow("pushed")
        keys = flow.source(source, epochs=rs.by_arrival(), name="keys")
        keys.through(FORMS[form], name="count").to(Check(folder))
        report = flow.run(cluster="auto", on_progress=meter)
        got = totals(Path(folder))
    if got != expected(data):
        raise JobError(f"{form}: wrong answers: {got}")
    return max(meter.seconds, sum(o.cpu for o in report.operators))


def of_files(form: str, data: Keys, folder: Path) -> float:
    """CPU seconds with records from files."""
    if not any(folder.iterdir()):
        blocks = [data.block(at) for at in range(0, data.rows, data.epoch_rows)]
        for number in range(LANES):
            tables = [
                pa.table({"time": np.full(len(keys), n, np.int32), "key": keys})
                for n, keys in enumerate(blocks)
                if n % LANES == number
            ]
            pq.write_table(pa.concat_tables(tables), folder / f"{number}.parquet", BATCH)
    return _counted(rs.io.parquet(folder, Key), form, data)


def of_push(form: str, data: Keys) -> float:
    """CPU seconds with records from clients."""
    with pushed(push_keys, data) as (port, token):
        return _counted(rs.io.push(Key, port=port, lanes=LANES, token=token), form, data)


def latency(rate: float, seconds: float) -> np.ndarray:
    """Seconds of each record from its post to the sink, sorted.

    Raises:
        JobError: none has come.
    """
    with tempfile.TemporaryDirectory() as folder:
        with pushed(push_paced, rate / CLIENTS, seconds) as (port, token):
            flow = rs.Flow("paced")
            source = rs.io.push(Posted, port=port, lanes=LANES, token=token)
            flow.source(source, epochs=rs.by_arrival()).to(Late(folder))
            flow.run(cluster="auto")
        found: np.ndarray = np.sort(np.load(Path(folder, "seconds.npy")))
    if not len(found):
        raise JobError("no record was measured: more --seconds")
    return found


def main(
    rows: Annotated[int, typer.Option(min=BATCH, help="Records of a count.")] = 4_000_000,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each; medians are shown.")] = 3,
    rate: Annotated[float, typer.Option(min=1, help="Records a second, for latency.")] = 10_000,
    seconds: Annotated[float, typer.Option(min=3, help="How long they come.")] = 20,
    form: Annotated[str, typer.Option(help="interpreted, batch or both.")] = "both",
) -> None:
    """CPU of pushed records beside files, and latency from post to sink."""
    forms = ["interpreted", "batch"] if form == "both" else [form]
    if unknown := [f for f in forms if f not in FORMS]:
        raise typer.BadParameter(f"--form {unknown[0]}: one of {', '.join(FORMS)}, both")
    data = Keys(rows, 100_000, 1, BATCH)
    table = Table(title=f"{rows:,} records: CPU seconds of the job's processes")
    for column in ("form", "files", "pushed", "more", "runs"):
        table.add_column(column, justify="left" if column == "form" else "right")
    with tempfile.TemporaryDirectory() as folder:
        for name in forms:
            pairs = [
                (of_files(name, data, Path(folder)), of_push(name, data)) for _ in range(repeat)
            ]
            files, push = (statistics.median(those) for those in zip(*pairs, strict=True))
            more = f"{push / files - 1:+.0%}" if files else "–"
            table.add_row(name, f"{files:.2f}", f"{push:.2f}", more, str(repeat))
    Console().print(table)
    found = latency(rate, seconds)
    p50, p99 = np.percentile(found, [50, 99]) * 1000
    print(
        f"{rate:,.0f} records/s from {CLIENTS} clients, {len(found):,} measured:"
        f" p50 {p50:.1f} ms, p99 {p99:.1f} ms from post to sink"
    )
