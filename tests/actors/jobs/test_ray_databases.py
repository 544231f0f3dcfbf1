"""Sinks to databases on real Ray: each row once, though the processes of the sink are killed."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.actors.client.stopping import stop
from raystream.errors import Stopped
from raystream.io.databases.duckdb import DuckdbSink
from raystream.io.databases.postgres import PostgresSink
from raystream.io.databases.sqlite import SqliteSink
from tests.gates import LIMIT_SECONDS, until
from tests.servers import Postgres

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]

RECORDS, KEYS = 6000, 53


class Event(NamedTuple):
    time: int
    key: int


class Numbered(NamedTuple):
    key: int
    n: int


class Tally(rs.State):
    n: int = 0


def events() -> list[Event]:
    return [Event(i, i * i % KEYS) for i in range(RECORDS)]


@rs.operator(key="key")
def number(event: Event, tally: Tally) -> Iterator[Numbered]:
    tally.n += 1
    yield Numbered(event.key, tally.n)


def expected() -> list[tuple[int, int]]:
    """Every record with its number among those of its key."""
    count: dict[int, int] = {}
    found = []
    for event in events():
        count[event.key] = count.get(event.key, 0) + 1
        found.append((event.key, count[event.key]))
    return sorted(found)


class Dies:
    """A sink whose process is killed once before and once after each of two of its transactions:
    before them the first of its instances, after them the others."""

    def __init__(self, folder: Path, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.folder = folder

    def end_epoch(self, epoch: int, /, *, more: bool) -> None:
        first = self._range.context.keys.lo == 0  # type: ignore[attr-defined]
        if epoch in (8, 55) and first:
            self._die(epoch)
        super().end_epoch(epoch, more=False)  # type: ignore[misc]
        if epoch in (28, 78) and not first:
            self._die(epoch)

    def _die(self, epoch: int) -> None:
        where = self.folder / f"{self.table}-{epoch}"  # type: ignore[attr-defined]
        with suppress(FileExistsError):
            os.close(os.open(where, os.O_CREAT | os.O_EXCL))
            os.kill(os.getpid(), signal.SIGKILL)


class DyingSqlite(Dies, SqliteSink):
    pass


class DyingDuckdb(Dies, DuckdbSink):
    pass


class DyingPostgres(Dies, PostgresSink):
    pass


OPTIONS: dict[str, Any] = {
    "delete": None, "create": True, "columns": None, "visible": None, "existing": None,
    "wait": 60.0,
}  # fmt: skip


def run(make: Any, folder: Path, place: Any, *, paced: float = 4) -> None:
    """Run a job of 100 epochs on Ray, with two sinks of two instances each, in `paced` seconds and
    what recoveries take."""
    folder.mkdir()
    flow = rs.Flow("databases", key_groups=16)
    epochs = rs.by_time("time", seconds=60, speed=RECORDS / paced)
    numbered = flow.source(rs.io.iterable(events, Event), epochs=epochs).through(number)
    numbered.to(make(folder, place, "numbered", key=None, **OPTIONS), name="all")
    numbered.to(make(folder, place, "latest", key="key", **OPTIONS), name="latest")
    report = flow.run(
        cluster="auto", instances={"all": 2, "latest": 2}, checkpoint_every=7, spares=1
    )
    assert len(list(folder.iterdir())) == 8
    assert len(report.recoveries) >= 4  # two that die at once are replaced together


def judge(query: Callable[[str], list[Any]]) -> None:
    assert sorted(query("SELECT key, n FROM numbered")) == expected()
    assert sorted(query("SELECT key, n FROM latest")) == sorted(dict(expected()).items())
    assert query("SELECT DISTINCT ended FROM raystream_markers") == [(1,)]


@pytest.mark.long
def test_sqlite_has_each_row_once(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    run(DyingSqlite, tmp_path / "dead", path)
    with closing(sqlite3.connect(path)) as connection:
        judge(lambda sql: connection.execute(sql).fetchall())


@pytest.mark.long
def test_duckdb_has_each_row_once(tmp_path: Path) -> None:
    """One process at a time has the file: the four instances wait for each other, and one that is
    killed keeps nobody waiting."""
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "out.duckdb"
    run(DyingDuckdb, tmp_path / "dead", path)
    with duckdb.connect(str(path), read_only=True) as connection:
        judge(lambda sql: connection.execute(sql).fetchall())


def test_postgres_has_each_row_once_though_the_server_is_killed_too(tmp_path: Path) -> None:
    psycopg = pytest.importorskip("psycopg")
    server = Postgres()
    struck: list[int] = []

    def shown() -> int:
        with suppress(psycopg.Error):
            return server.query("SELECT max(epoch) FROM raystream_markers")[0][0] or 0
        return 0

    def strike() -> None:
        """Kill the server when a third of the epochs are there."""
        until(lambda: shown() >= 33)
        struck.append(shown())
        server.stop(signal.SIGQUIT)
        server.start()

    try:
        striker = threading.Thread(target=strike)
        striker.start()
        run(DyingPostgres, tmp_path / "dead", server.url, paced=12)
        striker.join()
        assert struck and struck[0] < 100, struck
        judge(server.query)
    finally:
        server.remove()


def stoppable(path: Path, speed: float) -> rs.Flow:
    flow = rs.Flow("stoppable", key_groups=16)
    epochs = rs.by_time("time", seconds=10, speed=speed)
    numbered = flow.source(rs.io.iterable(events, Event), epochs=epochs).through(number)
    numbered.to(rs.io.sqlite(path, table="numbered", create=True), name="all")
    return flow


@pytest.mark.long
def test_a_stop_leaves_every_marker_at_the_saved_checkpoint(tmp_path: Path) -> None:
    """So that another program may go on from there."""
    path, saves = tmp_path / "out.db", str(tmp_path / "saves")
    ended: list[BaseException] = []

    def run() -> None:
        try:
            stoppable(path, RECORDS / 20).run(
                cluster="auto", instances={"all": 2}, checkpoint_every=40, durable=saves, spares=0
            )
        except BaseException as error:
            ended.append(error)

    def shown() -> int:
        with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
            return connection.execute("SELECT max(epoch) FROM raystream_markers").fetchone()[0] or 0
        return 0

    job = threading.Thread(target=run)
    job.start()
    until(lambda: shown() >= 60 or not job.is_alive())
    said = stop("stoppable", "auto", save=True)
    job.join(LIMIT_SECONDS)
    assert isinstance(ended[0], Stopped), ended
    at = re.search(r"checkpoint (\d+) is saved", said)
    assert at is not None, said
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT DISTINCT epoch, shown FROM raystream_markers").fetchall()
        assert found == [(int(at[1]), int(at[1]))]
        connection.execute("UPDATE raystream_runs SET program = 'another one'")
        connection.commit()
    stoppable(path, RECORDS).run(
        cluster="auto", instances={"all": 3}, durable=saves, resume=True, spares=0
    )
    with closing(sqlite3.connect(path)) as connection:
        assert sorted(connection.execute("SELECT key, n FROM numbered").fetchall()) == expected()
