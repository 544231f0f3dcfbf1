"""The changes of a table on real Ray: each once, though the server, a keeper and the source die."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.io.capture.source import ChangedRows, WantedChanges
from raystream.io.capture.values import ToldFields
from tests.actors.helpers import parts
from tests.gates import LIMIT_SECONDS, Gate
from tests.servers import Postgres

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]
THERE, SERVER_DIES_AT, LEAST = 20, 60, 100


class Change(NamedTuple):
    op: str
    id: int


class Until(ChangedRows[Change]):
    """Ends with a row whose id is below 0."""

    def read(self, split: rs.Split, position: int, /) -> Iterator[Any]:
        for item in super().read(split, position):
            yield item
            if any(change.id < 0 for change in item[1].records()):
                return


class Writer:
    """Adds and deletes rows until the gate is open, then rows that end the job until it has ended.
    It kills the server once, and asks again where it has no answer."""

    def __init__(self, server: Postgres, gate: Gate) -> None:
        self.server, self.gate = server, gate
        self.rows = THERE
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        until = time.monotonic() + 2 * LIMIT_SECONDS
        while not self.server.query("SELECT 1 FROM pg_replication_slots WHERE active"):
            if self.over.wait(0.05) or time.monotonic() > until:
                return
        while not (self.gate.folder / "open").exists() or self.rows <= LEAST:
            self._sure(f"INSERT INTO t VALUES ({self.rows}) ON CONFLICT DO NOTHING")
            if self.rows % 2:
                self._sure(f"DELETE FROM t WHERE id = {self.rows}")
            self.rows += 1
            if self.rows == SERVER_DIES_AT:
                self.server.stop(signal.SIGQUIT)
                self.server.start()
            if self.over.wait(0.01):
                return
        end = 0
        while not self.over.wait(0.2):
            end -= 1
            self._sure(f"INSERT INTO t VALUES ({end}) ON CONFLICT DO NOTHING")

    def _sure(self, sql: str) -> None:
        import psycopg

        while not self.over.is_set():
            try:
                self.server.query(sql)
                return
            except psycopg.OperationalError:
                time.sleep(0.05)


def test_each_change_comes_once_whatever_dies(tmp_path: Path) -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    (tmp_path / "out").mkdir()
    gate = Gate(tmp_path / "gate")
    gate.folder.mkdir()
    kill = parts.Killer(gate, "keeper/0", "changes/0", samples=2)
    server = Postgres()
    server.query(f"CREATE TABLE t AS SELECT generate_series(0, {THERE - 1}) id")
    server.query("ALTER TABLE t ADD PRIMARY KEY (id)")
    writer = Writer(server, gate)
    asked = WantedChanges(
        url=server.url, table="t", slot="changes", publication="changes", snapshot=True,
        follow=True, heartbeat=0.2, wait=60.0,
    )  # fmt: skip
    source = Until(Change, asked, ToldFields(operation="op"), ["id"])
    flow = rs.Flow("captured")
    changes = flow.source(source, epochs=rs.by_arrival(seconds=0.05), name="changes")
    changes.to(parts.Files(tmp_path / "out"))
    try:
        writer.thread.start()
        report = flow.run(cluster="auto", on_progress=kill, checkpoint_every=4, spares=1)
        ((behind,),) = server.query(
            "SELECT pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots"
        )
    finally:
        writer.over.set()
        writer.thread.join()
        server.remove()
    assert not kill.victims
    assert [name for each in report.recoveries for name in each.gone] == ["changes/0"]
    found = Counter(tuple(r) for _, _, r in parts.records(tmp_path / "out") if r[1] >= 0)
    there = [("read", i) for i in range(THERE)]
    added = [("insert", i) for i in range(THERE, writer.rows)]
    deleted = [("delete", i) for i in range(THERE, writer.rows) if i % 2]
    assert found == Counter([*there, *added, *deleted])
    assert behind < 1 << 20
