"""What users call to make sinks to databases. The sinks are imported when they are made."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from raystream.errors import placed
from raystream.schema.lengths import Seconds

if TYPE_CHECKING:
    from raystream.io.databases.duckdb import DuckdbSink
    from raystream.io.databases.markers import Existing
    from raystream.io.databases.postgres import PostgresSink
    from raystream.io.databases.sink import Visible
    from raystream.io.databases.sqlite import SqliteSink


@placed
def sqlite(
    path: str | os.PathLike[str],
    /,
    *,
    table: str,
    key: str | tuple[str, ...] | None = None,
    delete: str | None = None,
    create: bool = False,
    columns: Mapping[str, str] | None = None,
    visible: Visible | None = None,
    existing: Existing | None = None,
    wait: Seconds = 60.0,
) -> SqliteSink:
    """A sink to a table of an SQLite database, exactly once: rows are visible as soon as their
    epoch is written.

    All instances must be on the machine of the file, as they are in a run without a cluster or on a
    cluster of one node.

    Args:
        path: the file; it is made if it is not there.
        table: the table for the records, which are all of one type.
        key: the fields of its primary key: a row replaces the one with the same key, and of one key
            the last row of an epoch counts. Without any, rows are only added.
        delete: a bool field of the record: rows for which it is true are deleted by their key. The
            table has no such column.
        create: whether the table is made, from the type of the records, if it is not there.
        columns: the names of columns by field, where they are others.
        visible: `"saved"` shows rows only when a checkpoint is committed; with a durable tier, when
            it is saved. That is what happens unless given with a durable tier and epochs cut by
            arrival; otherwise rows show at once.
        existing: what a run that begins at the beginning does with rows of an earlier run.
            `"replace"` deletes all rows of the table. `"keep"` adds to them, and is what happens
            with a key. `"refuse"` adds to those of a run that has ended, and refuses to begin if a
            run broke off: what happens without a key.
        wait: for how many seconds to try again while other processes write to the file.

    Raises:
        ConfigError: an option does not fit.
    """
    from raystream.io.databases.sqlite import SqliteSink

    return SqliteSink(
        path,
        table,
        key=key,
        delete=delete,
        create=create,
        columns=columns,
        visible=visible,
        existing=existing,
        wait=wait,
    )


@placed
def duckdb(
    path: str | os.PathLike[str],
    /,
    *,
    table: str,
    key: str | tuple[str, ...] | None = None,
    delete: str | None = None,
    create: bool = False,
    columns: Mapping[str, str] | None = None,
    visible: Visible | None = None,
    existing: Existing | None = None,
    wait: Seconds = 60.0,
) -> DuckdbSink:
    """A sink to a table of a DuckDB database, exactly once: rows are visible as soon as their epoch
    is written. It needs the extra `duckdb`.

    Only one process at a time may have the file, so it is opened for each transaction and closed
    after it. All instances must be on the machine of the file.

    Args:
        path: the file; it is made if it is not there.
        table, key, delete, create, columns, visible, existing: as of `sqlite`.
        wait: for how many seconds to try again while other processes have the file.

    Raises:
        ConfigError: an option does not fit, or duckdb is not installed.
    """
    from raystream.io.databases.duckdb import DuckdbSink

    return DuckdbSink(
        path,
        table,
        key=key,
        delete=delete,
        create=create,
        columns=columns,
        visible=visible,
        existing=existing,
        wait=wait,
    )


@placed
def postgres(
    url: str,
    /,
    *,
    table: str,
    key: str | tuple[str, ...] | None = None,
    delete: str | None = None,
    create: bool = False,
    columns: Mapping[str, str] | None = None,
    visible: Visible | None = None,
    existing: Existing | None = None,
    wait: Seconds = 60.0,
) -> PostgresSink:
    """A sink to a table of a PostgreSQL database, exactly once: rows are visible as soon as their
    epoch is written. It needs the extra `postgres`.

    Args:
        url: `postgresql://user:password@host:port/database`, or another connection string of libpq.
            A password may also be in a file (`~/.pgpass`) on the machines of the sink. It is never
            shown.
        table: with a schema before it if it is not in the first one of the search path.
        key, delete, create, columns, visible, existing: as of `sqlite`.
        wait: for how many seconds to try again when the server cannot be reached or restarts.

    Raises:
        ConfigError: an option does not fit, or psycopg is not installed.
    """
    from raystream.io.databases.postgres import PostgresSink

    return PostgresSink(
        url,
        table,
        key=key,
        delete=delete,
        create=create,
        columns=columns,
        visible=visible,
        existing=existing,
        wait=wait,
    )
