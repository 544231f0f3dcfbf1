"""Orders joined with the newest price of their item: from two topics of Kafka to a third, where
readers of what is committed see each bill exactly once.

The topic of prices is compacted: its key is the item, and a message without a value takes an item
off the list. Orders of items without a price wait until there is one.

Run it, with a Kafka on this machine that has the topics `orders`, `prices` and `bills`:

    raystream check examples.kafka_join:flow
    raystream run examples.kafka_join:flow --instances bill=2 --durable saves/

`tests/io/kafka/test_kafka_sink.py` does, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import raystream as rs

SERVERS = "127.0.0.1:9092"


class Order(NamedTuple):
    id: int
    item: str
    number: int


class Price(NamedTuple):
    item: str
    cents: int | None = None
    gone: bool = False


class Billed(NamedTuple):
    item: str
    order: int
    cents: int


class Known(rs.State):
    cents: int | None = None
    waiting: list[tuple[int, int]] = rs.field(factory=list)


@rs.operator(key="item")
def bill(record: Order | Price, known: Known) -> Iterator[Billed]:
    if isinstance(record, Price):
        known.cents = record.cents
    else:
        known.waiting.append((record.id, record.number))
    if known.cents is not None:
        for order, number in known.waiting:
            yield Billed(record.item, order, number * known.cents)
        known.waiting.clear()


flow = rs.Flow("bills")
orders = flow.source(rs.io.kafka("orders", Order, servers=SERVERS, group="bills"), name="orders")
prices = flow.source(
    rs.io.kafka("prices", Price, servers=SERVERS, key="item", delete="gone"), name="prices"
)
bills = (orders | prices).through(bill)
bills.to(rs.io.kafka("bills", servers=SERVERS, key="item"), name="bills")

if __name__ == "__main__":
    flow.run()
