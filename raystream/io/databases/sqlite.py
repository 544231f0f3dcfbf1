"""SQLite, the database in a file. It comes with Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from raystream.io.databases.sql import SqlConnection
from raystream.io.databases.tables import FileTableSink
from raystream.schema.kinds import IDENTIFIER
from raystream.schema.types import SinkContext

BUSY_SECONDS = 5.0
"""How long one attempt waits while another process writes to the file."""

_TEXTS: dict[str, Callable[[Any], Any]] = {
    "datetime": lambda v: v.isoformat(),
    "date": lambda v: v.isoformat(),
    "timedelta": lambda v: (v.days * 86_400 + v.seconds) * 1_000_000 + v.microseconds,
    "decimal": lambda v: format(v, "f"),
    "UUID": lambda v: str(IDENTIFIER.restore(bytes(v))),
}
"""What is stored of values that SQLite has no type for."""


class SqliteConnection(SqlConnection):
    """A connection to a file.

    Args:
        busy: seconds that it waits while another process writes.
        lasting: whether what is committed has to outlive the power. Without that a loss of power
            may undo the last transactions, each as a whole.
    """

    types: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("bool", "int8", "int16", "int32", "int64", "timedelta"), "INTEGER"),
        **dict.fromkeys(("float32", "float64"), "REAL"),
        **dict.fromkeys(("text", "datetime", "date", "decimal", "UUID", "json"), "TEXT"),
        "bytes": "BLOB",
    }
    whole: ClassVar[str] = "INTEGER"
    blob: ClassVar[str] = "BLOB"

    def __init__(self, path: str, *, busy: float, lasting: bool, **options: Any) -> None:
        import sqlite3

        super().__init__(**options)
        self._connection = sqlite3.connect(
            path, timeout=busy, isolation_level=None, check_same_thread=False
        )
        try:
            self.execute("PRAGMA journal_mode = WAL")  # readers and the writer do not wait
            self.execute(f"PRAGMA synchronous = {'FULL' if lasting else 'NORMAL'}")
        except BaseException:
            self._connection.close()
            raise

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        return self._connection.execute(sql, values)

    def begin(self) -> None:
        self.execute("BEGIN IMMEDIATE")

    def columns_there(self) -> list[str]:
        within = (self.schema,) if self.schema else ()
        sql = f"SELECT name FROM pragma_table_info(?{', ?' * len(within)})"
        return [name for (name,) in self.execute(sql, (self.last, *within)).fetchall()]

    def defined(self, column: Any) -> str:
        """SQLite has no NaN: it stores NULL."""
        plain = super().defined(column)
        return plain.removesuffix(" NOT NULL") if column.type.startswith("float") else plain

    def store(self, table: Any, deleted: Any) -> None:
        if deleted is not None and deleted.num_rows:
            self._connection.executemany(self.deletion(), self._values(deleted))
        if table.num_rows:
            self._connection.executemany(self.insertion(), self._values(table))

    def _values(self, table: Any) -> Any:
        """Rows as SQLite takes them."""
        kinds = {c.name: c.type for c in self.shape.columns}
        columns = []
        for name in table.column_names:
            values, text = table[name].to_pylist(), _TEXTS.get(kinds[name])
            columns.append(
                values if text is None else [None if v is None else text(v) for v in values]
            )
        return zip(*columns, strict=True)

    def close(self) -> None:
        self._connection.close()


class SqliteSink(FileTableSink):
    """A sink to a table of an SQLite database."""

    function: ClassVar[str] = "rs.io.sqlite"
    connection: ClassVar[type[SqlConnection]] = SqliteConnection

    def options(self, context: SinkContext) -> dict[str, Any]:
        busy = min(BUSY_SECONDS, self.wait)
        return {**super().options(context), "busy": busy, "lasting": context.lasting}

    def passing(self, error: Exception) -> bool:
        """Whether another process was writing."""
        import sqlite3

        busy = isinstance(error, sqlite3.OperationalError)
        return busy and any(word in str(error) for word in ("locked", "busy"))
