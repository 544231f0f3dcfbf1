"""Flows with control streams: rules that change how an operator works while it works."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import raystream as rs
from raystream.simulation.processes.lists import ListSource
from raystream.testing.collect import Collect

GROUPS = 16
SECONDS = 40


class Sale(NamedTuple):
    time: rs.Int64
    name: str
    amount: int


class Rebate(NamedTuple):
    time: rs.Int64
    name: str
    percent: int


class Closing(NamedTuple):
    time: rs.Int64
    name: str


class Bill(NamedTuple):
    name: str
    amount: int
    so_far: int


class Rebates(rs.State):
    of: dict[str, int] = rs.field(factory=dict)
    digest: int = 7


class Turnover(rs.State):
    amount: int = 0


@rs.operator(key="name")
class Discount:
    """What it emits depends on all rules so far, and on their order."""

    def control(self, rule: Rebate | Closing, rebates: Rebates) -> None:
        if isinstance(rule, Rebate):
            rebates.of[rule.name] = rule.percent
        else:
            rebates.of.pop(rule.name, None)
        rebates.digest = (rebates.digest * 31 + rule.time + len(rebates.of)) % 1_000_003

    def process(self, sale: Sale, turnover: Turnover, rebates: Rebates) -> Iterator[Bill]:
        turnover.amount += sale.amount * (100 - rebates.of.get(sale.name, 0))
        yield Bill(sale.name, turnover.amount, rebates.digest)
        if turnover.amount % 7 == 0:
            rs.forget(turnover)


@rs.operator()
class Blocked:
    """Without a key: it keeps the key groups of what feeds it."""

    def control(self, rule: Rebate, rebates: Rebates) -> None:
        rebates.of[rule.name] = rule.percent

    def process(self, sale: Sale, rebates: Rebates) -> Iterator[Sale]:
        if rebates.of.get(sale.name, 0) < 25:
            yield sale._replace(amount=sale.amount + len(rebates.of))


@rs.operator()
def closings(rule: Rebate) -> Iterator[Rebate | Closing]:
    yield rule
    if rule.percent % 3 == 0:
        yield Closing(rule.time, rule.name)


@cache
def _rows() -> tuple[tuple[tuple[Sale, ...], ...], tuple[tuple[Rebate, ...], ...]]:
    rng = random.Random(13)

    def times(rows: int, until: int) -> list[int]:
        return sorted(rng.choices(range(until), k=rows))

    sales = tuple(
        tuple(Sale(t, rng.choice("abcdefgh"), rng.randrange(50)) for t in times(16, until))
        for until in (SECONDS, SECONDS // 2)
    )
    rules = tuple(
        tuple(Rebate(t, rng.choice("abcdefgh"), rng.randrange(50)) for t in times(6, until))
        for until in (SECONDS // 2, SECONDS)
    )
    return sales, rules


def controlled(sink: Collect) -> rs.Flow:
    """Rules that an operator makes, of two types, to an operator with a key."""
    flow = rs.Flow("controlled", key_groups=GROUPS)
    sales, rules = _rows()
    epochs = rs.by_time(seconds=2)
    sold = flow.source(ListSource(Sale, sales), epochs=epochs, name="sales")
    told = flow.source(ListSource(Rebate, rules), epochs=epochs, name="rules").through(closings)
    sold.through(rs.controlled(Discount(), by=told), name="discount").to(sink)
    return flow


def controlled_arriving(sink: Collect) -> rs.Flow:
    """The same rules to an operator without a key and to one after it; cut by arrival."""
    flow = rs.Flow("controlled_arriving", key_groups=GROUPS)
    sales, rules = _rows()
    sold = flow.source(ListSource(Sale, sales, batch=2), epochs=rs.by_arrival(), name="sales")
    told = flow.source(ListSource(Rebate, rules, batch=1), epochs=rs.by_arrival(), name="rules")
    allowed = sold.through(rs.controlled(Blocked(), by=told))
    allowed.through(rs.controlled(Discount(), by=told.through(closings)), name="discount").to(sink)
    return flow
