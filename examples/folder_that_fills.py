"""A folder that fills: files are moved in while the job runs, and each is read once.

Here a thread moves in three files of orders and then a file called `_END`, which ends the input.
Without `end` the job goes on until it is stopped. A bucket fills in the same way:
`rs.io.csv("s3://bucket/orders/", Order, follow=True)`.

    python examples/folder_that_fills.py

It prints:

    Total(shop='north', orders=3)
    Total(shop='south', orders=6)
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import raystream as rs


class Order(NamedTuple):
    time: int
    shop: str


class Total(NamedTuple):
    shop: str
    orders: int


class Orders(rs.State):
    n: int = 0


@rs.operator(key="shop")
def count(order: Order, orders: Orders) -> Iterator[Total]:
    orders.n += 1
    yield Total(order.shop, orders.n)


def fill(folder: Path) -> None:
    """Move files in: a name that begins with a dot is not read, and a renamed file is whole."""
    for n in range(3):
        hidden = folder / f".orders-{n}.csv"
        hidden.write_text(f"time,shop\n{n},north\n{n},south\n{n},south\n")
        hidden.rename(folder / f"orders-{n}.csv")
    (folder / "_END").touch()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        follow = rs.io.Follow(every="50ms", settled=0, end="_END")
        flow, last = rs.Flow("orders"), dict[str, Total]()
        orders = flow.source(rs.io.csv(folder, Order, follow=follow), epochs=rs.by_arrival())
        orders.through(count).to(
            rs.io.callable(lambda total: last.update({total.shop: total}), each=True)
        )
        filling = threading.Thread(target=fill, args=(Path(folder),))
        filling.start()
        flow.run()
        filling.join()
    for shop in sorted(last):
        print(last[shop])


if __name__ == "__main__":
    main()
