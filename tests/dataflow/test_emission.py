"""Records of several types that one producer emits come in the order in which it emitted them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import raystream as rs
from raystream.dataflow import emission
from raystream.dataflow.plan import Edge
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import KeyRange
from raystream.state.keys import key_group
from raystream.testing import Collect, run_local


class Tick(NamedTuple):
    time: int
    key: int
    n: int


class Odd(NamedTuple):
    time: int
    key: int
    n: int


class Even(NamedTuple):
    time: int
    key: int
    n: int


class Seen(NamedTuple):
    key: int
    names: list[str]


class Past(rs.State):
    names: list[str] = rs.field(factory=list)


@rs.operator()
def both(tick: Tick) -> Iterator[Odd | Even]:
    for i in range(tick.n):
        if (tick.time + i // 2) % 2:
            yield Odd(tick.time, tick.key, i)
        else:
            yield Even(tick.time, tick.key, i)


@rs.operator(compiled=True)
def both_compiled(tick: Tick) -> Iterator[Odd | Even]:
    for i in range(tick.n):
        if (tick.time + i // 2) % 2:
            yield Odd(tick.time, tick.key, i)
        else:
            yield Even(tick.time, tick.key, i)


@rs.operator()
def either(tick: Tick) -> Iterator[Odd | Even]:
    """Several records for one, all of one type."""
    for i in range(tick.n):
        yield Odd(tick.time, tick.key, i) if tick.time % 2 else Even(tick.time, tick.key, i)


@rs.operator()
def turned(record: Odd | Even) -> Iterator[Odd | Even]:
    yield record
    if isinstance(record, Odd):
        yield Even(record.time, record.key, -record.n)


@rs.operator(key="key")
def past(record: Tick | Odd | Even, kept: Past) -> Iterator[Seen]:
    kept.names.append(f"{type(record).__name__}{record.time}.{record.n}")
    yield Seen(record.key, kept.names)


@rs.operator(key="key")
def past_of_two(record: Odd | Even, kept: Past) -> Iterator[Seen]:
    kept.names.append(f"{type(record).__name__}{record.time}.{record.n}")
    yield Seen(record.key, kept.names)


def ticks(seed: int) -> list[Tick]:
    rng = random.Random(seed)
    return [Tick(time, rng.randrange(5), rng.randrange(5)) for time in range(40)]


def newest(sink: Collect) -> dict[int, list[str]]:
    return {record.key: record.names for record in sink.records()}


def expected(records: list[Any]) -> dict[int, list[str]]:
    out: dict[int, list[str]] = {}
    for r in records:
        out.setdefault(r.key, []).append(f"{type(r).__name__}{r.time}.{r.n}")
    return out


@pytest.mark.parametrize("op", [both, both_compiled])
@pytest.mark.parametrize("options", [{}, {"instances": {"past_of_two": 3}, "seed": 1}])
def test_what_a_stateless_operator_emits_keeps_its_order(op: Any, options: dict[str, Any]) -> None:
    flow, sink = rs.Flow("order"), Collect()
    source = flow.source(rs.io.iterable(ticks(1), Tick), epochs=rs.by_time(seconds=7))
    source.through(op).through(turned).through(past_of_two).to(sink)
    run_local(flow, **options)
    made = [r for tick in ticks(1) for b in both(tick) for r in turned(b)]
    assert newest(sink) == expected(made)


@pytest.mark.parametrize("options", [{}, {"instances": {"past": 3}, "seed": 2, "check": True}])
@pytest.mark.parametrize(("op", "seed"), [(both, 2), (either, 3)], ids=["both", "either"])
def test_what_is_made_of_a_record_comes_after_it_in_order(
    op: Any, seed: int, options: dict[str, Any]
) -> None:
    """Of several types, and of one."""
    flow, sink = rs.Flow("order"), Collect()
    source = flow.source(rs.io.iterable(ticks(seed), Tick), epochs=rs.by_time(seconds=7))
    (source | source.through(op)).through(past).to(sink)
    run_local(flow, **options)
    made = [r for tick in ticks(seed) for r in (tick, *op(tick))]
    assert newest(sink) == expected(made)


class Wide(NamedTuple):
    name: str
    n: int
    short: rs.Int16
    odd: bool
    half: float
    maybe: rs.Int8 | None


@pytest.mark.parametrize("many", [0, 1000], ids=["as many rows", "as few"])
@pytest.mark.parametrize("key", [("n",), ("short",), ("name",), ("name", "n")], ids="-".join)
@pytest.mark.parametrize("ranked", [False, True])
def test_rows_are_cut_by_the_key_group_of_their_consumer_and_keep_their_order_in_it(
    monkeypatch: pytest.MonkeyPatch, many: int, key: tuple[str, ...], ranked: bool
) -> None:
    monkeypatch.setattr(emission, "MANY", many)
    rng, groups, schema = random.Random(7), 4, record_schema(Wide)
    records = [
        Wide(f"{n % 7}", n - 20, n % 5, n % 3 == 0, n / 2, rng.choice([None, n])) for n in range(90)
    ]
    offsets = np.array([0, 30, 90])  # of two key groups of the producer, from the second on
    given = emission.Emission(from_records(schema, records), offsets, None)
    edge = Edge(id=0, producer=0, port=0, consumer=9, type=0, schema=schema, key=key, ranked=ranked)

    rows, at = emission.cut_for(edge, given, KeyRange(1, 3), groups)

    def group(number: int) -> int:
        values = tuple(getattr(records[number], name) for name in key)
        return key_group(values if len(values) > 1 else values[0], groups)

    order = sorted(range(len(records)), key=group)
    assert list(rows.records()) == [records[i] for i in order]
    assert np.diff(at).tolist() == [sum(group(i) == g for i in order) for g in range(groups)]
    if ranked:
        ranks = given.ranks() + np.repeat(
            [1 << emission.RANK_BITS, 2 << emission.RANK_BITS], [30, 60]
        )
        assert rows.rank is not None and rows.rank.tolist() == ranks[order].tolist()
