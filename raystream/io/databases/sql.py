"""Tables of markers and of rows in SQL. A database says in a subclass what it does otherwise.

    raystream_runs      the runs of each sink, see `markers.Run`
    raystream_markers   the markers of each sink, see `markers.Marker`
    raystream_staged    rows that no reader sees yet: Arrow tables as bytes

They are beside the table of rows, in its schema, and belong to all sinks that write there. A sink
is known there by its job, its name and its table.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from raystream.errors import OutputError
from raystream.io.databases.connection import Connection, Staged, Transaction
from raystream.io.databases.markers import Marker, MarkerOwner, Run
from raystream.io.databases.rows import (
    DELETED,
    Column,
    TableShape,
    last_of_each,
    of_bytes,
    to_bytes,
)
from raystream.schema.types import KeyRange


def quoted(name: str) -> str:
    """A name as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def listed(names: Iterable[str]) -> str:
    """Names as SQL has them, with commas between."""
    return ", ".join(map(quoted, names))


class SqlConnection(Connection):
    """A connection that speaks SQL.

    Args:
        sink: what the sink is called in the tables of markers.
        table: the table of rows, with its schema before it if that is given: `schema.table`.
        shape: its columns. create: whether it is made if it is not there.
        name: the table as messages name it.
    """

    types: ClassVar[dict[str, str]]
    """What each type of column is called in this database."""
    whole: ClassVar[str] = "BIGINT"
    """What ints of 64 bits are in this database."""
    blob: ClassVar[str] = "BYTEA"
    """What bytes are in this database."""

    def __init__(
        self, sink: str, table: str, shape: TableShape, *, create: bool, name: str
    ) -> None:
        schema, _, last = table.rpartition(".")
        self.sink = sink
        self.name = name
        self.shape = shape
        self.create = create
        self.schema, self.last = schema, last
        self.table = self.beside(last)
        self.runs = self.beside("raystream_runs")
        self.markers = self.beside("raystream_markers")
        self.staged = self.beside("raystream_staged")

    def beside(self, name: str) -> str:
        """A table in the schema of the table of rows."""
        return ".".join(map(quoted, filter(None, (self.schema, name))))

    def __del__(self) -> None:
        with suppress(Exception):  # of one that could not be made
            self.close()

    # ------------------------------------------------------------ what differs between databases

    @abstractmethod
    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        """Execute a statement with `?` for values; the cursor."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction that other writers of the same rows wait for."""

    @abstractmethod
    def columns_there(self) -> list[str]:
        """The columns of the table of rows; none if it is not there."""

    @abstractmethod
    def store(self, table: Any, deleted: Any) -> None:
        """Add rows, or with a key replace those that are there, and delete others.

        Args:
            table: the rows, of each key at most one. deleted: the keys of those to delete; None
                without any.
        """

    def lock(self) -> None:
        """Have all other transactions wait that take over ranges of this sink."""

    def commit(self) -> None:
        """Commit the transaction."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction."""
        self.execute("ROLLBACK")

    def changed(self, cursor: Any) -> int:
        """How many rows a statement has changed."""
        return int(cursor.rowcount)

    locked: ClassVar[str] = ""
    """What ends a query whose rows are locked until the transaction ends."""

    # ------------------------------------------------------------ tables

    def prepare(self) -> None:
        """Make the tables of markers, and the table of rows if that was asked for.

        Raises:
            OutputError: the table of rows is not there, or lacks a column.
        """
        self.begin()
        try:
            self._make()
            self.commit()
        except BaseException:
            self._undo()
            raise

    def check(self) -> str:
        """Try in a transaction that is undone what a job does to the tables; in a few words what is
        there.

        Raises:
            OutputError: the table of rows is not there, or lacks a column.
        """
        self.begin()
        try:
            made = self._make()
            nothing = ", ".join("NULL" for _ in self.shape.columns)
            self.execute(self.insertion(f"SELECT {nothing} WHERE 1 = 0"))
            if self.shape.key:
                self.execute(self.deletion(), [None] * len(self.shape.key))
            SqlTransaction(self).markers()
        finally:
            self._undo()
        return f"{self.name} can be {'made' if made else 'written'}"

    def _make(self) -> bool:
        """Make what is missing; whether that is the table of rows."""
        for sql in self.definitions():
            self.execute(sql)
        there = self.columns_there()
        makes = self.create and not there
        if makes:
            self.execute(self.definition())
            there = self.shape.names
        if not there:
            raise OutputError(
                f"{self.name} does not exist.",
                hint=f"Make it, or let the sink do that with create=True:\n{self.definition()}",
            )
        if lacks := [name for name in self.shape.names if name not in there]:
            raise OutputError(
                f"{self.name} has no column {lacks[0]!r}.",
                hint=f"It has {', '.join(there)}. Name columns otherwise with"
                f" columns={{{lacks[0]!r}: ...}}, or add it.",
            )
        return makes

    def definitions(self) -> list[str]:
        """The statements that make the tables of markers."""
        n, make = self.whole, "CREATE TABLE IF NOT EXISTS"
        return [
            f"{make} {self.runs} (sink TEXT NOT NULL, number {n} NOT NULL, name TEXT NOT NULL,"
            f" durable {n} NOT NULL, program TEXT NOT NULL, began {n} NOT NULL,"
            " PRIMARY KEY (sink, number))",
            f"{make} {self.markers} (sink TEXT NOT NULL, lo {n} NOT NULL, hi {n} NOT NULL,"
            f" epoch {n} NOT NULL, shown {n} NOT NULL, run {n} NOT NULL, generation {n} NOT NULL,"
            f" ended {n} NOT NULL, PRIMARY KEY (sink, lo))",
            f"{make} {self.staged} (sink TEXT NOT NULL, lo {n} NOT NULL, hi {n} NOT NULL,"
            f" epoch {n} NOT NULL, part {n} NOT NULL, data {self.blob} NOT NULL,"
            " PRIMARY KEY (sink, lo, epoch, part))",
        ]

    def definition(self) -> str:
        """The statement that makes the table of rows."""
        key = [f"PRIMARY KEY ({listed(self.shape.key)})"] if self.shape.key else []
        lines = [*(self.defined(c) for c in self.shape.columns), *key]
        return f"CREATE TABLE {self.table} (\n  " + ",\n  ".join(lines) + "\n)"

    def defined(self, column: Column) -> str:
        """A column in the definition of a table."""
        kind = self.types[column.type].format(*column.digits)
        return f"{quoted(column.name)} {kind}{'' if column.optional else ' NOT NULL'}"

    # ------------------------------------------------------------ transactions

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        self.begin()
        try:
            yield SqlTransaction(self)
            self.commit()
        except BaseException:
            self._undo()
            raise

    def _undo(self) -> None:
        try:
            self.rollback()
        except Exception:
            return  # the connection is gone, and the transaction with it

    # ------------------------------------------------------------ statements on rows

    def insertion(self, source: str = "") -> str:
        """The statement that adds rows, or replaces those with the same key.

        Args:
            source: a query for the rows; otherwise they are values, a `?` for each column.
        """
        shape = self.shape
        rows = source or f"VALUES ({', '.join('?' * len(shape.columns))})"
        sql = f"INSERT INTO {self.table} ({listed(shape.names)}) {rows}"
        if not shape.key:
            return sql
        others = [name for name in shape.names if name not in shape.key]
        sets = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in others)
        return f"{sql} ON CONFLICT ({listed(shape.key)}) DO " + (
            f"UPDATE SET {sets}" if sets else "NOTHING"
        )

    def deletion(self) -> str:
        """The statement that deletes the row of a key, a `?` for each of its columns."""
        same = " AND ".join(f"{quoted(name)} = ?" for name in self.shape.key)
        return f"DELETE FROM {self.table} WHERE {same}"


class SqlTransaction(Transaction):
    """A transaction of a database that speaks SQL."""

    def __init__(self, connection: SqlConnection) -> None:
        self._connection = connection
        self._staged = 0

    def runs(self) -> list[Run]:
        t = self._connection
        t.lock()
        query = f"SELECT number, name, durable, program, began FROM {t.runs} WHERE sink = ?"
        return [Run(*row) for row in t.execute(query, (t.sink,)).fetchall()]

    def register(self, run: Run) -> None:
        t = self._connection
        sql = f"INSERT INTO {t.runs} (sink, number, name, durable, program, began)"
        t.execute(f"{sql} VALUES (?, ?, ?, ?, ?, ?)", (t.sink, *run))

    def markers(self) -> list[Marker]:
        t = self._connection
        query = f"SELECT lo, hi, epoch, shown, run, generation, ended FROM {t.markers}"
        rows = t.execute(f"{query} WHERE sink = ? ORDER BY lo{t.locked}", (t.sink,)).fetchall()
        return [
            Marker(KeyRange(lo, hi), epoch, shown, MarkerOwner(run, generation), bool(ended))
            for lo, hi, epoch, shown, run, generation, ended in rows
        ]

    def remove(self, markers: Sequence[Marker]) -> None:
        t = self._connection
        for m in markers:
            t.execute(
                f"DELETE FROM {t.markers} WHERE sink = ? AND lo = ? AND hi = ?", (t.sink, *m.keys)
            )

    def put(self, markers: Sequence[Marker]) -> None:
        t = self._connection
        sql = f"INSERT INTO {t.markers} (sink, lo, hi, epoch, shown, run, generation, ended)"
        for m in markers:
            values = (t.sink, *m.keys, m.epoch, m.shown, *m.owner, int(m.ended))
            t.execute(f"{sql} VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)

    def advance(self, before: Sequence[Marker], after: Sequence[Marker]) -> int:
        t = self._connection
        sql = (
            f"UPDATE {t.markers} SET epoch = ?, shown = ?, ended = ? WHERE sink = ? AND lo = ?"
            " AND hi = ? AND run = ? AND generation = ? AND epoch = ? AND shown = ?"
        )
        return sum(
            t.changed(
                t.execute(
                    sql,
                    (
                        m.epoch,
                        m.shown,
                        int(m.ended),
                        t.sink,
                        *m.keys,
                        *m.owner,
                        was.epoch,
                        was.shown,
                    ),
                )
            )
            for was, m in zip(before, after, strict=True)
        )

    def store(self, rows: Sequence[Any]) -> None:
        t, shape = self._connection, self._connection.shape
        table = pa.concat_tables(rows)
        if not shape.key:
            t.store(table, None)
            return
        table = last_of_each(table, shape.key)
        if shape.delete is None:
            t.store(table, None)
            return
        gone = table[DELETED]
        kept = table.filter(pc.invert(gone)).drop_columns([DELETED])
        t.store(kept, table.filter(gone).select(list(shape.key)))

    def clear(self) -> None:
        t = self._connection
        t.execute(f"DELETE FROM {t.table}")
        t.execute(f"DELETE FROM {t.staged} WHERE sink = ?", (t.sink,))

    def stage(self, staged: Staged) -> None:
        t = self._connection
        t.execute(
            f"INSERT INTO {t.staged} (sink, lo, hi, epoch, part, data) VALUES (?, ?, ?, ?, ?, ?)",
            (t.sink, *staged.keys, staged.epoch, self._staged, to_bytes(staged.rows)),
        )
        self._staged += 1

    def staged(self, keys: KeyRange, upto: int) -> list[Staged]:
        t = self._connection
        query = f"SELECT lo, hi, epoch, data FROM {t.staged} WHERE sink = ? AND lo < ? AND hi > ?"
        rows = t.execute(
            f"{query} AND epoch <= ? ORDER BY epoch, lo, part{t.locked}",
            (t.sink, keys.hi, keys.lo, upto),
        ).fetchall()
        return [Staged(KeyRange(lo, hi), e, of_bytes(bytes(data))) for lo, hi, e, data in rows]

    def unstage(self, keys: KeyRange, after: int, upto: int) -> None:
        t = self._connection
        t.execute(
            f"DELETE FROM {t.staged} WHERE sink = ? AND lo < ? AND hi > ? AND epoch > ?"
            " AND epoch <= ?",
            (t.sink, keys.hi, keys.lo, after, upto),
        )
