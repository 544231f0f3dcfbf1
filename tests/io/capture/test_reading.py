"""Tables of a real server as sources, in one process."""

from __future__ import annotations

import importlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.errors import ConfigError, GraphError, InputError
from raystream.io.capture import changes
from raystream.io.capture.pgoutput import lsn_of
from raystream.testing import Collect
from tests.gates import LIMIT_SECONDS
from tests.servers import Postgres

SPLIT = rs.Split("raystream_orders")


class Order(NamedTuple):
    op: str
    id: int
    amount: int | None
    note: str | None


class Identified(NamedTuple):
    id: int


class Plain(NamedTuple):
    id: int
    amount: int


@pytest.fixture
def postgres(postgres_server: Postgres) -> Iterator[Postgres]:
    postgres_server.query("CREATE TABLE orders (id int PRIMARY KEY, amount int, note text)")
    yield postgres_server
    postgres_server.query(
        "DROP TABLE orders; DROP PUBLICATION IF EXISTS raystream_orders; SELECT"
        " pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE active_pid IS NULL"
    )


def source(server: Postgres, record: Any = Order, **options: Any) -> Any:
    return rs.io.postgres_changes(server.url, record, **{"table": "orders"} | options)


def run(read: Any, **options: Any) -> list[Any]:
    flow, sink = rs.Flow("orders"), Collect()
    flow.source(read, epochs=rs.by_arrival(seconds=0.01)).to(sink)
    flow.run(**options)
    return sink.records()


class Reader:
    """Reads a split by itself, as a job does."""

    def __init__(
        self, read: Any, known: dict[str, int] | None = None, split: rs.Split = SPLIT
    ) -> None:
        self.source, self.split, self.known = read, split, dict(known or {})
        self.reading = read.read(split, 0)
        read.knows(split, self.known)

    def until(self, number: int) -> list[Any]:
        """The next so many records; what is known goes on."""
        found: list[Any] = []
        until = time.monotonic() + LIMIT_SECONDS
        while len(found) < number:
            assert time.monotonic() < until, found
            _, batch, *sent = next(self.reading)
            found += batch.records()
            self._learn(*sent)
        return found

    def beyond(self, lsn: int) -> None:
        """Read until the log is known to have come so far."""
        until = time.monotonic() + LIMIT_SECONDS
        while self.known.get(changes.LOG, -1) < lsn:
            assert time.monotonic() < until
            self._learn(*next(self.reading)[2:])

    def _learn(self, *sent: Any) -> None:
        for sender, sequences in sent:
            self.known[sender] = int(sequences if isinstance(sequences, int) else sequences[-1])

    def close(self) -> None:
        self.reading.close()


def confirmed(server: Postgres) -> int:
    ((found,),) = server.query(
        "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name ="
        " 'raystream_orders'"
    )
    return lsn_of(found)


def end_of_log(server: Postgres) -> int:
    return lsn_of(server.query("SELECT pg_current_wal_lsn()::text")[0][0])


def test_the_rows_that_are_there_and_then_each_change(postgres: Postgres) -> None:
    postgres.query("INSERT INTO orders VALUES (1, 10, 'a'), (2, 20, NULL)")
    assert sorted(run(source(postgres, follow=False))) == [
        Order("read", 1, 10, "a"), Order("read", 2, 20, None),
    ]  # fmt: skip
    postgres.query("INSERT INTO orders VALUES (3, 30, 'c')")
    postgres.query("UPDATE orders SET amount = 11 WHERE id = 1")
    postgres.query("UPDATE orders SET id = 4 WHERE id = 2; DELETE FROM orders WHERE id = 3")
    after = [
        Order("insert", 3, 30, "c"),
        Order("update", 1, 11, "a"),
        Order("delete", 2, None, None),
        Order("insert", 4, 20, None),
        Order("delete", 3, None, None),
    ]
    assert run(source(postgres, snapshot=False, follow=False)) == after
    assert run(source(postgres, snapshot=False, follow=False)) == []  # the slot has moved on
    assert sorted(r.op for r in run(source(postgres, follow=False))) == ["read", "read"]


def test_a_reader_goes_on_behind_what_is_recorded(postgres: Postgres) -> None:
    postgres.query("INSERT INTO orders VALUES (1, 10, 'a')")
    first = Reader(source(postgres, wait=0.5))
    assert first.until(1) == [Order("read", 1, 10, "a")]
    first.beyond(0)
    for i in range(2, 6):
        postgres.query(f"INSERT INTO orders VALUES ({i}, {i}, NULL)")
    assert [o.id for o in first.until(4)] == [2, 3, 4, 5]
    known = dict(first.known)
    postgres.query("INSERT INTO orders VALUES (6, 6, NULL)")
    first.until(1)
    # Another process takes over. It knows less, and the first one still has its connection.
    second = Reader(source(postgres), known)
    assert [o.id for o in second.until(1)] == [6]
    assert second.known == first.known
    with pytest.raises(InputError, match="read by another process"):  # and does not fight for it
        [*first.reading]
    second.close()


def test_the_slot_moves_on_with_stored_checkpoints_and_idle_tables(postgres: Postgres) -> None:
    read = source(postgres, heartbeat=0.05)
    reader = Reader(read)
    reader.beyond(0)
    begun = confirmed(postgres)
    postgres.query("CREATE TABLE other AS SELECT generate_series(1, 1000)")
    end = end_of_log(postgres)
    reader.beyond(end - 1)
    assert confirmed(postgres) == begun  # nothing is stored
    read.stored(SPLIT, reader.known)
    until = time.monotonic() + LIMIT_SECONDS
    while confirmed(postgres) < end and time.monotonic() < until:
        next(reader.reading)
    assert confirmed(postgres) == reader.known[changes.LOG] + 1 >= end
    reader.close()
    known = reader.known | {changes.LOG: begun - 1}
    with pytest.raises(InputError, match=r"has been moved to .* those in between are lost"):
        Reader(source(postgres), known).until(1)
    postgres.query("SELECT pg_drop_replication_slot('raystream_orders'); DROP TABLE other")
    with pytest.raises(InputError, match="slot raystream_orders is gone"):
        Reader(source(postgres), known).until(1)


def test_a_table_is_read_anew_where_nothing_of_it_was_recorded(postgres: Postgres) -> None:
    postgres.query("INSERT INTO orders SELECT i, i, NULL FROM generate_series(1, 9000) i")
    first = Reader(source(postgres))
    first.until(1)
    first.close()  # the process dies, and nothing was recorded
    postgres.query("DELETE FROM orders WHERE id > 5")
    second = Reader(source(postgres))
    assert len(second.until(5)) == 5
    second.beyond(0)
    postgres.query("INSERT INTO orders VALUES (6, 6, NULL)")
    assert second.until(1) == [Order("insert", 6, 6, None)]
    second.close()


def test_a_table_whose_reading_broke_off_comes_to_what_it_is(postgres: Postgres) -> None:
    """Rows may come twice; what was deleted meanwhile comes as deleted."""
    postgres.query("INSERT INTO orders SELECT i, i, NULL FROM generate_series(1, 9000) i")
    first = Reader(source(postgres))
    rows = {o.id: o for o in first.until(1)}
    assert 5 in rows
    first.close()
    postgres.query("DELETE FROM orders WHERE id > 4; UPDATE orders SET amount = -1 WHERE id = 2")
    second = Reader(source(postgres), first.known)
    for order in second.until(4 + 8996 + 1):
        rows.pop(order.id, None) if order.op == "delete" else rows.update({order.id: order})
    second.close()
    assert {o.id: o.amount for o in rows.values()} == {1: 1, 2: -1, 3: 3, 4: 4}


def test_a_large_transaction_and_a_killed_connection(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "ROWS_MOST", 100)
    reader = Reader(source(postgres, Plain, operation=None))
    reader.beyond(0)
    postgres.query("INSERT INTO orders SELECT i, i, NULL FROM generate_series(1, 250) i")
    assert [o.id for o in reader.until(100)] == [*range(1, 101)]
    known = dict(reader.known)
    assert [o.id for o in reader.until(150)] == [*range(101, 251)]
    postgres.query("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots")
    postgres.query("INSERT INTO orders VALUES (251, 0, NULL)")
    assert [o.id for o in reader.until(1)] == [251]
    reader.close()
    again = Reader(source(postgres, Plain, operation=None), known)
    found = [o.id for o in again.until(251)]
    assert found == [*range(1, 252)]  # the job leaves out the first hundred, by their numbers
    again.close()


def test_the_example_writes_what_was_committed_since_the_last_run(
    postgres: Postgres, tmp_path: Path
) -> None:
    example = importlib.import_module("examples.changes_to_files")
    postgres.query(
        "ALTER TABLE orders ADD COLUMN customer text; ALTER TABLE orders ALTER amount TYPE"
        " numeric(12, 2); INSERT INTO orders VALUES (1, 1.5, NULL, 'ann')"
    )
    out, found = tmp_path / "changes", []
    for number in (1, 2, 3):
        example.changes(postgres.url, out).run()
        batches = rs.io.read_parts(out / f"run-{number:04d}", example.Change)
        found.append([tuple(r)[:4] for batch in batches for r in batch.records()])
        postgres.query(f"UPDATE orders SET amount = {number}; DELETE FROM orders WHERE id = 9")
    assert found == [
        [("read", 1, "ann", Decimal("1.50"))], [("update", 1, "ann", Decimal("1.00"))],
        [("update", 1, "ann", Decimal("2.00"))],
    ]  # fmt: skip


def test_what_is_stored_apart(postgres: Postgres) -> None:
    class Listed(NamedTuple):
        op: str
        id: int
        note: str | None
        same: list[str]

    postgres.query("ALTER TABLE orders ALTER note SET STORAGE EXTERNAL")
    reader = Reader(source(postgres, Listed, unchanged="same"))
    reader.beyond(0)
    postgres.query("INSERT INTO orders VALUES (1, 1, repeat('x', 9000))")
    postgres.query("UPDATE orders SET amount = 2")
    note = "x" * 9000
    assert reader.until(2) == [Listed("insert", 1, note, []), Listed("update", 1, None, ["note"])]
    postgres.query("ALTER TABLE orders REPLICA IDENTITY FULL")
    postgres.query("UPDATE orders SET amount = 3")
    postgres.query("DELETE FROM orders")
    assert reader.until(2) == [Listed("update", 1, note, []), Listed("delete", 1, note, [])]
    reader.close()


def test_a_change_of_the_table_is_named(postgres: Postgres) -> None:
    reader = Reader(source(postgres, Plain, operation=None))
    reader.beyond(0)
    postgres.query("ALTER TABLE orders ADD COLUMN colour text")
    postgres.query("INSERT INTO orders VALUES (1, 1, NULL, 'red')")
    with pytest.warns(RuntimeWarning, match="columns that Plain does not have: colour"):
        found = [*reader.until(1), *next(reader.reading)[1].records()]
    assert found == [Plain(1, 1)]
    postgres.query("ALTER TABLE orders RENAME amount TO total")
    postgres.query("INSERT INTO orders VALUES (2, 2, NULL, 'red')")
    with pytest.raises(InputError, match="has no column 'amount' any more; it has got"):
        reader.until(1)
    with pytest.raises(InputError, match="has no column 'amount'; it has id, total"):
        Reader(source(postgres, Plain, operation=None)).until(1)


def test_places_and_times_of_commits(postgres: Postgres) -> None:
    class Placed(NamedTuple):
        op: str
        id: int
        at: datetime
        lsn: int
        n: int

    reader = Reader(source(postgres, Placed, lsn="lsn", number="n", committed="at"))
    reader.beyond(0)
    before = end_of_log(postgres)
    postgres.query("INSERT INTO orders VALUES (1), (2)")
    one, two = reader.until(2)
    assert (one.n, two.n) == (1, 2)
    assert before < one.lsn == two.lsn < end_of_log(postgres)
    assert abs((one.at - datetime.now(UTC)).total_seconds()) < 3600
    reader.close()


def test_a_check_makes_nothing(postgres: Postgres) -> None:
    assert "it will be made" in source(postgres).check()
    assert postgres.query("SELECT count(*) FROM pg_replication_slots") == [(0,)]
    with pytest.raises(InputError, match="has no table nowhere"):
        source(postgres, table="nowhere").check()
    with pytest.raises(InputError, match=r"\*\*\*@127.0.0.1"):
        rs.io.postgres_changes(postgres.url + "x", Order, table="orders").check()
    rows = rs.io.postgres_rows(postgres.url, Plain, table="orders", rising="id")
    assert rows.check() == "public.orders has the columns, and id can rise"


def test_what_is_refused(postgres: Postgres) -> None:
    with pytest.raises(GraphError, match="Plain has no such field of type str"):
        source(postgres, Plain)
    with pytest.raises(GraphError, match="Order has no such field of type datetime"):
        source(postgres, committed="amount")
    with pytest.raises(ConfigError, match="lower-case letters"):
        source(postgres, slot="Mine")
    postgres.query("SELECT pg_create_logical_replication_slot('raystream_orders', 'test_decoding')")
    with pytest.raises(InputError, match="is of test_decoding"):
        Reader(source(postgres)).until(1)


def polled(server: Postgres, **options: Any) -> Any:
    given = {"table": "orders", "rising": "id", "every": 0.01} | options
    return rs.io.postgres_rows(server.url, Plain, **given)


def test_rows_are_polled_once(postgres: Postgres) -> None:
    assert run(polled(postgres, follow=False)) == []
    postgres.query("INSERT INTO orders SELECT i, i % 7, NULL FROM generate_series(0, 12000) i")
    found = run(polled(postgres, follow=False))
    assert found == [Plain(i, i % 7) for i in range(12001)]
    reader = Reader(polled(postgres), {"rows": 11998}, rs.Split("orders"))
    assert [r.id for r in reader.until(2)] == [11999, 12000]
    postgres.query("INSERT INTO orders VALUES (12001, 0, NULL)")
    assert [r.id for r in reader.until(1)] == [12001]
    reader.close()


def test_a_transaction_that_commits_late_is_waited_for(postgres: Postgres) -> None:
    """It has a lower value than one that was committed before it."""
    import psycopg

    with closing(psycopg.connect(postgres.url)) as late:
        late.execute("INSERT INTO orders VALUES (1, 1, NULL)")
        postgres.query("INSERT INTO orders VALUES (2, 2, NULL)")
        reader = Reader(polled(postgres), None, rs.Split("orders"))
        for _ in range(3):
            _, batch = next(reader.reading)
            assert not len(batch)
        late.commit()
    assert reader.until(2) == [Plain(1, 1), Plain(2, 2)]
    reader.close()


def test_timestamps_rise(postgres: Postgres) -> None:
    postgres.query(
        "ALTER TABLE orders ADD COLUMN at timestamptz; INSERT INTO orders"
        " SELECT i, i, NULL, '2024-01-01 00:00:00.000001+01'::timestamptz + i * interval '1 us'"
        " FROM generate_series(1, 50) i; INSERT INTO orders VALUES (99, 0, NULL, now())"
    )
    reader = Reader(polled(postgres, rising="at", behind=3600), None, rs.Split("orders"))
    found = reader.until(50)
    assert [r.id for r in found] == [*range(1, 51)]
    reader.close()
    (last,) = reader.known.values()
    again = Reader(polled(postgres, rising="at"), {"rows": last - 1}, rs.Split("orders"))
    assert [r.id for r in again.until(2)] == [50, 99]
    again.close()
    with pytest.raises(InputError, match="note is text, which cannot be what rises"):
        Reader(polled(postgres, rising="note"), None, rs.Split("orders")).until(1)
    with pytest.raises(InputError, match="cannot be what rises with behind="):
        Reader(polled(postgres, behind=1), None, rs.Split("orders")).until(1)


def test_a_job_in_one_process_counts_each_change_once(postgres: Postgres) -> None:
    """The job is stopped by the end of the log that it is told of, while others write."""

    def write() -> None:
        for i in range(100):
            postgres.query(f"INSERT INTO orders VALUES ({i}, {i % 3}, NULL)")

    run(source(postgres, follow=False))
    writer = threading.Thread(target=write)
    writer.start()
    counts: Counter[int] = Counter()
    while writer.is_alive():
        counts.update(o.id for o in run(source(postgres, snapshot=False, follow=False)))
    writer.join()
    counts.update(o.id for o in run(source(postgres, snapshot=False, follow=False)))
    assert counts == Counter(range(100))


def test_a_table_whose_changes_would_do_harm_is_refused(postgres: Postgres) -> None:
    """A publication of a table without a key makes all updates of its rows fail."""
    postgres.query("CREATE VIEW seen AS SELECT * FROM orders; CREATE TABLE nokey (id int)")
    try:
        for table, said in (("seen", "is no table"), ("nokey", "has no primary key")):
            read = source(postgres, Identified, table=table, operation=None, wait=0.1)
            with pytest.raises(InputError, match=said):
                read.check()
            with pytest.raises(InputError, match=said):
                run(read)
        assert not postgres.query("SELECT FROM pg_publication WHERE pubname = 'raystream_nokey'")
        postgres.query("ALTER TABLE nokey REPLICA IDENTITY FULL")
        assert "it will be made" in read.check()
    finally:
        postgres.query("DROP VIEW seen; DROP TABLE nokey")


def test_what_users_can_do_about_a_server_is_said(postgres: Postgres) -> None:
    url = postgres.url.replace("correct", "wrong")
    read = rs.io.postgres_changes(url, Order, table="orders")
    with pytest.raises(InputError, match="password authentication failed") as failed:
        read.check()
    assert "the password" in failed.value.hint
