"""Writers: tasks stage what they write, the driver seals what Spark commits.

Each call of `write` is an attempt with a name of its own: a task that is repeated, or runs twice,
stages under another name. The commit message of a task says its attempt. Spark hands the messages
of the tasks that count to `commit`, which seals the batch; all other attempts are dropped by the
job. In each lane the first seal of a (query, batch) wins, so a batch that was sealed before a query
was killed, and is written again after its restart, changes nothing.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from raystream.errors import RaystreamError
from raystream.push import ARROW, Client, arrow_body
from spark_ingest.connector.target import Target

PART_BYTES = 1 << 20
"""A part is sent when it has this many bytes."""
DROP_SECONDS = 5.0
"""How long a driver tries to have attempts dropped. If that fails, the job drops them by time."""


@dataclass
class Attempt(WriterCommitMessage):
    """What a task has staged."""

    name: str
    parts: dict[int, int]
    """How many parts by lane."""


@dataclass
class _Staged:
    """Rows of an attempt for one lane that are not sent yet."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    nbytes: int = 0


def stage(target: Target, batches: Iterator[pa.RecordBatch]) -> Attempt:
    """Stage the rows of a task.

    Raises:
        RaystreamError: the job refuses a row, has ended, or does not answer.
    """
    attempt = Attempt(uuid.uuid4().hex, {})
    staged: dict[int, _Staged] = defaultdict(_Staged)
    with contextlib.closing(target.client()) as client:
        said = client.request("")

        def send(lane: int) -> None:
            rows = pa.Table.from_batches(staged.pop(lane).batches)
            for body in _bodies(rows, said["max_bytes"]):
                part = attempt.parts.get(lane, 0)
                _stage(client, target.query, attempt.name, lane, part, body)
                attempt.parts[lane] = part + 1

        for batch in batches:
            for lane, rows in target.by_lane(batch, said["lanes"]):
                held = staged[lane]
                held.batches.append(rows)
                held.nbytes += rows.nbytes
                if held.nbytes >= PART_BYTES:
                    send(lane)
        for lane in [*staged]:
            send(lane)
    return attempt


def _bodies(rows: pa.Table, most: int) -> Iterator[bytes]:
    """Rows as bodies of requests, each of up to `most` bytes unless it is a single row."""
    if not rows.num_rows:
        return
    body = arrow_body(rows)
    if len(body) <= most or rows.num_rows == 1:
        yield body
        return
    half = rows.num_rows // 2
    yield from _bodies(rows.slice(0, half), most)
    yield from _bodies(rows.slice(half), most)


def _stage(client: Client, query: str, attempt: str, lane: int, part: int, body: bytes) -> None:
    headers = {
        "Content-Type": ARROW,
        "Raystream-Query": query,
        "Raystream-Attempt": attempt,
        "Raystream-To": str(lane),
        "Raystream-Part": str(part),
    }
    client.request("/stage", body, headers)


def seal(target: Target, messages: Sequence[Any], batch: int) -> None:
    """Make what tasks have staged the batch of this number, unless it was sealed before.

    Raises:
        RaystreamError: something is not staged any more, or the job has ended or does not answer.
    """
    attempts = _attempts(messages)
    if attempts:
        with contextlib.closing(target.client()) as client:
            client.request("/seal", _body(target, attempts, batch))


def drop(target: Target, messages: Sequence[Any], batch: int) -> None:
    """Have the job forget what tasks have staged, if it can be reached."""
    attempts = _attempts(messages)
    if attempts:
        client = target.client(DROP_SECONDS)
        with contextlib.suppress(RaystreamError), contextlib.closing(client):
            client.request("/drop", _body(target, attempts, batch))


def _attempts(messages: Sequence[Any]) -> list[tuple[str, dict[int, int]]]:
    return [(m.name, m.parts) for m in messages if isinstance(m, Attempt) and m.parts]


def _body(target: Target, attempts: Any, batch: int) -> bytes:
    said = {"query": target.query, "batch": batch, "order": target.order, "attempts": attempts}
    return json.dumps(said).encode()


class StreamWriter(DataSourceStreamArrowWriter):
    """Of `df.writeStream`. Spark makes one for each batch, and another one for its commit."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        return stage(self._target, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Seal the batch."""
        seal(self._target, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Drop what the tasks that succeeded have staged."""
        drop(self._target, messages, batchId)


class BatchWriter(DataSourceArrowWriter):
    """Of `df.write`: one batch."""

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        return stage(self._target, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Seal all of it."""
        seal(self._target, messages, 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what the tasks that succeeded have staged."""
        drop(self._target, messages, 0)
