"""Change data capture: the rows of a PostgreSQL table and then its changes, as JSON files.

It needs a server with `wal_level = logical`, and a table to watch:

    CREATE TABLE orders (id int PRIMARY KEY, customer text, amount numeric(12, 2));

Run it, again and again; each run writes what was committed since the last one:

    python examples/changes_to_files.py postgresql://user@host/database changes/

In a job that follows the table, leave out `follow=False` and run it on Ray with `--durable`:
what it has written it does not write again, whichever process dies.
"""

from __future__ import annotations

import sys
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, NamedTuple

import raystream as rs


class Change(NamedTuple):
    """What happened to an order, and what it was then. A delete has the id alone."""

    op: str
    id: int
    customer: str | None
    amount: Annotated[Decimal, rs.decimal(12, 2)] | None
    at: datetime


def changes(url: str, out: Path) -> rs.Flow:
    """The flow. The first run reads the table, later ones go on where the slot is."""
    first = not out.exists()
    flow = rs.Flow("orders")
    source = rs.io.postgres_changes(
        url, Change, table="orders", committed="at", snapshot=first, follow=False
    )
    number = 1 if first else 1 + len(list(out.iterdir()))
    flow.source(source, epochs=rs.by_arrival()).to(rs.io.json(out / f"run-{number:04d}"))
    return flow


if __name__ == "__main__":
    changes(sys.argv[1], Path(sys.argv[2])).run()
