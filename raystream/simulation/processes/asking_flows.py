"""Flows that ask the world, which answers otherwise each time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import raystream as rs
from raystream.simulation.processes.lists import ListSource
from raystream.testing.collect import Collect

GROUPS = 16
SECONDS = 40


class Asset(NamedTuple):
    time: rs.Int64
    name: str


class Quote(NamedTuple):
    time: rs.Int64
    name: str
    price: int


class NoQuote(NamedTuple):
    time: rs.Int64
    name: str


class Sum(NamedTuple):
    name: str
    digest: int


class Prices(rs.State):
    digest: int = 7

    @classmethod
    def upgrade(cls, old: Mapping[str, Any]) -> Prices:
        return cls(digest=old["digest"] + 1)


@rs.operator(key="name", recorded=True)
def quote(asset: Asset) -> Iterator[Quote | NoQuote]:
    """None, one or several answers of two types; and some failures."""
    price = int(rs.random() * 1_000_003)
    if price % 11 == 0:
        raise ValueError(f"no price for {rs.request_id()}")
    for i in range(price % 4):
        yield Quote(asset.time, asset.name, price + i)
        if price % 5 == 0:
            yield NoQuote(int(rs.now()), asset.name)


@rs.operator(recorded=True, batch=3, ordered=False)
def rate(assets: list[Asset]) -> list[Quote | None]:
    """Without a key: it keeps the key groups of what feeds it."""
    prices = [int(rs.random() * 1_000_003) for _ in assets]
    return [
        Quote(a.time, a.name, price) if price % 5 else None
        for a, price in zip(assets, prices, strict=True)
    ]


@rs.operator(key="name")
def summed(quote: Quote, prices: Prices) -> Iterator[Sum]:
    """Depends on the order of all answers of a name."""
    prices.digest = (prices.digest * 31 + quote.price) % (2**61 - 1)
    yield Sum(quote.name, prices.digest)


@cache
def _assets() -> tuple[tuple[Asset, ...], ...]:
    rng = random.Random(11)
    return tuple(
        tuple(Asset(t, rng.choice("abcdefgh")) for t in sorted(rng.choices(range(until), k=14)))
        for until in (SECONDS, SECONDS // 2)
    )


def asking(sink: Collect) -> rs.Flow:
    """Epochs by time: what is recorded are the answers alone."""
    flow = rs.Flow("asking", key_groups=GROUPS)
    source = ListSource(Asset, _assets())
    assets = flow.source(source, epochs=rs.by_time(seconds=2), name="assets")
    quotes = assets.through(quote, on_error="stream")
    (quotes[Quote].through(summed) | quotes[NoQuote] | quotes[rs.FailedRecord]).to(sink)
    return flow


def asking_arriving(sink: Collect) -> rs.Flow:
    """Epochs by arrival: where they end is recorded, too."""
    flow = rs.Flow("asking_arriving", key_groups=GROUPS)
    source = ListSource(Asset, _assets(), batch=2)
    assets = flow.source(source, epochs=rs.by_arrival(), name="assets")
    assets.through(rate).through(summed).to(sink)
    return flow
