"""PostgreSQL, through psycopg 3."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.csv import WriteOptions, write_csv

from raystream.errors import ConfigError
from raystream.io.addresses import without_secrets
from raystream.io.databases.advice import advice_of
from raystream.io.databases.sql import SqlConnection, listed, quoted
from raystream.io.databases.tables import TableSink, driver_of
from raystream.schema.kinds import IDENTIFIER
from raystream.schema.types import SinkContext

CONNECT_SECONDS = 10
"""How long one attempt to connect may take."""
STATEMENT_SECONDS = 300
"""How long one statement may take, waiting for locks included."""


class PostgresConnection(SqlConnection):
    """A connection to a server."""

    types: ClassVar[dict[str, str]] = {
        "bool": "boolean",
        **dict.fromkeys(("int8", "int16"), "smallint"),
        "int32": "integer",
        "int64": "bigint",
        "float32": "real",
        "float64": "double precision",
        "text": "text",
        "bytes": "bytea",
        "datetime": "timestamptz",
        "date": "date",
        "timedelta": "interval",
        "decimal": "numeric({}, {})",
        "UUID": "uuid",
        "json": "jsonb",
    }
    locked: ClassVar[str] = " FOR UPDATE"

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(**options)
        self._connection = driver().connect(
            url,
            autocommit=True,
            connect_timeout=CONNECT_SECONDS,
            application_name="raystream",
            keepalives_idle=30,
            keepalives_interval=10,
            keepalives_count=3,
        )
        self._incoming = False
        self._leaving = False
        self.execute(f"SET statement_timeout = {STATEMENT_SECONDS * 1000}")

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Any:
        return self._connection.execute(_with_percents(sql), values)

    def begin(self) -> None:
        self.execute("BEGIN ISOLATION LEVEL READ COMMITTED")

    def lock(self) -> None:
        self.execute("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (self.sink,))

    def definitions(self) -> list[str]:
        """As of other databases; none if all are there, since that needs the right to make them."""
        self.execute("SELECT pg_advisory_xact_lock(hashtextextended('raystream', 0))")
        there = (self.there(name) for name in (self.runs, self.markers, self.staged))
        return [] if all(there) else super().definitions()

    def there(self, table: str) -> bool:
        """Whether a table is there."""
        found = self.execute("SELECT to_regclass(?) IS NOT NULL", (table,)).fetchone()
        return bool(found[0])

    def columns_there(self) -> list[str]:
        rows = self.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum",
            (self.table,),
        )
        return [name for (name,) in rows.fetchall()]

    def store(self, table: Any, deleted: Any) -> None:
        if deleted is not None and deleted.num_rows:
            self._delete(deleted)
        if not table.num_rows:
            return
        names = listed(self.shape.names)
        if not self.shape.key:
            self._copy(self.table, table)
            return
        if not self._incoming:
            self._beside("raystream_incoming", names)
            self._incoming = True
        self._copy("raystream_incoming", table)
        self.execute(self.insertion(f"SELECT {names} FROM raystream_incoming"))
        self.execute("TRUNCATE raystream_incoming")

    def _delete(self, keys: Any) -> None:
        names = self.shape.key
        if not self._leaving:
            self._beside("raystream_leaving", listed(names))
            self._leaving = True
        self._copy("raystream_leaving", keys)
        same = " AND ".join(f"t.{quoted(n)} = gone.{quoted(n)}" for n in names)
        self.execute(f"DELETE FROM {self.table} t USING raystream_leaving gone WHERE {same}")
        self.execute("TRUNCATE raystream_leaving")

    def _beside(self, name: str, columns: str) -> None:
        """Make a table of this connection alone, with columns as of the table of rows."""
        self.execute(
            f"CREATE TEMPORARY TABLE IF NOT EXISTS {name} ON COMMIT DELETE ROWS"
            f" AS SELECT {columns} FROM {self.table} WITH NO DATA"
        )

    def _copy(self, to: str, table: Any) -> None:
        kinds = {c.name: c.type for c in self.shape.columns}
        into = f"{to} ({listed(table.column_names)})"
        if (text := _csv(table, [kinds[name] for name in table.column_names])) is not None:
            sql = f"COPY {into} FROM STDIN (FORMAT csv)"
            with self._connection.cursor() as cursor, cursor.copy(sql) as copy:
                copy.write(text)
            return
        columns = []
        for name in table.column_names:
            values = table[name].to_pylist()
            if kinds[name] == "UUID":
                values = [None if v is None else IDENTIFIER.restore(bytes(v)) for v in values]
            columns.append(values)
        sql = f"COPY {into} FROM STDIN"
        with self._connection.cursor() as cursor, cursor.copy(sql) as copy:
            for row in zip(*columns, strict=True):
                copy.write_row(row)

    def _undo(self) -> None:
        super()._undo()
        self._incoming = self._leaving = False  # made in the transaction that was undone

    def close(self) -> None:
        self._connection.close()


class PostgresSink(TableSink):
    """A sink to a table of a PostgreSQL database."""

    function: ClassVar[str] = "rs.io.postgres"
    connection: ClassVar[type[SqlConnection]] = PostgresConnection

    def __init__(self, url: str, table: str, **options: Any) -> None:
        super().__init__(table, **options)
        if not isinstance(url, str) or not url:
            raise ConfigError("rs.io.postgres(url): postgresql://user@host/database")
        check_connection(self.function, url)
        self.url = url

    def database(self) -> str:
        return without_password(self.url)

    def options(self, context: SinkContext) -> dict[str, Any]:
        return {"url": self.url}

    def __repr__(self) -> str:
        return f"PostgresSink({without_password(self.url)!r}, {self.table!r})"

    def passing(self, error: Exception) -> bool:
        """Whether the server restarts, or another transaction was in the way."""
        psycopg = driver()
        return isinstance(error, psycopg.OperationalError) and not isinstance(
            error, psycopg.errors.InvalidPassword | psycopg.errors.InsufficientPrivilege
        )

    def words_of(self, error: Exception) -> str:
        """The error without the password, wherever it may be."""
        return words_of(self.url, error)


def driver() -> Any:
    """The module psycopg.

    Raises:
        ConfigError: it is not installed.
    """
    return driver_of(PostgresSink.function, "psycopg", "postgres")


def check_connection(call: str, url: str) -> None:
    """Refuse what is no connection string. What it has is not shown: a password may be anywhere.

    Raises:
        ConfigError: it is none, or psycopg is not installed.
    """
    try:
        driver().conninfo.conninfo_to_dict(url)
    except driver().ProgrammingError as error:
        raise ConfigError(f"{call}(url): {words_of(url, error)}", hint=advice_of(error)) from None


def secrets_of(url: str) -> list[str]:
    """The password of a connection string as it is there, and decoded."""
    from urllib.parse import unquote

    found = [
        *re.findall(r"^\w+://[^/@]*?:([^/]*)@", url),
        *re.findall(r"(?:^|[\s?&])(?:ssl)?password\s*=\s*'((?:[^'\\]|\\.)*)'", url),
        *re.findall(r"(?:^|[\s?&])(?:ssl)?password\s*=\s*([^\s'&]+)", url),
    ]
    return [s for secret in found for s in dict.fromkeys((secret, unquote(secret))) if s]


def without_password(url: str) -> str:
    """A connection string as messages show it; nothing of one that cannot be read, in which a
    password may be anywhere."""
    try:
        driver().conninfo.conninfo_to_dict(url)
    except driver().ProgrammingError:
        return "***"
    return without_secrets(secrets_of(url), url)


def words_of(url: str, error: Exception) -> str:
    """What the server or its client says, without the password. Of a connection string that cannot
    be read the client would show a part."""
    words = without_secrets(secrets_of(url), str(error).strip())
    if without_password(url) == "***":
        words = re.sub(r'".*"', "...", words)
    return words


_IN_CSV = {
    "bool", "int8", "int16", "int32", "int64", "float32", "float64", "text", "date", "datetime",
    "decimal", "json",
}  # fmt: skip
"""Types that Arrow writes to CSV as PostgreSQL reads them."""


def _csv(table: Any, kinds: Sequence[str]) -> memoryview | None:
    """A table as CSV, which takes a tenth of the time; None if it cannot be: for other types, and
    for text with a `\\.`, which some servers take for the end of the data."""
    if not _IN_CSV.issuperset(kinds):
        return None
    for column, kind in zip(table.columns, kinds, strict=True):
        if kind in ("text", "json") and pc.any(pc.match_substring(column, "\\.")).as_py():
            return None
    out = pa.BufferOutputStream()
    write_csv(table, out, WriteOptions(include_header=False))
    return memoryview(out.getvalue())


def _with_percents(sql: str) -> str:
    """A statement with `%s` for values, where it has `?` outside of names."""
    return re.sub(
        r'("(?:[^"]|"")*")|(\?)',
        lambda m: m[1].replace("%", "%%") if m[1] else "%s",
        sql,
    )
