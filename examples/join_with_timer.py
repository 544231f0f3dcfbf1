"""Two streams joined by a key, with a timer: orders that stay unpaid for 20 seconds.

It prints:

    Unpaid(user=2, since=5, owed=70)
    Unpaid(user=1, since=30, owed=15)

Run it:

    python examples/join_with_timer.py
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import raystream as rs


class Order(NamedTuple):
    time: int
    user: int
    amount: int


class Payment(NamedTuple):
    time: int
    user: int
    amount: int


class Unpaid(NamedTuple):
    user: int
    since: int
    owed: int


class Account(rs.State):
    owed: int = 0
    since: int = 0
    due: rs.Timer = rs.NEVER


# Within an epoch the records of a user are taken in order of time; at one time orders come before
# payments, because the annotation of `process` names them first.
@rs.operator(key="user", order_by="time")
class Ledger:
    def process(self, event: Order | Payment, account: Account) -> None:
        match event:
            case Order():
                if account.owed == 0:
                    account.since = event.time
                    account.due = event.time + 20
                account.owed += event.amount
            case Payment():
                account.owed -= event.amount
                if account.owed <= 0:
                    rs.forget(account)

    def timer(self, key: int, time: int, account: Account) -> Iterator[Unpaid]:
        yield Unpaid(key, account.since, account.owed)


ORDERS = [Order(0, 1, 100), Order(5, 2, 70), Order(30, 1, 15)]
PAYMENTS = [Payment(8, 1, 100), Payment(40, 2, 70)]

flow = rs.Flow("unpaid")
by_second = rs.by_time(seconds=1)
orders = flow.source(rs.io.iterable(ORDERS, Order), epochs=by_second, name="orders")
payments = flow.source(rs.io.iterable(PAYMENTS, Payment), epochs=by_second, name="payments")
(orders | payments).through(Ledger()).to(rs.io.console())

if __name__ == "__main__":
    flow.run()
