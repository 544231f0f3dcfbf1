"""Every connector passes `check_source` or `check_sink`, or this page says where it is tried."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.io.capture import polling, source
from tests.io.databases.words import remove
from tests.kafka_server import Kafka
from tests.servers import Postgres


class Word(NamedTuple):
    word: str
    n: int


ROWS = [Word("abc"[i % 3], i) for i in range(24)]
ELSEWHERE = {
    "callable": "at least once: tests/io/test_at_least_once.py",
    "console": "at least once: tests/io/test_at_least_once.py",
    "push": "its clients send again: tests/actors/jobs/test_ray_push.py, the simulator",
    "recorded": "a function is not told what is recorded: tests/actors/jobs/test_ray_live.py",
    "text": "reads as `csv` does",
    "delta": "check_sink: tests/io/tables/test_delta.py",
    "iceberg": "check_sink, check_source: tests/io/tables/test_iceberg.py, _source.py",
    "websocket": "recorded, as `recorded` is: tests/io/subscriptions/test_websocket.py",
    "events": "recorded: tests/io/subscriptions/test_events.py",
    "mqtt": "recorded: tests/io/subscriptions/test_mqtt.py",
    "redis": "recorded: tests/io/subscriptions/test_redis.py",
    "nats": "recorded: tests/io/subscriptions/test_nats.py",
    "kinesis": "check_source, at least once: tests/io/kinesis/",
    "rabbitmq": "recorded: tests/io/subscriptions/test_rabbitmq.py",
    "sqs": "recorded: tests/io/subscriptions/test_sqs.py",
}
NO_CONNECTOR = {
    "BadLine",
    "BadMessage",
    "Follow",
    "Line",
    "PartFile",
    "formats",
    "parts",
    "read_parts",
}


def files(folder: Path, kind: str) -> Any:
    """A source of two files."""
    if not folder.exists():
        for i in range(2):
            flow = rs.Flow("rows")
            flow.source(rs.io.iterable(ROWS[i::2], Word)).to(getattr(rs.io, kind)(folder / f"{i}"))
            flow.run()
    suffix = {"json": "jsonl"}.get(kind, kind)
    return getattr(rs.io, kind)(str(folder / "*" / f"**/*.{suffix}"), Word)


SOURCES: dict[str, Callable[[Path], Any]] = {
    "iterable": lambda folder: rs.io.iterable(ROWS, Word, splits=3),
    "csv": lambda folder: files(folder / "csv", "csv"),
    "json": lambda folder: files(folder / "json", "json"),
    "parquet": lambda folder: files(folder / "parquet", "parquet"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_each_record_of_a_source_comes_once_whatever_dies(name: str, tmp_path: Path) -> None:
    rs.testing.check_source(lambda: SOURCES[name](tmp_path), expected=ROWS, examples=10)
    rs.testing.check_source(lambda: SOURCES[name](tmp_path), examples=5)


def test_each_message_of_a_topic_comes_once_whatever_dies(kafka: Kafka) -> None:
    kafka.topic("every", 2)
    for i in range(2):
        values = [json.dumps(row._asdict()).encode() for row in ROWS[i::2]]
        kafka.produce("every", *values, partition=i)
    rs.testing.check_source(
        lambda: rs.io.kafka("every", Word, servers=kafka.servers, end="latest"),
        expected=ROWS,
        every_call=False,
        examples=6,
    )


@pytest.mark.parametrize("name", ["postgres_changes", "postgres_rows"])
def test_each_record_of_a_table_comes_once_whatever_dies(
    name: str, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(polling, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(polling, "BATCH_ROWS", 5)
    monkeypatch.setattr(source, "BATCH_ROWS", 5)

    def begin() -> None:
        postgres_server.query("DROP TABLE IF EXISTS words")
        for reader, slot in postgres_server.query(
            "SELECT active_pid, slot_name FROM pg_replication_slots"
        ):
            if reader:
                postgres_server.query(f"SELECT pg_terminate_backend({reader}, 10000)")
            postgres_server.query(f"SELECT pg_drop_replication_slot('{slot}')")
        postgres_server.query(
            "CREATE TABLE words (n int PRIMARY KEY, word text);"
            "DROP PUBLICATION IF EXISTS raystream_words;"
            "CREATE PUBLICATION raystream_words FOR TABLE words"
        )
        if name == "postgres_changes":
            postgres_server.query(
                "SELECT pg_create_logical_replication_slot('raystream_words', 'pgoutput')"
            )
        for i in range(0, len(ROWS), 4):  # a transaction for each four rows
            values = ", ".join(f"({r.n}, '{r.word}')" for r in ROWS[i : i + 4])
            postgres_server.query(f"INSERT INTO words VALUES {values}")

    def make() -> Any:
        if name == "postgres_rows":
            return rs.io.postgres_rows(
                postgres_server.url, Word, table="words", rising="n", every=0.01
            )
        return rs.io.postgres_changes(
            postgres_server.url, Word, table="words", operation=None, snapshot=False,
            heartbeat=0.02, wait=5,
        )  # fmt: skip

    try:
        rs.testing.check_source(make, expected=ROWS, begin=begin, every_call=False, examples=12)
    finally:
        begin()
        postgres_server.query(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots;"
            "DROP TABLE words; DROP PUBLICATION raystream_words"
        )


@dataclass
class Target:
    """A sink, how to read what it has written, and how to remove it."""

    make: Callable[[], Any]
    read: Callable[[], Iterable[Any]]
    clear: Callable[[], object]


def folder_of(kind: str, tmp_path: Path) -> Target:
    out = tmp_path / "out"
    return Target(
        lambda: getattr(rs.io, kind)(out),
        lambda: [
            r
            for batch in rs.io.read_parts(out, Word, partial=True, key_groups=8)
            for r in batch.records()
        ],
        lambda: shutil.rmtree(out, ignore_errors=True),
    )


def sqlite_of(tmp_path: Path) -> Target:
    path = tmp_path / "out.db"

    def read() -> list[Word]:
        with closing(sqlite3.connect(path)) as connection:
            return [Word(*row) for row in connection.execute("SELECT word, n FROM words")]

    return Target(
        lambda: rs.io.sqlite(path, table="words", create=True), read, lambda: remove(path)
    )


def duckdb_of(tmp_path: Path) -> Target:
    duckdb, path = pytest.importorskip("duckdb"), tmp_path / "out.duckdb"

    def read() -> list[Word]:
        with duckdb.connect(str(path)) as connection:
            return [Word(*r) for r in connection.execute("SELECT word, n FROM words").fetchall()]

    return Target(
        lambda: rs.io.duckdb(path, table="words", create=True), read, lambda: remove(path)
    )


SINKS: dict[str, Callable[[Path], Target]] = {
    **{kind: lambda at, kind=kind: folder_of(kind, at) for kind in ("csv", "json", "parquet")},
    "sqlite": sqlite_of,
    "duckdb": duckdb_of,
}


@pytest.mark.parametrize("name", SINKS)
def test_each_record_of_a_sink_is_there_once_whatever_dies(name: str, tmp_path: Path) -> None:
    """Those to databases are killed at every call in tests of their own; files differ in their
    format alone."""
    target = SINKS[name](tmp_path)
    rs.testing.check_sink(
        target.make, ROWS, read=target.read, clear=target.clear,
        every_call=name == "json", examples=1 if name == "duckdb" else 5,
    )  # fmt: skip


def test_a_postgres_sink_has_each_record_once(postgres_server: Postgres) -> None:
    def read() -> list[Word]:
        return [Word(*r) for r in postgres_server.query("SELECT word, n FROM words")]

    def clear() -> None:
        tables = "words, raystream_runs, raystream_markers, raystream_staged"
        postgres_server.query(f"DROP TABLE IF EXISTS {tables}")

    rs.testing.check_sink(
        lambda: rs.io.postgres(postgres_server.url, table="words", create=True), ROWS,
        read=read, clear=clear, every_call=False, examples=3,
    )  # fmt: skip
    clear()


def test_no_connector_is_forgotten() -> None:
    tried = {*SOURCES, *SINKS, "kafka", "postgres", "postgres_changes", "postgres_rows"}
    assert tried | {*ELSEWHERE} | NO_CONNECTOR == {*rs.io.__all__}
    assert not tried & {*ELSEWHERE}
