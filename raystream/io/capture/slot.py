"""What is said to the server: about the table, its publication and slot, and the stream of changes.

psycopg 3 has no cursor for replication, but libpq has all that it takes, and psycopg hands it on
(`psycopg.pq`): a stream is a `COPY` in both directions.
"""

from __future__ import annotations

import select
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from raystream.errors import InputError
from raystream.io.capture.changes import WatchedTable
from raystream.io.capture.pgoutput import YEAR_2000, lsn_of, lsn_text
from raystream.io.databases.advice import advice_of
from raystream.io.databases.postgres import (
    CONNECT_SECONDS,
    driver,
    without_password,
    words_of,
)
from raystream.io.databases.sql import quoted
from raystream.io.databases.waiting import Patience

OPTIONS = (
    "-c datestyle=ISO -c timezone=UTC -c intervalstyle=iso_8601 -c extra_float_digits=3"
    " -c bytea_output=hex -c client_encoding=UTF8"
)
"""Settings of each connection: how values look as text."""
STREAMING = " -c wal_sender_timeout=0 -c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10"
"""Those of a stream: a job that is slow answers late, and a machine that is gone not at all."""
FETCH_ROWS = 4096

ADVANCE_SECONDS = 5.0
"""How long a slot that is to be moved may still be in use."""


class SlotState(NamedTuple):
    """What the server says of a slot."""

    confirmed: int
    """Up to here the log may be forgotten: nothing before comes again."""
    reader: int
    """The process that serves its reader; 0 without one."""
    ours: bool
    """Whether that reader is a source of this kind, for the same slot."""
    usable: str
    """Why it cannot be read; "" if it can."""


class Server:
    """A server that is read.

    Args:
        url: a connection string. slot: names the slot, and the readers of it.
    """

    def __init__(self, url: str, slot: str) -> None:
        self.url, self.slot = url, slot
        self.name = without_password(url)

    def connect(self, *, streaming: bool = False) -> Any:
        """A connection; one for a stream takes no other commands than those of replication."""
        psycopg = driver()
        given = psycopg.conninfo.conninfo_to_dict(self.url)
        options = f"{given.pop('options', '')} {OPTIONS}{STREAMING if streaming else ''}".strip()
        usual = {
            "connect_timeout": CONNECT_SECONDS,
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
        }
        own = {"application_name": self.reader_name, "options": options}
        if streaming:
            own["replication"] = "database"
        return psycopg.connect(**{**usual, **given, **own}, autocommit=True)

    @property
    def reader_name(self) -> str:
        """What connections call themselves."""
        return f"raystream {self.slot}"[:63]

    def passing(self, error: Exception) -> bool:
        """Whether an error may be gone when a new connection tries again."""
        psycopg = driver()
        return isinstance(error, psycopg.OperationalError) and not isinstance(
            error, psycopg.errors.InvalidPassword | psycopg.errors.InsufficientPrivilege
        )

    def described(self, error: Exception) -> InputError:
        """An error of the server in words, without the password."""
        return InputError(f"{self.name}: {words_of(self.url, error)}", hint=advice_of(error))

    # ------------------------------------------------------------ the table

    def table(self, sql: Any, name: str) -> WatchedTable:
        """What the server says of a table.

        Raises:
            InputError: there is none.
        """
        found = sql.execute(
            "SELECT c.oid::bigint, n.nspname || '.' || c.relname, c.relreplident, c.relkind"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE c.oid = to_regclass(%s)",
            (quoted_table(name),),
        ).fetchone()
        if found is None:
            raise InputError(
                f"{self.name} has no table {name}", hint="Say its schema: schema.table."
            )
        oid, called, identity, kind = found
        columns = sql.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum",
            (oid,),
        ).fetchall()
        key = sql.execute(
            "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid"
            " AND a.attnum = ANY(i.indkey) WHERE i.indrelid = %s AND i.indisprimary",
            (oid,),
        ).fetchall()
        return WatchedTable(
            oid,
            called,
            tuple(c for (c,) in columns),
            tuple(c for (c,) in key),
            whole=identity == "f",
            identified=identity in ("f", "i") or (identity == "d" and bool(key)),
            is_table=kind in ("r", "p"),
        )

    def publication(self, sql: Any, publication: str, table: WatchedTable) -> Any:
        """Of a publication whether it publishes a table under its own name, all kinds of changes,
        and this table; None if it is not there."""
        return sql.execute(
            "SELECT p.pubviaroot OR c.relkind <> 'p', p.pubinsert AND p.pubupdate AND p.pubdelete,"
            " EXISTS (SELECT FROM pg_publication_tables t WHERE t.pubname = p.pubname"
            "  AND (t.schemaname || '.' || t.tablename) = %s)"
            " FROM pg_publication p, pg_class c WHERE p.pubname = %s AND c.oid = %s",
            (table.name, publication, table.oid),
        ).fetchone()

    def publish(self, sql: Any, publication: str, table: WatchedTable) -> None:
        """Make the publication of a table, unless it is there.

        Raises:
            InputError: it is there and is not of the table.
        """
        there = self.publication(sql, publication, table)
        if there is None:
            refuse_unpublished(table)
            sql.execute(
                f"CREATE PUBLICATION {quoted(publication)} FOR TABLE {quoted_table(table.name)}"
                " WITH (publish_via_partition_root = true)"
            )
            return
        by_root, all_kinds, holds = there
        if not (by_root and holds):
            raise InputError(
                f"the publication {publication} does not publish {table.name} under its own name",
                hint=f"ALTER PUBLICATION {publication} ADD TABLE {table.name}, and SET"
                " (publish_via_partition_root = true) for a table in partitions.",
            )
        if not all_kinds:
            raise InputError(
                f"the publication {publication} leaves out inserts, updates or deletes",
                hint=f"ALTER PUBLICATION {publication} SET (publish = 'insert, update, delete,"
                " truncate').",
            )

    def rows(
        self, sql: Any, table: WatchedTable, columns: Sequence[str], snapshot: str | None
    ) -> Iterator[list[Any]]:
        """The rows of a table as it was at one moment, in lists; each value as text, in bytes.

        Args:
            snapshot: the moment, as the server named it; None: now.
        """
        with sql.transaction():
            sql.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            if snapshot is not None:
                sql.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'")
            with sql.cursor(name="raystream") as cursor:
                cursor.adapters.register_loader("text", bytes_of())
                wanted = ", ".join(f"{quoted(c)}::text" for c in columns)
                cursor.execute(f"SELECT {wanted} FROM {quoted_table(table.name)}")
                while found := cursor.fetchmany(FETCH_ROWS):
                    yield found

    # ------------------------------------------------------------ the slot

    def slot_state(self, sql: Any) -> SlotState | None:
        """The state of the slot; None without one.

        Raises:
            InputError: it is of another kind, or of another database.
        """
        found = sql.execute(
            "SELECT s.confirmed_flush_lsn::text, coalesce(s.active_pid, 0), s.plugin, s.database ="
            " current_database(), coalesce(a.application_name = %s, false), s.wal_status"
            " FROM pg_replication_slots s LEFT JOIN pg_stat_activity a ON a.pid = s.active_pid"
            " WHERE s.slot_name = %s",
            (self.reader_name, self.slot),
        ).fetchone()
        if found is None:
            return None
        confirmed, reader, plugin, here, ours, status = found
        if plugin != "pgoutput" or not here:
            raise InputError(
                f"the slot {self.slot} is of {plugin or 'physical replication'}"
                + ("" if here else ", of another database"),
                hint="Name another one by slot=.",
            )
        usable = ""
        if status == "lost":
            usable = (
                "the server has removed what it had kept for it (max_slot_wal_keep_size, or"
                " idle_replication_slot_timeout)"
            )
        return SlotState(lsn_of(confirmed), reader, ours, usable)

    def drop(self, sql: Any) -> None:
        """Drop the slot."""
        sql.execute("SELECT pg_drop_replication_slot(%s)", (self.slot,))

    def end_reader(self, sql: Any, state: SlotState) -> None:
        """End the connection of the slot's reader."""
        sql.execute("SELECT pg_terminate_backend(%s)", (state.reader,))

    def advance(self, upto: int) -> None:
        """Let the server forget what the slot holds up to a place, while no client reads it. The
        connection of a reader that has just ended is waited for; a slot that is read by then stays
        where it is, until that reader says how far it has come."""
        patience = Patience(ADVANCE_SECONDS)
        with self.connect() as sql:
            while True:
                try:
                    sql.execute(
                        "SELECT pg_replication_slot_advance(%s, %s::pg_lsn)",
                        (self.slot, lsn_text(upto)),
                    )
                    return
                except driver().errors.ObjectInUse:
                    if not patience.left():
                        return
                    patience.wait()


class ChangeStream:
    """A connection over which changes come."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection = server.connect(streaming=True)
        self._pg = self._connection.pgconn
        self.reached = 0
        """The server has sent all transactions that were committed before this place."""

    def create_slot(self, *, snapshot: bool) -> tuple[int, str | None]:
        """Make the slot: from where on it has changes, and the name of the snapshot just before.
        The snapshot is there until the stream starts."""
        how = "EXPORT_SNAPSHOT" if snapshot else "NOEXPORT_SNAPSHOT"
        found = self._command(
            f"CREATE_REPLICATION_SLOT {quoted(self._server.slot)} LOGICAL pgoutput {how}"
        )
        point, name = found.get_value(0, 1), found.get_value(0, 2)
        return lsn_of(point.decode()), None if name is None else name.decode()

    def start(self, publication: str, after: int) -> None:
        """Let transactions come whose commits are at this place or after it."""
        literal = publication.replace('"', '""').replace("'", "''")
        names = f"'\"{literal}\"'"
        self._command(
            f"START_REPLICATION SLOT {quoted(self._server.slot)} LOGICAL {lsn_text(after)}"
            f" (proto_version '1', publication_names {names})"
        )

    def next(self, seconds: float) -> bytes | None:
        """The next message; None if none comes for so long."""
        while True:
            size, data = self._pg.get_copy_data(1)
            if size > 0:
                if data[0] == 119:  # w: a message
                    return bytes(data[25:])
                end, _, asked = struct.unpack_from("!QqB", data, 1)
                self.reached = max(self.reached, end)
                if asked:
                    self.confirm(0)
                continue
            if size < 0:
                raise self._error(self._pg.get_result())
            if not select.select([self._pg.socket], [], [], seconds)[0]:
                return None
            self._pg.consume_input()

    def confirm(self, upto: int, *, ask: bool = False) -> None:
        """Say that what was committed before a place is kept. 0 says nothing.

        Args:
            ask: how far the server has come.
        """
        now = -YEAR_2000
        self._pg.put_copy_data(b"r" + struct.pack("!QQQqB", upto, upto, upto, now, ask))
        self._pg.flush()

    def close(self) -> None:
        """End the stream."""
        with suppress(Exception):
            self._connection.close()

    def _command(self, command: str) -> Any:
        from psycopg import pq

        found = self._pg.exec_(command.encode())
        if found.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COPY_BOTH):
            raise self._error(found)
        return found

    def _error(self, result: Any) -> Exception:
        """What the server says: an error that may pass, or one for the user."""
        from psycopg import OperationalError, pq

        said = "the connection was closed"
        if result is not None and (words := result.error_message):
            said = words.decode(errors="replace").strip()
            state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
            if state[:2] not in ("08", "57", "53", "55", ""):
                return self._server.described(Exception(said))
        return OperationalError(said)


def refuse_unpublished(table: WatchedTable) -> None:
    """Refuse a table whose changes cannot be published, or not without harm.

    Raises:
        InputError: it is such a table.
    """
    if not table.is_table:
        raise InputError(
            f"{table.name} is no table, so the server does not tell its changes",
            hint="Name the table that is behind it; rs.io.postgres_rows also reads views.",
        )
    if not table.identified:
        raise InputError(
            f"{table.name} has no primary key: once its changes were published, the server would"
            " refuse updates and deletes of its rows to everybody",
            hint=f"ALTER TABLE {table.name} ADD PRIMARY KEY, or REPLICA IDENTITY FULL.",
        )


def quoted_table(name: str) -> str:
    """The name of a table as SQL has it, with its schema where that is said."""
    return ".".join(map(quoted, name.split(".", 1)))


def bytes_of() -> Any:
    """What has psycopg give text as the bytes that came."""
    from psycopg.adapt import Loader

    class AsBytes(Loader):
        """Text as the bytes that came."""

        def load(self, data: Any) -> bytes:
            return bytes(data)

    return AsBytes
