"""The example that captures the changes of a table into a lake."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from tests.servers import Postgres


@pytest.fixture
def orders(postgres_server: Postgres) -> Iterator[Postgres]:
    """A table `orders`, which is gone afterwards with all that watched it."""
    postgres_server.query(
        "CREATE TABLE orders (id int PRIMARY KEY, customer text, amount numeric(12, 2))"
    )
    yield postgres_server
    postgres_server.query(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots; DROP TABLE orders;"
        "DROP PUBLICATION IF EXISTS raystream_orders"
    )


def test_what_was_committed_is_in_the_lake(orders: Postgres, tmp_path: Path) -> None:
    catalogs = pytest.importorskip("pyiceberg.catalog")
    example = importlib.import_module("examples.pipelines.changes_to_iceberg")
    lake = tmp_path / "lake"
    orders.query("INSERT INTO orders VALUES (1, 'ann', 1.5), (2, 'bob', 2)")
    example.capture(orders.url, lake, follow=False).run()
    table = catalogs.load_catalog("lake", **example.catalog(lake)).load_table("shop.changes")
    rows = sorted(table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [(r["op"], r["id"], r["customer"], r["amount"]) for r in rows] == [
        ("read", 1, "ann", Decimal("1.50")), ("read", 2, "bob", Decimal("2.00"))
    ]  # fmt: skip
