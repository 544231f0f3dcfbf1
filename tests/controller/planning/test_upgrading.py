"""Which flows a running job may go over to, and back: flows that ask the world, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.controller.planning.upgrading import outline_of_flow, refuse_upgrade
from raystream.errors import StateError
from raystream.testing.collect import Collect


class Item(NamedTuple):
    time: int
    name: str


class Price(NamedTuple):
    time: int
    name: str
    cents: int


class Sum(NamedTuple):
    name: str
    cents: int


class Paid(rs.State):
    cents: int = 0


class PaidOften(rs.State):
    cents: int = 0
    times: int = 0

    @classmethod
    def upgrade(cls, old: Mapping[str, Any]) -> PaidOften:
        return cls(cents=old["cents"])


@rs.operator(key="name", recorded=True)
def price(item: Item) -> Price:
    return Price(item.time, item.name, round(100 * rs.random()))


@rs.operator(key="name", concurrency=8, timeout="2s", retries=1)
async def other_price(item: Item) -> Price | None:
    return Price(item.time, item.name, round(200 * rs.random())) if item.name else None


@rs.operator(key="name")
def known_price(item: Item) -> Iterator[Price]:
    yield Price(item.time, item.name, 1)


@rs.operator(key="name")
def total(price: Price, paid: Paid) -> Iterator[Sum]:
    paid.cents += price.cents
    yield Sum(price.name, paid.cents)


@rs.operator(key="name")
def other_total(price: Price, paid: PaidOften) -> Iterator[Sum]:
    paid.cents, paid.times = paid.cents + price.cents, paid.times + 1
    yield Sum(price.name, paid.cents)


def shop(asks: Any, sums: Any) -> rs.Flow:
    flow = rs.Flow("shop")
    items = flow.source(rs.io.iterable([Item(0, "a")], Item), epochs=rs.by_time(seconds=1))
    items.through(asks, name="price").through(sums, name="total").to(Collect())
    return flow


def goes_over(running: rs.Flow, new: rs.Flow) -> None:
    refuse_upgrade(outline_of_flow(running)[0], *outline_of_flow(new))


def test_what_is_asked_may_change_and_how() -> None:
    """Other code, options and annotations, if the records it sends are of the same types."""
    goes_over(shop(price, total), shop(other_price, total))
    goes_over(shop(other_price, total), shop(price, total))


def test_an_operator_does_not_begin_to_ask_nor_end() -> None:
    for running, new, what in (
        (price, known_price, "the world"),
        (known_price, price, "nothing"),
    ):
        with pytest.raises(StateError) as told:
            goes_over(shop(running, total), shop(new, total))
        assert f"price: that it asks {what} is not so in the new flow" in str(told.value)


def test_going_back_is_refused_where_rows_cannot_be_taken_back() -> None:
    goes_over(shop(price, total), shop(price, other_total))
    with pytest.raises(StateError, match="total keeps other rows in the new flow"):
        goes_over(shop(price, other_total), shop(price, total))
