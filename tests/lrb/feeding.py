"""Jobs of Linear Road in a thread, and a feeder that pushes prepared rows as Spark does."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from lrb.query.fed import PATH, Feed
from lrb.query.fed_run import run_fed
from raystream.push import Client
from spark_ingest.connector.target import Target, target
from spark_ingest.connector.writing import seal, stage
from spark_ingest.feed.reading import rows_between
from spark_ingest.feed.rows import mark, pushed
from spark_ingest.layout import SPLITS, history_files, read_meta
from tests.io.test_push import TOKEN, free_port
from tests.lrb.running import Ran, read_answers


class FedJob:
    """A job that answers what is pushed into it."""

    def __init__(self, data: Path, out: Path, cluster: str | None = None, **how: Any) -> None:
        self.data, self.out, self.port = data, out, free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self.record: dict[str, Any] = {}
        self.failed: BaseException | None = None
        feed = Feed(port=self.port, token=TOKEN, history=tuple(history_files(data)))
        watch = how.pop("watch", None)
        tell = None if watch is None else lambda sample, _: watch(sample)
        self._run = lambda: run_fed(feed, out, cluster=cluster, on_progress=tell, **how)
        self.thread = threading.Thread(target=self._go, daemon=True)
        self.thread.start()

    def _go(self) -> None:
        try:
            self.record = self._run()
        except BaseException as error:
            self.failed = error

    def target(self, query: str = "test") -> Target:
        options = {"address": self.address, "token": TOKEN, "path": PATH, "lane": "split"}
        return target(options, query)

    def end(self, seconds: float = 120) -> Ran:
        """End the input; the answers."""
        with Client(self.address, TOKEN, path=PATH, give_up=60) as client:
            client.end()
        return self.ended(seconds)

    def ended(self, seconds: float = 120) -> Ran:
        """The answers, once the input has ended."""
        self.thread.join(seconds)
        assert not self.thread.is_alive()
        if self.failed is not None:
            raise self.failed
        return Ran(read_answers(self.out), self.record)


def batch_of(data: Path, split: int, begin: int, end: int, due: int = -1) -> pa.RecordBatch:
    """What one task writes: the rows of a split, its lane, and the mark after them."""
    tables = [*map(pushed, rows_between(data, split, begin, end)), mark(end, due)]
    table = pa.concat_tables(tables)
    lanes = pa.array([split] * table.num_rows, pa.int32())
    (batch,) = table.append_column("split", lanes).combine_chunks().to_batches()
    return batch


def feed(job: FedJob, cuts: Sequence[int], *, due: Sequence[int] = ()) -> None:
    """Push all rows in batches that end at these seconds, and lanes apart: each lane is a query of
    its own, and the last one goes first."""
    first = read_meta(job.data).first
    for number, (begin, end) in enumerate(zip((first, *cuts), cuts, strict=False)):
        for split in reversed(range(SPLITS)):
            rows = batch_of(job.data, split, begin, end, due[number] if due else -1)
            staged = stage(job.target(f"lane-{split}"), iter([rows]))
            seal(job.target(f"lane-{split}"), [staged], number)


def told_lanes(job: FedJob) -> int:
    """How many lanes the job has."""
    with closing(job.target().client(60)) as client:
        lanes: int = client.request("")["lanes"]
    return lanes
