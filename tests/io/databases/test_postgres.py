"""PostgreSQL, a real server: each row once, whatever dies, the server too."""

from __future__ import annotations

import importlib
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import ConfigError, JobError, OutputError
from raystream.io.databases.postgres import without_password
from tests.docs.test_docs import blocks
from tests.gates import LIMIT_SECONDS, until
from tests.io.databases.words import CHANGES, EVERYTHING, ROWS, Counted, flow_of
from tests.processes import free_port
from tests.servers import PASSWORD, Postgres


class Event(NamedTuple):
    time: int
    key: rs.Int64
    text: str


TABLES = "counts, raystream_runs, raystream_markers, raystream_staged"


@pytest.fixture
def postgres(postgres_server: Postgres) -> Postgres:
    postgres_server.query(f"DROP TABLE IF EXISTS {TABLES}")
    return postgres_server


def sink(server: Postgres, **options: Any) -> Any:
    return rs.io.postgres(server.url, **{"table": "counts", "create": True} | options)


@pytest.mark.parametrize("key", [None, "word"])
@pytest.mark.parametrize("visible", [None, "saved"])
def test_each_row_is_there_once_whatever_dies(
    key: str | None, visible: Any, postgres: Postgres
) -> None:
    postgres.query("CREATE TABLE counts (word text PRIMARY KEY, n bigint)" if key else
                   "CREATE TABLE counts (word text, n bigint)")  # fmt: skip
    rs.testing.check_sink(
        lambda: sink(postgres, key=key, visible=visible, create=False),
        ROWS[:8],
        read=lambda: [Counted(*row) for row in postgres.query("SELECT word, n FROM counts")],
        clear=lambda: _empty(postgres),
        examples=3,
        every_call=bool(key) and visible is None,
    )


def _empty(server: Postgres) -> None:
    tables = server.query("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    for (name,) in tables:
        server.query(f"DELETE FROM {name}")


def test_rows_are_deleted_by_their_key(postgres: Postgres) -> None:
    flow_of(CHANGES, sink(postgres, key="word", delete="gone")).run()
    assert postgres.query("SELECT * FROM counts ORDER BY 1") == [("a", 2), ("c", 5)]


class Plain(NamedTuple):
    """What goes by CSV."""

    at: datetime
    day: date
    price: Annotated[Decimal, rs.decimal(12, 2)]
    ok: bool
    ratio: float
    tags: list[str]
    text: str
    note: str | None


WHEN, DAY = datetime(2024, 2, 3, 4, 5, 6, 7, UTC), date(2024, 2, 3)
PRICE = Decimal("-12.50")


def test_what_a_table_holds_of_each_type(postgres: Postgres) -> None:
    columns = {"ok": 'is "ok"? 100%'}
    flow_of([EVERYTHING], sink(postgres, key="id", columns=columns)).run()
    assert postgres.query("SELECT * FROM counts") == [tuple(EVERYTHING)]


@pytest.mark.parametrize("text", ["plain", 'quotes " and\nlines', "", "\\.", "a\n\\.\nb", "ü,;'"])
@pytest.mark.parametrize("note", [None, ""])
def test_text_is_copied_as_it_is(text: str, note: str | None, postgres: Postgres) -> None:
    record = Plain(WHEN, DAY, PRICE, False, float("-inf"), ["x", '"', text], text, note)
    flow_of([record], sink(postgres)).run()
    assert postgres.query("SELECT * FROM counts") == [tuple(record)]


def event(i: int) -> Event:
    return Event(i, i % 97, f"event {i}")


class GoingOn(rs.Source[Event]):
    """Events until it is told to end."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.read_upto = 0

    def splits(self) -> list[rs.Split]:
        return [rs.Split("all")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Event]]]:
        while not self.over.is_set():
            events = [event(i) for i in range(position, position + 20)]
            position = self.read_upto = position + len(events)
            columns = zip(Event._fields, zip(*events, strict=True), strict=True)
            yield position, rs.Batch(Event, {name: [*values] for name, values in columns})


def test_a_server_that_is_killed_and_comes_back(postgres: Postgres) -> None:
    """With SIGQUIT it ends in the midst of whatever it does, and recovers from its log."""
    source = GoingOn()
    flow = rs.Flow("events", key_groups=16)
    stream = flow.source(source, epochs=rs.by_time("time", seconds=5))
    stream.to(sink(postgres), name="events")
    failed: list[BaseException] = []

    def run() -> None:
        try:
            flow.run(instances={"events": 2})
        except BaseException as error:
            failed.append(error)

    job = threading.Thread(target=run)
    job.start()
    try:
        for _ in range(3):
            seen = source.read_upto
            until(lambda seen=seen: source.read_upto > seen + 200 or failed)
            postgres.stop(signal.SIGQUIT)
            postgres.start()
    finally:
        source.over.set()
        job.join(LIMIT_SECONDS)
    assert not job.is_alive() and not failed
    found = postgres.query('SELECT "time", key, text FROM counts')
    assert sorted(found) == [tuple(event(i)) for i in range(source.read_upto)]


def test_a_server_that_cannot_be_reached_is_waited_for_no_longer_than_told(
    postgres: Postgres,
) -> None:
    gone = postgres.url.replace(f":{postgres.port}/", ":1/")
    flow = flow_of(ROWS, rs.io.postgres(gone, table="t", wait=0.3))
    with pytest.raises(OutputError, match="could not be written: OperationalError") as failed:
        flow.run()
    assert PASSWORD not in str(failed.value)


def test_passwords_are_not_shown(postgres: Postgres) -> None:
    wrong = postgres.url.replace("correct", "wrong")
    flow = flow_of(ROWS, rs.io.postgres(wrong, table="t", wait=0.0))
    with pytest.raises(OutputError, match="password authentication failed") as failed:
        flow.run()
    told = f"{failed.value!r} {failed.value} {rs.io.postgres(wrong, table='t')!r}"
    assert "horse" not in told
    assert without_password("host=x password='a b' user=y") == "host=x password='***' user=y"
    assert (
        without_password("postgresql://u@h/d?password=a%20b") == "postgresql://u@h/d?password=***"
    )
    assert without_password("postgresql://u:p%40w@h/d") == "postgresql://u:***@h/d"


def test_a_connection_string_that_cannot_be_read_is_not_shown() -> None:
    for url in ("postgresql//ann:hush@h/d", "postgres:/ann:hush@h", "host=h pw=hush"):
        with pytest.raises(ConfigError, match=r"rs.io.postgres\(url\)") as failed:
            rs.io.postgres(url, table="t")
        assert "hush" not in f"{failed.value!r} {failed.value}"
        assert "postgresql://user" in failed.value.hint


def test_what_users_can_do_is_said(postgres: Postgres) -> None:
    postgres.query(
        "DROP TABLE IF EXISTS unkeyed, must, dates;"
        "CREATE TABLE unkeyed (word text, n bigint, time bigint);"
        "CREATE TABLE must (word text, n bigint, time bigint, must text NOT NULL);"
        "CREATE TABLE dates (word date, n bigint, time bigint)"
    )
    away = f"postgresql://a:b@127.0.0.1:{free_port()}/d"
    for url, options, hint in [
        (postgres.url, {"table": "unkeyed", "key": "word"}, "unique index"),
        (postgres.url, {"table": "must"}, "a default"),
        (postgres.url, {"table": "dates"}, "type of each column"),
        (postgres.url, {"table": "nowhere.t", "create": True}, "CREATE SCHEMA"),
        (postgres.url.replace("/postgres", "/none"), {"table": "t"}, "the database"),
        (postgres.url.replace("correct", "wrong"), {"table": "t"}, "the password"),
        (away, {"table": "t"}, "Look at the address"),
    ]:
        with pytest.raises(OutputError) as failed:
            flow_of(ROWS, rs.io.postgres(url, wait=0.0, **options)).run()
        assert hint in failed.value.hint


def test_a_database_that_has_gone_back_is_noticed(postgres: Postgres) -> None:
    """As a backup does, or a replica that was behind."""
    events = [event(i) for i in range(400)]

    class GoesBack(rs.Sink[Event]):
        def write(self, epoch: int, keys: rs.KeyRange, batch: rs.Batch[Event]) -> None:
            if epoch == 50:
                postgres.query("UPDATE raystream_markers SET epoch = epoch - 3, shown = shown - 3")

    flow = rs.Flow("events")
    stream = flow.source(rs.io.iterable(events, Event), epochs=rs.by_time("time", seconds=5))
    stream.to(sink(postgres), name="events")
    stream.to(GoesBack(), name="back")
    with pytest.raises(OutputError, match="the database has gone back"):
        flow.run()


def test_nothing_is_imported_when_no_connector_is_used() -> None:
    seen = (
        "import sys, raystream, raystream.io, raystream.testing, raystream.run\n"
        "print([m for m in ('sqlite3', 'duckdb', 'psycopg', 'raystream.io.databases.sink')"
        " if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_what_is_refused(postgres: Postgres) -> None:
    with pytest.raises(ConfigError, match="postgresql://"):
        rs.io.postgres("", table="t")
    flow = flow_of([Counted("a\0b", 1)], sink(postgres))
    with pytest.raises(JobError, match=r"NUL|invalid byte sequence"):
        flow.run()
    postgres.query("DROP TABLE counts; CREATE TABLE counts (word text, n bigint)")
    flow = flow_of(ROWS, sink(postgres, key="word"))
    with pytest.raises(OutputError, match="no unique or exclusion constraint"):
        flow.run()


def test_the_page_of_postgres_does_what_it_says(
    postgres: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said, changes = blocks("docs/connectors/postgres.md")
    text = "\n".join([*code.lines, *changes.lines])
    (its_url,) = re.findall(r'^URL = "(.*)"$', text, re.MULTILINE)
    (tmp_path / "postgres_page.py").write_text(text.replace(its_url, postgres.url))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    importlib.import_module("postgres_page")
    with closing(sqlite3.connect("copy.db")) as copy:
        copied = copy.execute("SELECT * FROM totals ORDER BY shop").fetchall()
    assert copied == postgres.query("SELECT * FROM totals ORDER BY shop")
    postgres.query(
        "SELECT pg_drop_replication_slot('raystream_totals'); DROP PUBLICATION raystream_totals"
    )
    found = postgres.query("SELECT * FROM totals ORDER BY shop")
    postgres.query("DROP TABLE totals")
    assert ["|".join(map(str, row)) for row in found] == list(said.lines)
