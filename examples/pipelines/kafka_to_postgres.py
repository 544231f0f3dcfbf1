"""Payments from Kafka, joined with customers from a compacted topic, as rows of PostgreSQL: each
customer has one row with what was spent, which is written again when it changes, exactly once.

A payment of a customer who is not known yet waits until the customer comes.

Run it, with the topics `payments` (`{"customer": 1, "cents": 250}`) and `customers` (its key is the
id, its value `{"name": "ann"}`):

    python examples/pipelines/kafka_to_postgres.py 127.0.0.1:9092 postgresql://user@host/database

`tests/io/databases/test_join_example.py` does, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Literal, NamedTuple

import raystream as rs


class Payment(NamedTuple):
    customer: int
    cents: int


class Customer(NamedTuple):
    customer: int
    name: str


class Spent(NamedTuple):
    customer: int
    name: str
    payments: int
    cents: int


class Account(rs.State):
    name: str | None = None
    payments: int = 0
    cents: int = 0


@rs.operator(key="customer")
def spent(record: Payment | Customer, account: Account) -> Iterator[Spent]:
    if isinstance(record, Customer):
        account.name = record.name
    else:
        account.payments += 1
        account.cents += record.cents
    if account.name is not None and account.payments:
        yield Spent(record.customer, account.name, account.payments, account.cents)


def join(servers: str, url: str, end: Literal["latest"] | None = None) -> rs.Flow:
    """The flow. With `end` it ends with what is there, otherwise it goes on for ever."""
    flow = rs.Flow("spent")
    payments = flow.source(rs.io.kafka("payments", Payment, servers=servers, end=end))
    customers = flow.source(
        rs.io.kafka("customers", Customer, servers=servers, key="customer", end=end),
        name="customers",
    )
    rows = (payments | customers).through(spent)
    rows.to(rs.io.postgres(url, table="spent", key="customer", create=True, existing="keep"))
    return flow


if __name__ == "__main__":
    join(sys.argv[1], sys.argv[2]).run()
