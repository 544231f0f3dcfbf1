"""`RisingRows`: the rows of a table that only grows, by asking for those above the last one.

A column rises from row to row, but transactions are not committed in that order: a row with a lower
value may show after one with a higher value was read. So rows up to a value are read only when all
transactions have ended that might still add some: those that had the table locked for writing when
that value was seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from raystream.errors import InputError, RaystreamError
from raystream.io.capture.changes import Row, WatchedTable
from raystream.io.capture.recorded import CapturedSource, ServerReader
from raystream.io.capture.slot import Server, bytes_of, quoted_table
from raystream.io.capture.source import LOOK_SECONDS, check_columns
from raystream.io.capture.values import RowDecoder, ToldFields
from raystream.io.databases.sql import quoted
from raystream.io.databases.waiting import Beat, pause
from raystream.schema.fields import AnyRecord
from raystream.schema.types import Split

U = TypeVar("U", bound=AnyRecord)

ROWS = "rows"
"""The sender of all rows."""
BATCH_ROWS = 10_000
WRITING = "'RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock'"
"""The locks of transactions that may add rows."""


class Rising(NamedTuple):
    """How SQL turns the values of the column into whole numbers from 0 on, and back."""

    column: str
    number: str
    """The value as a number."""
    value: str
    """A number, `%s`, as a value."""
    now: str = ""
    """The time, if the values are times."""


def rising_of(column: str, kind: str) -> Rising | None:
    """How a column of this type rises; None if it cannot serve."""
    name = f"t.{quoted(column)}"
    if kind in ("smallint", "integer", "bigint"):
        return Rising(name, f"{name}::bigint", "%s::bigint")
    if kind in ("timestamp with time zone", "timestamp without time zone"):
        zoned = kind == "timestamp with time zone"
        plain = "timestamptz" if zoned else "timestamp"
        return Rising(
            name,
            f"round(extract(epoch FROM {name}) * 1000000)::bigint",
            f"({plain} 'epoch' + %s * interval '1 microsecond')",
            "clock_timestamp()" if zoned else "clock_timestamp()::timestamp",
        )
    return None


@dataclass(frozen=True, kw_only=True)
class WantedRows:
    """What the user asked for."""

    url: str
    table: str
    rising: str
    every: float
    behind: float
    follow: bool
    wait: float


class RisingRows(CapturedSource[U]):
    """The split is the table.

    Args:
        columns: those of the fields of the record, in its order.
    """

    call = "postgres_rows"
    read_ahead: ClassVar[int] = 8

    def __init__(self, record: type[U], asked: WantedRows, columns: Sequence[str]) -> None:
        super().__init__(record, asked.url, asked.table, asked.table)
        self.asked, self.columns = asked, tuple(columns)

    def read(self, split: Split, position: int, /) -> Iterator[Any]:
        """Rows as they come. Numbers of batches count from 1."""
        yield from _Polling(self)

    def check(self) -> str:
        """See whether the table has the columns."""
        server = self.server()
        try:
            with server.connect() as sql:
                table, _ = self.looked(server, sql)
        except RaystreamError:
            raise
        except Exception as error:
            raise server.described(error) from None
        return f"{table.name} has the columns, and {self.asked.rising} can rise"

    def looked(self, server: Server, sql: Any) -> tuple[WatchedTable, Rising]:
        """The table, and how its column rises.

        Raises:
            InputError: it cannot be read in this way.
        """
        asked = self.asked
        table = server.table(sql, asked.table)
        check_columns(table, (*self.columns, asked.rising))
        (kind,) = sql.execute(
            "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = %s"
            " AND attname = %s",
            (table.oid, asked.rising),
        ).fetchone()
        rising = rising_of(asked.rising, kind)
        if rising is None or (asked.behind and not rising.now):
            raise InputError(
                f"{table.name}.{asked.rising} is {kind}, which cannot be what rises"
                + (" with behind=" if rising else ""),
                hint="It is a whole number, such as an identity, or a timestamp; behind= is for"
                " timestamps.",
            )
        (standby,) = sql.execute("SELECT pg_is_in_recovery()").fetchone()
        if standby:
            raise InputError(
                f"{server.name} is a standby, which does not say who writes",
                hint="Read from the primary.",
            )
        return table, rising


@dataclass
class _Polling(ServerReader):
    """Asks again and again."""

    source: RisingRows[Any]
    last: int = -1
    """The highest value that was yielded."""

    def __iter__(self) -> Iterator[Any]:
        self.last = self.source._known.get(ROWS, -1)
        return self._sessions(self.source.server())

    def _session(self, server: Server) -> Iterator[Any]:
        source, asked = self.source, self.source.asked
        with closing(server.connect()) as sql:
            table, rising = source.looked(server, sql)
            decoder = RowDecoder(source.record, ToldFields(), source.columns, table.name)
            pulse = Beat(asked.every)
            while True:
                upto = self._seen(sql, table, rising)
                if upto is not None and upto > self.last:
                    yield from self._settled(sql, table)
                    yield from self._rows(sql, table, rising, decoder, upto)
                if not asked.follow:
                    return
                while not pulse.due():
                    yield self.number, self._nothing
                    pause(min(LOOK_SECONDS, asked.every))

    def _seen(self, sql: Any, table: WatchedTable, rising: Rising) -> int | None:
        """The highest value up to which to read; None without rows.

        Raises:
            InputError: there are values below 0.
        """
        upto = f"max({rising.column})"
        if behind := self.source.asked.behind:
            upto = f"least({upto}, {rising.now} - {behind} * interval '1 second')"
        least, most = (
            f"SELECT {rising.number.replace(rising.column, value)} FROM"
            f" {quoted_table(table.name)} t"
            for value in (f"min({rising.column})", upto)
        )
        (first,), (found,) = sql.execute(least).fetchone(), sql.execute(most).fetchone()
        if first is not None and first < 0:
            raise InputError(
                f"{table.name}.{self.source.asked.rising} has values below 0 (before 1970), which"
                " a column that rises may not have"
            )
        return None if found is None else int(found)

    def _settled(self, sql: Any, table: WatchedTable) -> Iterator[Any]:
        """Wait for the transactions that write to the table now."""
        query = (
            "SELECT DISTINCT virtualtransaction FROM pg_locks WHERE locktype = 'relation'"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            " AND (relation = %s OR relation IN (SELECT relid FROM pg_partition_tree(%s)))"
            f" AND granted AND mode IN ({WRITING})"
        )
        there = {name for (name,) in sql.execute(query, (table.oid, table.oid)).fetchall()}
        pulse = Beat(LOOK_SECONDS)
        while there:
            if pulse.due():
                yield self.number, self._nothing
            pause(0.005)
            there &= {name for (name,) in sql.execute(query, (table.oid, table.oid)).fetchall()}

    def _rows(
        self, sql: Any, table: WatchedTable, rising: Rising, decoder: RowDecoder, upto: int
    ) -> Iterator[Any]:
        """The rows above the last value, up to another one. Rows of one value stay together."""
        wanted = ", ".join(f"t.{quoted(c)}::text" for c in self.source.columns)
        found: list[Any] = []
        while not found or len(found) >= BATCH_ROWS:
            above = f"{rising.column} > {rising.value} AND " if self.last >= 0 else ""
            query = (
                f"SELECT {rising.number}, {wanted} FROM {quoted_table(table.name)} t WHERE {above}"
                f"{rising.column} <= {rising.value} ORDER BY {rising.column}"
                f" FETCH FIRST {BATCH_ROWS} ROWS WITH TIES"
            )
            values = (self.last, upto) if self.last >= 0 else (upto,)
            with sql.cursor() as cursor:
                cursor.adapters.register_loader("text", bytes_of())
                found = cursor.execute(query, values).fetchall()
            if not found:
                return
            numbers = np.array([row[0] for row in found], np.int64)
            batch = decoder.batch([Row("read", row[1:]) for row in found])
            self.last = int(numbers[-1])
            self.number += 1
            yield self.number, batch, (ROWS, numbers)
