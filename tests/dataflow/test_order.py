"""Canonical order: what `assemble` makes of pieces against a plain sort of all records."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.dataflow.logic.interpreted import in_order
from raystream.dataflow.order import RANK_BITS, Feed, assemble
from raystream.dataflow.pieces import Header, Piece
from raystream.dataflow.plan import Edge
from raystream.schema.blocks import Input
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import KeyRange
from raystream.state.keys import key_group
from raystream.testing.collect import Collect
from tests.examples import examples

GROUPS = 8


class A(NamedTuple):
    key: int
    time: rs.Int32
    id: int


class B(NamedTuple):
    time: int
    key: rs.Int8
    id: int


SCHEMAS = (record_schema(A), record_schema(B))


class Sent(NamedTuple):
    """A record, with the edge that it travels on and where its producer emitted it."""

    edge: int
    group: int
    number: int
    record: Any


def graph(rng: random.Random) -> list[Feed]:
    """Some producers, with one or several edges each."""
    feeds, edges = [], 0
    for producer in range(rng.randrange(1, 4)):
        n = rng.choice([1, 1, 2, 3])
        kinds = [rng.randrange(2) for _ in range(n)]
        feeds.append(
            Feed(
                tuple(
                    Edge(
                        id=edges + i,
                        producer=producer,
                        port=i,
                        consumer=9,
                        type=t,
                        schema=SCHEMAS[t],
                        key=("key",),
                        ranked=n > 1,
                    )
                    for i, t in enumerate(kinds)
                )
            )
        )
        edges += n
    return feeds


def emitted(feed: Feed, rng: random.Random, times: int) -> list[Sent]:
    """What one producer emits in an epoch, in its canonical order."""
    out = []
    for group in range(GROUPS):
        for number in range(rng.choice([0, 0, 1, 5])):
            edge = rng.choice(feed.edges)
            values = {
                "key": rng.randrange(6),
                "time": rng.randrange(times),
                "id": rng.getrandbits(30),
            }
            out.append(Sent(edge.id, group, number, edge.schema.cls(**values)))
    return out


def cut(groups: int, rng: random.Random) -> list[KeyRange]:
    bounds = sorted({0, groups, *(rng.randrange(groups) for _ in range(rng.randrange(4)))})
    return [KeyRange(lo, hi) for lo, hi in pairwise(bounds)]


def pieces_of(
    feed: Feed, sent: list[Sent], keys: KeyRange, producers: list[KeyRange]
) -> dict[int, Any]:
    """What a consumer range gets: per edge one piece of each producer range."""
    out: dict[int, list[Piece]] = {}
    for edge in feed.edges:
        for source in producers:
            mine = [
                (key_group(s.record.key, GROUPS), s)
                for s in sent
                if s.edge == edge.id and source.lo <= s.group < source.hi
            ]
            mine = sorted((m for m in mine if keys.lo <= m[0] < keys.hi), key=lambda m: m[0])
            rows = from_records(edge.schema, [s.record for _, s in mine])
            if edge.ranked:
                rows = rows.ranked(
                    np.array([s.group << RANK_BITS | s.number for _, s in mine], np.int64)
                )
            offsets = np.searchsorted([g for g, _ in mine], np.arange(keys.lo, keys.hi + 1))
            out.setdefault(edge.id, []).append(Piece(Header(1, source, 0), rows, offsets))
    return out


def shown(given_input: Input) -> list[list[Any]]:
    """The records per key group."""
    records = in_order(given_input)
    return [
        records[lo:hi] for lo, hi in zip(given_input.offsets, given_input.offsets[1:], strict=False)
    ]


@examples(150)
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([1, 2, 1000]))
def test_assemble_is_a_plain_sort(seed: int, ordered: bool, times: int) -> None:
    rng = random.Random(seed)
    feeds = graph(rng)
    sent = [emitted(f, rng, times) for f in feeds]
    lo = rng.randrange(GROUPS)
    keys = KeyRange(lo, rng.randrange(lo + 1, GROUPS + 1))
    producers = [cut(GROUPS, rng) for _ in feeds]
    pieces = {
        e: p
        for f, s, cuts in zip(feeds, sent, producers, strict=True)
        for e, p in pieces_of(f, s, keys, cuts).items()
    }

    found = assemble(feeds, pieces, SCHEMAS, keys, "time" if ordered else None)

    plain = [s.record for of_feed in sent for s in of_feed]
    if ordered:
        plain.sort(key=lambda r: r.time)
    expected = [
        [r for r in plain if key_group(r.key, GROUPS) == g] for g in range(keys.lo, keys.hi)
    ]
    assert shown(found) == expected
    assert [[type(r) for r in g] for g in shown(found)] == [[type(r) for r in g] for g in expected]
    assert found.lo == keys.lo and len(found) == sum(map(len, expected))


def test_times_far_apart_are_ordered_too() -> None:
    edge = Edge(
        id=0, producer=0, port=0, consumer=9, type=1, schema=SCHEMAS[1], key=("key",), ranked=False
    )
    times = [2**62, -(2**62), 5, -(2**63), 2**63 - 1, 5]
    rows = from_records(SCHEMAS[1], [B(t, 1, i) for i, t in enumerate(times)])
    group = key_group(1, GROUPS)
    piece = Piece(
        Header(1, KeyRange(0, GROUPS), 0),
        rows,
        np.array([0] * (group + 1) + [6] * (GROUPS - group)),
    )
    found = assemble([Feed((edge,))], {0: [piece]}, SCHEMAS, KeyRange(0, GROUPS), "time")
    assert [r.id for r in in_order(found)] == [3, 1, 2, 5, 0, 4]


@examples(100)
@given(st.integers(0, 2**32), st.booleans())
def test_pieces_of_ranges_that_follow_each_other_are_put_end_to_end(
    seed: int, ordered: bool
) -> None:
    """An edge without a key keeps the key groups of its producers; no row is put anywhere else."""
    rng = random.Random(seed)
    edge = Edge(
        id=0, producer=0, port=0, consumer=9, type=0, schema=SCHEMAS[0], key=None, ranked=False
    )
    pieces, records, counts = [], [], [0]
    for source in cut(GROUPS, rng):
        mine: list[A] = []
        offsets = [0] * (source.lo + 1)
        for _ in range(*source):
            for _ in range(rng.choice([0, 1, 3])):
                mine.append(A(rng.randrange(6), len(records) + len(mine), rng.getrandbits(30)))
            offsets.append(len(mine))
            counts.append(len(records) + len(mine))
        offsets += [len(mine)] * (GROUPS - source.hi)
        rows = from_records(SCHEMAS[0], mine)
        pieces.append(Piece(Header(1, source, 0), rows, np.array(offsets)))
        records += mine

    keys = KeyRange(0, GROUPS)
    found = assemble([Feed((edge,))], {0: pieces}, SCHEMAS[:1], keys, "time" if ordered else None)

    assert in_order(found) == records and found.offsets.tolist() == counts
    assert found.where is None and found.which is None


class Hit(NamedTuple):
    time: int
    key: int


class Seen(rs.State):
    n: int = 0


@rs.operator()
def same(hit: Hit) -> Iterator[Hit]:
    yield hit


@rs.operator(key="key", window=rs.tumbling(seconds=1))
class Hits:
    def process(self, hit: Hit, seen: Seen) -> None:
        seen.n += 1

    def close(self, key: int, window: rs.Window, seen: Seen) -> Iterator[Hit]:
        yield Hit(key, seen.n)


@pytest.mark.parametrize("late", [False, True])
def test_a_source_twice_and_another_one_together(late: bool) -> None:
    """The edges of the first have ranks, that of the other has none; late records neither."""
    flow, found, rows = rs.Flow("union"), Collect(), [Hit(0, 1), Hit(5, 1), Hit(0, 1)]
    epochs = rs.by_time(seconds=1)
    one, other = (
        flow.source(rs.io.iterable(rows, Hit), epochs=epochs, name=name) for name in ("a", "b")
    )
    together = one | one.through(same) | other
    if late:
        counted, missed = together.through(Hits(), late=True)
        counted.to(Collect())
        missed.to(found)
    else:
        together.to(found)
    flow.run()
    assert sorted(found.records()) == ([Hit(0, 1)] * 3 if late else sorted(rows * 3))
