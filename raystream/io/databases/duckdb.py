"""DuckDB, the database of analysts in a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pyarrow as pa

from raystream.io.databases.sql import SqlConnection, listed
from raystream.io.databases.tables import FileTableSink, driver_of
from raystream.schema.kinds import IDENTIFIER


class DuckdbConnection(SqlConnection):
    """A connection to a file. Only one process at a time may have it, so it is opened for each
    transaction and closed after it: others come to it in between."""

    types: ClassVar[dict[str, str]] = {
        "bool": "BOOLEAN",
        "int8": "TINYINT",
        "int16": "SMALLINT",
        "int32": "INTEGER",
        "int64": "BIGINT",
        "float32": "REAL",
        "float64": "DOUBLE",
        "text": "VARCHAR",
        "bytes": "BLOB",
        "datetime": "TIMESTAMPTZ",
        "date": "DATE",
        "timedelta": "INTERVAL",
        "decimal": "DECIMAL({}, {})",
        "UUID": "UUID",
        "json": "VARCHAR",
    }
    blob: ClassVar[str] = "BLOB"

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(**options)
        self.path = path
        self._connection: Any = None

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        return self._connection.execute(sql, list(values))

    def begin(self) -> None:
        make_file(self.path)
        self._connection = driver().connect(self.path)
        self.execute("BEGIN TRANSACTION")

    def commit(self) -> None:
        super().commit()
        self.close()

    def _undo(self) -> None:
        super()._undo()
        self.close()

    def changed(self, cursor: Any) -> int:
        """DuckDB answers a change with the number of rows."""
        return int(cursor.fetchone()[0])

    def columns_there(self) -> list[str]:
        rows = self.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_name = ?"
            " AND table_schema = ? AND table_catalog = current_database()"
            " ORDER BY ordinal_position",
            (self.last, self.schema or "main"),
        )
        return [name for (name,) in rows.fetchall()]

    def store(self, table: Any, deleted: Any) -> None:
        if deleted is not None and deleted.num_rows:
            for row in zip(*(c.to_pylist() for c in self._typed(deleted).columns), strict=True):
                self.execute(self.deletion(), row)
        if table.num_rows:
            self._connection.register("raystream_incoming", self._typed(table))
            names = listed(self.shape.names)
            self.execute(self.insertion(f"SELECT {names} FROM raystream_incoming"))
            self._connection.unregister("raystream_incoming")

    def _typed(self, table: Any) -> Any:
        """UUIDs as text, which DuckDB turns into its own."""
        for column in self.shape.columns:
            if column.type == "UUID" and column.name in table.column_names:
                texts = [
                    None if v is None else str(IDENTIFIER.restore(bytes(v)))
                    for v in table[column.name].to_pylist()
                ]
                at = table.column_names.index(column.name)
                table = table.set_column(at, column.name, pa.array(texts, pa.string()))
        return table

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class DuckdbSink(FileTableSink):
    """A sink to a table of a DuckDB database."""

    function: ClassVar[str] = "rs.io.duckdb"
    connection: ClassVar[type[SqlConnection]] = DuckdbConnection

    def __init__(self, path: Any, table: str, **options: Any) -> None:
        super().__init__(path, table, **options)
        driver()

    def passing(self, error: Exception) -> bool:
        """Whether another process has the file, or another transaction was in the way."""
        duckdb = driver()
        held = isinstance(error, duckdb.IOException) and "lock" in str(error)
        return held or isinstance(error, duckdb.TransactionException)


def make_file(path: str) -> None:
    """Make an empty database, whole at once, unless the file is there.

    When two processes let DuckDB make the same file, one of them cuts to nothing what the other one
    has written, before it sees that the other one has the file.
    """
    folder, name = os.path.split(path)
    # Where there is no such folder, or one without links, DuckDB says so, or makes the file itself.
    with suppress(OSError):
        if not os.path.exists(path):
            with TemporaryDirectory(prefix=f".{name}-", dir=folder) as aside:
                made = os.path.join(aside, name)
                driver().connect(made).close()
                os.link(made, path)


def driver() -> Any:
    """The module duckdb.

    Raises:
        ConfigError: it is not installed.
    """
    return driver_of(DuckdbSink.function, "duckdb", "duckdb")
