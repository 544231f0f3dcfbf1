"""What users call to read and write tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from raystream.api.arguments import check_flag, check_record, whole
from raystream.errors import ConfigError, placed
from raystream.io.buckets.urls import place_name
from raystream.io.files.columns import renamed
from raystream.io.tables.sink import LakeSink
from raystream.schema.fields import AnyRecord
from raystream.schema.lengths import Seconds, wait_of

if TYPE_CHECKING:
    from raystream.io.tables.iceberg_source import IcebergRows

U = TypeVar("U", bound=AnyRecord)


@placed
def delta(
    path: str | os.PathLike[str],
    /,
    *,
    create: bool = False,
    columns: Mapping[str, str] | None = None,
) -> LakeSink:
    """A table of Delta Lake as a sink: one snapshot for each checkpoint, exactly once.

    Args:
        path: the folder of the table, or a URL of it in a bucket.
        create: whether the table is made from the records if it is not there.
        columns: the names of columns by field, where they are others.

    Raises:
        ConfigError: the path is none, or a package is not installed.
    """
    from raystream.io.tables.delta import DeltaLakeTable

    check_flag("rs.io.delta", "create", create)
    return LakeSink(DeltaLakeTable(place_name(path), create), renamed(columns))


@overload
def iceberg(
    table: str,
    record: type[U],
    /,
    *,
    catalog: str = "default",
    properties: Mapping[str, Any] | None = None,
    columns: Mapping[str, str] | None = None,
    start: Literal["earliest", "latest"] = "earliest",
    follow: bool | Seconds = False,
    splits: int = 1,
) -> IcebergRows[U]: ...
@overload
def iceberg(
    table: str,
    /,
    *,
    catalog: str = "default",
    properties: Mapping[str, Any] | None = None,
    create: bool = False,
    columns: Mapping[str, str] | None = None,
) -> LakeSink: ...
@placed
def iceberg(
    table: str,
    record: type[Any] | None = None,
    /,
    *,
    catalog: str = "default",
    properties: Mapping[str, Any] | None = None,
    create: bool = False,
    columns: Mapping[str, str] | None = None,
    start: Any = "earliest",
    follow: bool | Seconds = False,
    splits: int = 1,
) -> Any:
    """A table of Apache Iceberg: with a record type a source, without one a sink.

    As a sink it makes one snapshot for each checkpoint, exactly once. As a source it reads what is
    there, and with `follow=` then what snapshots append, each row once.

    Args:
        table: its name, with its namespace: `shop.orders`.
        record: what the rows of a source are.
        catalog: the name of the catalog, as PyIceberg's settings have it.
        properties: settings of the catalog, beside those of PyIceberg.
        create: of a sink: whether the table is made from the records if it is not there, and its
            namespace.
        columns: the names of columns by field, where they are others.
        start: of a source: `"earliest"` begins with all rows that there are, `"latest"` after them.
        follow: of a source: whether to read on when snapshots append rows; a length of time is
            how long lies between two looks at the table, 10 seconds with True.
        splits: of a source: into how many parts its files are divided.

    Raises:
        ConfigError: an argument cannot be, or a package is not installed.
    """
    from raystream.io.tables.iceberg import iceberg_table

    check_flag(ICEBERG, "create", create)
    made = iceberg_table(table, catalog, properties, create=create)
    if record is None:
        if start != "earliest" or follow is not False or splits != 1:
            raise ConfigError(f"{ICEBERG}: start=, follow= and splits= are of a source")
        return LakeSink(made, renamed(columns))
    from raystream.io.tables.iceberg_source import IcebergRows

    check_record(ICEBERG, record)
    if create:
        raise ConfigError(
            f"{ICEBERG}(create=True) is for a sink, and with a record type this is a source"
        )
    if start not in ("earliest", "latest"):
        raise ConfigError(f'{ICEBERG}(start={start!r:.80}): "earliest" or "latest"')
    splits = whole(ICEBERG, "splits", splits, 1, 1024, ConfigError)
    seconds = None
    if follow is not False:
        seconds = wait_of(ICEBERG, "follow", FOLLOW_SECONDS if follow is True else follow)
    return IcebergRows(made, record, columns, start=start, follow=seconds, number=splits)


ICEBERG = "rs.io.iceberg"
FOLLOW_SECONDS = 10.0
"""How often a table that is followed is looked at."""
