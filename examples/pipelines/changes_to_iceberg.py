"""Change data capture into a lake: the rows of a PostgreSQL table and then its changes, appended to
a table of Iceberg. Each change is there once, and readers see whole checkpoints.

It needs a server with `wal_level = logical`, a table to watch, and a catalog; here one in a folder:

    CREATE TABLE orders (id int PRIMARY KEY, customer text, amount numeric(12, 2));

    python examples/pipelines/changes_to_iceberg.py postgresql://user@host/database lake/

It follows the table until it is stopped. On a cluster run it with `--durable`, and go on from there
with `--resume`. The newest state of each order is what a query takes:

    SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY lsn DESC, number DESC)
    AS newest FROM shop.changes) WHERE newest = 1 AND op <> 'delete'

`tests/io/capture/test_lake_example.py` runs it.
"""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Annotated, NamedTuple

import raystream as rs


class Change(NamedTuple):
    """What happened to an order, where in the server's log, and what the order was then. A delete
    has the id alone."""

    op: str
    lsn: int
    number: int
    id: int
    customer: str | None
    amount: Annotated[Decimal, rs.decimal(12, 2)] | None


def catalog(lake: Path) -> dict[str, str]:
    """A catalog of PyIceberg in a folder. In production it is a service: see PyIceberg."""
    lake.mkdir(parents=True, exist_ok=True)
    folder = lake.resolve()
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def capture(url: str, lake: Path, *, follow: bool = True) -> rs.Flow:
    """The flow. Without `follow` it ends with what was committed when it began."""
    flow = rs.Flow("capture")
    changes = rs.io.postgres_changes(
        url, Change, table="orders", lsn="lsn", number="number", follow=follow
    )
    table = rs.io.iceberg("shop.changes", catalog="lake", properties=catalog(lake), create=True)
    flow.source(changes, epochs=rs.by_arrival()).to(table)
    return flow


if __name__ == "__main__":
    capture(sys.argv[1], Path(sys.argv[2])).run()
