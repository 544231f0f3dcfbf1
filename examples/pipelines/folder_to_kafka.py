"""A folder that fills, into a topic: files are moved in while the job runs, and each of their rows
is in the topic exactly once, for readers of what is committed.

    python examples/pipelines/folder_to_kafka.py orders/ 127.0.0.1:9092

It goes on until it is stopped, or until there is a file `_END`. A bucket (`s3://bucket/orders/`)
does as well as a folder. Programs that write files there give them a name that begins with a dot,
and rename them when they are whole.

`tests/io/kafka/test_folder_example.py` runs it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple

import raystream as rs


class Order(NamedTuple):
    id: int
    shop: str
    cents: int


class Priced(NamedTuple):
    shop: str
    order: int
    euros: float


@rs.operator()
def price(order: Order) -> Iterator[Priced]:
    yield Priced(order.shop, order.id, order.cents / 100)


def ship(folder: str, servers: str) -> rs.Flow:
    """The flow. Messages of a shop have it as their key, and stay in order."""
    follow = rs.io.Follow(every="1s", settled="100ms", end="_END")
    flow = rs.Flow("ship")
    orders = flow.source(rs.io.csv(folder, Order, follow=follow), epochs=rs.by_arrival())
    orders.through(price).to(rs.io.kafka("shipped", servers=servers, key="shop", create=True))
    return flow


if __name__ == "__main__":
    ship(sys.argv[1], sys.argv[2]).run()
