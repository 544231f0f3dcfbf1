"""What users call to write to tables."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from raystream.api.arguments import check_flag
from raystream.errors import placed
from raystream.io.buckets.urls import place_name
from raystream.io.files.columns import renamed
from raystream.io.tables.sink import LakeSink


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


@placed
def iceberg(
    table: str,
    /,
    *,
    catalog: str = "default",
    properties: Mapping[str, Any] | None = None,
    create: bool = False,
    columns: Mapping[str, str] | None = None,
) -> LakeSink:
    """A table of Apache Iceberg as a sink: one snapshot for each checkpoint, exactly once.

    Args:
        table: its name, with its namespace: `shop.orders`.
        catalog: the name of the catalog, as PyIceberg's settings have it.
        properties: settings of the catalog, beside those of PyIceberg.
        create: whether the table is made from the records if it is not there, and its namespace.
        columns: the names of columns by field, where they are others.

    Raises:
        ConfigError: a name is none, or a package is not installed.
    """
    from raystream.io.tables.iceberg import iceberg_table

    check_flag("rs.io.iceberg", "create", create)
    made = iceberg_table(table, catalog, properties, create=create)
    return LakeSink(made, renamed(columns))
