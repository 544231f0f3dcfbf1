"""What users call to read PostgreSQL. The sources are imported when they are made."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from raystream.api.arguments import check_flag, check_record
from raystream.errors import ConfigError, GraphError, caller, placed
from raystream.io.files.columns import mapping_of
from raystream.schema.fields import AnyRecord, Field
from raystream.schema.lengths import Seconds, wait_of
from raystream.schema.records import record_schema

if TYPE_CHECKING:
    from raystream.io.capture.polling import RisingRows
    from raystream.io.capture.source import ChangedRows

U = TypeVar("U", bound=AnyRecord)

CHANGES, ROWS = "rs.io.postgres_changes", "rs.io.postgres_rows"


@placed
def postgres_changes(
    url: str,
    record: type[U],
    /,
    *,
    table: str,
    operation: str | None = "op",
    columns: Mapping[str, str] | None = None,
    slot: str | None = None,
    publication: str | None = None,
    snapshot: bool = True,
    follow: bool = True,
    unchanged: str | None = None,
    lsn: str | None = None,
    number: str | None = None,
    committed: str | None = None,
    heartbeat: Seconds = 10.0,
    wait: Seconds = 60.0,
) -> ChangedRows[U]:
    """The rows of a table and then its changes, as they are committed, by logical replication. It
    needs the extra `postgres`, and a server with `wal_level = logical`.

        class Order(NamedTuple):
            op: str                  # read, insert, update, delete or truncate
            id: int
            amount: int | None       # None where it is not known, as in a delete

        flow.source(rs.io.postgres_changes(URL, Order, table="orders"), epochs=rs.by_arrival())

    A record says what happened to a row, and what the row is then. A delete has the columns of the
    primary key, the others are None; with `REPLICA IDENTITY FULL` it has all. An update of the key
    is a delete and an insert.

    Args:
        url: as of `postgres`. The user needs the right of replication, and to make a slot and a
            publication unless they are there.
        record: its fields are columns of the table; the table may have more.
        table: with its schema before it if it is not in the first one of the search path.
        operation: the field of type `str` that says what happened. None: the record has none.
        columns: the names of columns by field, where they are others.
        slot: what the server calls its place in the log for this source, which no other client
            may read; made if it is not there. Unless given: `raystream_` and the table. It stays
            when the job ends, so that it can go on; drop it when it is not needed any more, because
            the server keeps its log for it.
        publication: what the server calls what it publishes; made if it is not there. Unless given:
            as the slot.
        snapshot: whether the rows that are there come first, with the operation `read`. Then a job
            that begins at the beginning replaces the slot. Otherwise such a job goes on where the
            slot is, or makes it.
        follow: whether to wait for changes. False: the source ends with what was committed before
            it began.
        unchanged: a field of type `list[str]` for the names of columns of which an update does not
            say the value, because they are stored apart (TOAST) and stay. The fields are None
            then. Without it such an update ends the job.
        lsn: an int field for the place of the commit in the log; 0 in rows that were there.
        number: an int field for the number of the change among those of the transaction.
        committed: a `datetime` field for the time of the commit; 1970 in rows that were there.
        heartbeat: how often, in seconds, the slot moves on while the table does not change.
        wait: for how many seconds to try again when the server cannot be reached or restarts.

    Raises:
        ConfigError: an option does not fit, or psycopg is not installed.
        GraphError: the record does not fit.
    """
    from raystream.io.capture.source import ChangedRows, WantedChanges
    from raystream.io.capture.values import ToldFields
    from raystream.io.databases.postgres import check_connection

    _check_text(CHANGES, url=url, table=table)
    check_record(CHANGES, record)
    for name, flag in (("snapshot", snapshot), ("follow", follow)):
        check_flag(CHANGES, name, flag)
    told = ToldFields(
        operation=operation, unchanged=unchanged, lsn=lsn, number=number, committed=committed
    )
    record_schema(record, caller()[1])
    _check_told(record, told)
    check_connection(CHANGES, url)
    wanted = slot if slot is not None else _default_slot(table)
    if not isinstance(wanted, str) or not re.fullmatch("[a-z0-9_]{1,63}", wanted):
        raise ConfigError(
            f"{CHANGES}(slot={wanted!r:.80}): up to 63 lower-case letters, digits and underscores"
        )
    asked = WantedChanges(
        url=url,
        table=table,
        slot=wanted,
        publication=_checked_name("publication", publication) or wanted,
        snapshot=snapshot,
        follow=follow,
        heartbeat=wait_of(CHANGES, "heartbeat", heartbeat),
        wait=wait_of(CHANGES, "wait", wait),
    )
    return ChangedRows(record, asked, told, _columns_of(record, told, columns))


@placed
def postgres_rows(
    url: str,
    record: type[U],
    /,
    *,
    table: str,
    rising: str,
    columns: Mapping[str, str] | None = None,
    every: Seconds = 1.0,
    behind: Seconds = 0.0,
    follow: bool = True,
    wait: Seconds = 60.0,
) -> RisingRows[U]:
    """The rows of a table that only grows, by asking for new ones now and then. It needs the extra
    `postgres`, and no other right than to read the table.

        flow.source(
            rs.io.postgres_rows(URL, Event, table="events", rising="id"), epochs=rs.by_arrival()
        )

    Rows that are updated or deleted later are not noticed.

    Args:
        url: as of `postgres`.
        record: its fields are columns of the table; the table may have more.
        table: with its schema before it if it is not in the first one of the search path.
        rising: a column whose value is higher in each row that is inserted later: an identity or
            another number of a sequence (without a CACHE), or a timestamp. It has an index, and is
            not below 0. Rows where it is NULL are not read. A row is read when the transactions
            have ended that were writing to the table when it was seen, because they may add rows
            below it.
        columns: the names of columns by field, where they are others.
        every: how often to ask, in seconds.
        behind: of a timestamp, which is that of the beginning of a transaction: how many seconds
            before the server's time to stop. A transaction that waits longer than so before it
            writes may add rows that are not read.
        follow: whether to go on asking. False: the source ends with what is there.
        wait: for how many seconds to try again when the server cannot be reached or restarts.

    Raises:
        ConfigError: an option does not fit, or psycopg is not installed.
        GraphError: the record does not fit.
    """
    from raystream.io.capture.polling import RisingRows, WantedRows
    from raystream.io.capture.values import ToldFields
    from raystream.io.databases.postgres import check_connection

    _check_text(ROWS, url=url, table=table, rising=rising)
    check_record(ROWS, record)
    record_schema(record, caller()[1])
    check_flag(ROWS, "follow", follow)
    check_connection(ROWS, url)
    asked = WantedRows(
        url=url,
        table=table,
        rising=rising,
        every=wait_of(ROWS, "every", every, zero=False),
        behind=wait_of(ROWS, "behind", behind),
        follow=follow,
        wait=wait_of(ROWS, "wait", wait),
    )
    return RisingRows(record, asked, _columns_of(record, ToldFields(), columns))


def _columns_of(record: type[Any], told: Any, columns: Mapping[str, str] | None) -> list[str]:
    called = dict(mapping_of(record, columns))
    special = set(told.names.values())
    found = [called.get(n, n) for n in record_schema(record).names if n not in special]
    if not found:
        raise GraphError(f"{record.__name__} has no field that is a column")
    return found


_SHAPES: dict[str, tuple[str, Callable[[Field], bool]]] = {
    "operation": ("a str", lambda f: f.kind == "text"),
    "unchanged": ("list[str]", lambda f: f.kind == "object"),
    "lsn": ("an int", lambda f: f.kind == "fixed" and f.dtype == "i8" and f.value is None),
    "number": ("an int", lambda f: f.kind == "fixed" and f.dtype == "i8" and f.value is None),
    "committed": ("a datetime", lambda f: f.value is not None and f.value.python is datetime),
}


def _check_told(record: type[Any], told: Any) -> None:
    schema = record_schema(record)
    for what, name in told.names.items():
        f: Field | None = schema.field(name) if isinstance(name, str) else None
        kind, fits = _SHAPES[what]
        if f is None or not fits(f):
            raise GraphError(
                f"{CHANGES}({what}={name!r:.80}): {schema.name} has no such field of type"
                f" {kind.split()[-1]}",
                hint=f"Declare {name}: {kind.split()[-1]}"
                + (", or say operation=None." if what == "operation" else "."),
            )
    if len(set(told.names.values())) < len(told.names):
        raise GraphError(f"{CHANGES}: one field of {schema.name} is named for two things")


def _check_text(call: str, **given: Any) -> None:
    for name, value in given.items():
        if not isinstance(value, str) or not value or "\0" in value or not value.isprintable():
            said = "" if name == "url" else f"={value!r:.80}"
            raise ConfigError(f"{call}({name}{said}): it is text")


def _checked_name(what: str, value: Any) -> str | None:
    if value is not None and not (
        isinstance(value, str) and 0 < len(value.encode("utf-8", "replace")) <= 63
    ):
        raise ConfigError(f"{CHANGES}({what}={value!r:.80}): a name of up to 63 bytes")
    return value


def _default_slot(table: str) -> str:
    return f"raystream_{re.sub('[^a-z0-9_]', '_', table.lower())}"[:63]
