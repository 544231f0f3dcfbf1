"""What an instance emits in an epoch: its phases, its fused operators, cut for its edges.

An operator emits in two phases, records first and then windows and timers; its canonical output has
both phases of a key group before the next key group. Within a key group the *rank* of a row is its
running number of emission over all types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import pyarrow as pa

from raystream.dataflow.order import RANK_BITS
from raystream.dataflow.plan import Edge
from raystream.schema.blocks import Emitted, Input, Output, sizes
from raystream.schema.columns import Columns, concat, empty
from raystream.schema.records import RecordSchema
from raystream.schema.types import KeyRange

MANY = 1 << 15
"""This many rows of some columns are more than the nearest caches hold."""


@dataclass(slots=True)
class Emission:
    """Rows of one port in canonical order."""

    rows: Columns
    offsets: np.ndarray
    """int64 [R + 1]: where the rows of each key group of the producing range begin."""
    rank: np.ndarray | None
    """int64 [n]: the running number of emission within the key group. None where there is only one
    type, so that it is the number of the row."""

    def ranks(self) -> np.ndarray:
        if self.rank is not None:
            return self.rank
        return np.arange(len(self.rows)) - self.offsets[:-1].repeat(sizes(self.offsets))


def nothing(schema: RecordSchema, groups: int) -> Emission:
    """An emission without rows from a range of `groups` key groups."""
    return Emission(empty(schema), np.zeros(groups + 1, np.int64), None)


def one_of(e: Emission, i: int, groups: int) -> Emission:
    """What was emitted in one of several epochs. groups: how many key groups an epoch has."""
    offsets = e.offsets[i * groups : (i + 1) * groups + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    rank = None if e.rank is None else e.rank[first:last]
    return Emission(e.rows.slice(first, last), offsets - first, rank)


def of_several(epochs: Sequence[Sequence[Emission]]) -> list[Emission]:
    """What was emitted in several epochs, each given as its ports, as one emission a port: the
    other way round than `one_of`."""
    return [_following(emitted) for emitted in zip(*epochs, strict=True)]


def _following(parts: Sequence[Emission]) -> Emission:
    begins = np.cumsum([0, *(e.rows.length for e in parts)])
    offsets = [e.offsets[1:] + begin for e, begin in zip(parts, begins.tolist(), strict=False)]
    ranked = any(e.rank is not None for e in parts)
    rank = np.concatenate([e.ranks() for e in parts]) if ranked else None
    return Emission(concat([e.rows for e in parts]), np.concatenate([begins[:1], *offsets]), rank)


def emissions(output: Output) -> list[Emission]:
    """The emissions of one phase: running numbers become numbers within the key group."""
    many = len(output.emitted) > 1
    if not many:
        return [Emission(e.rows, e.offsets, None) for e in output.emitted]
    before = _sum([e.offsets for e in output.emitted])
    return [Emission(e.rows, e.offsets, _within(e, before)) for e in output.emitted]


def _sum(arrays: list[np.ndarray]) -> np.ndarray:
    return reduce(np.add, arrays)


def _within(e: Emitted, before: np.ndarray) -> np.ndarray:
    assert e.rank is not None
    return e.rank - before[:-1].repeat(sizes(e.offsets))


def two_phases(first: list[Emission], second: list[Emission]) -> list[Emission]:
    """For each key group the rows of the first phase, then those of the second."""
    if not any(len(e.rows) for e in second):
        return first
    if not any(len(e.rows) for e in first):
        return second
    counts = _sum([sizes(e.offsets) for e in first])
    return [_interleave(a, b, counts) for a, b in zip(first, second, strict=True)]


def _interleave(a: Emission, b: Emission, counts: np.ndarray) -> Emission:
    """`counts`: how many rows of any type each key group emitted in the first phase."""
    rank_b = b.ranks() + counts.repeat(sizes(b.offsets))
    group_a = np.arange(len(a.offsets) - 1).repeat(sizes(a.offsets))
    group_b = np.arange(len(b.offsets) - 1).repeat(sizes(b.offsets))
    order = np.argsort(np.concatenate([group_a, group_b]), kind="stable")
    rows = (
        concat([a.rows, b.rows])
        if len(a.rows) and len(b.rows)
        else (a.rows if len(a.rows) else b.rows)
    )
    return Emission(
        rows.take(order), a.offsets + b.offsets, np.concatenate([a.ranks(), rank_b])[order]
    )


def late_emission(
    late: np.ndarray | None, given: Input, kind: int, schema: RecordSchema
) -> Emission:
    """The records of one input type that were late, as an emission of their own port."""
    if late is None or not len(late):
        return nothing(schema, len(given.offsets) - 1)
    mine = late if given.which is None else late[given.which[late] == kind]
    rows = given.columns[kind].take(mine if given.where is None else given.where[mine])
    offsets = np.searchsorted(mine, given.offsets)
    number = mine - given.offsets[np.searchsorted(given.offsets, mine, side="right") - 1]
    return Emission(rows, offsets.astype(np.int64), number)


def fuse_input(
    ports: Sequence[Sequence[Emission]], schemas: Sequence[RecordSchema]
) -> tuple[Input, list[Emission]]:
    """The input of a fused operator, in order of emission; `ports`: per input type what feeds it.

    Also returns one emission without rows that says, per record of the input, where it comes from:
    its offsets and ranks are what the operator's output inherits.
    """
    full = [(t, e) for t, es in enumerate(ports) for e in es if len(e.rows)]
    groups = len(next(e for es in ports for e in es).offsets) - 1
    if len(full) == 1 and len(schemas) == 1:
        e = full[0][1]
        given = Input((e.rows,), None, None, np.array([0, len(e.rows)]), 0)
        return given, [e]
    columns = tuple(
        concat([e.rows for e in es]) if es else empty(s)
        for es, s in zip(ports, schemas, strict=True)
    )
    if not full:
        return Input(columns, None, None, np.zeros(2, np.int64), 0), [nothing(schemas[0], groups)]
    which, where, group, rank = [], [], [], []
    at = [0] * len(schemas)
    for t, e in full:
        n = len(e.rows)
        which.append(np.full(n, t, np.uint8))
        where.append(np.arange(at[t], at[t] + n))
        at[t] += n
        group.append(np.arange(groups).repeat(sizes(e.offsets)))
        rank.append(e.ranks())
    ranks = np.concatenate(rank)
    order = np.lexsort((ranks, np.concatenate(group)))
    offsets = _sum([e.offsets for _, e in full])
    total = len(order)
    given = Input(
        columns,
        None if len(schemas) == 1 else np.concatenate(which)[order],
        np.concatenate(where)[order],
        np.array([0, total]),
        0,
    )
    return given, [Emission(empty(schemas[0]), offsets, ranks[order])]


def inherit(ports: list[Emission], output: Output, source: Emission) -> list[Emission]:
    """All ports, with the emissions of a fused operator: key groups and ranks of the records they
    come from. What it emits of several types for a record keeps its order, so there the ranks of
    all ports make room."""
    made = [_inherited(e, source) for e in output.emitted]
    if not _of_several_types(output, int(source.offsets[-1])):
        return [*ports, *made]
    number = np.concatenate([e.rank for e in output.emitted if e.rank is not None])
    order = np.argsort(number)
    places, first, counts = np.unique(
        np.concatenate([_places(e) for e in made])[order], return_index=True, return_counts=True
    )
    room = np.concatenate([[0], np.cumsum(counts - 1)])
    nth = np.empty(len(order), np.int64)
    nth[order] = np.arange(len(order)) - first.repeat(counts)
    ends = np.cumsum([len(e.rows) for e in made])
    return [
        *(_shifted(e, places, room) for e in ports),
        *(
            Emission(e.rows, e.offsets, _shifted(e, places, room).ranks() + of_type)
            for e, of_type in zip(made, np.split(nth, ends[:-1]), strict=True)
        ),
    ]


def _of_several_types(output: Output, records: int) -> bool:
    """Whether rows of more than one type were emitted for one of the records."""
    if len(output.emitted) < 2:
        return False
    seen = np.zeros(records, bool)
    for e in output.emitted:
        origin = slice(None) if e.origin is None else e.origin
        if seen[origin].any():
            return True
        seen[origin] = True
    return False


def _inherited(e: Emitted, source: Emission) -> Emission:
    if e.origin is None:
        return Emission(e.rows, source.offsets, source.rank)
    offsets = e.origin.searchsorted(source.offsets).astype(np.int64)
    return Emission(e.rows, offsets, source.ranks()[e.origin])


def _places(e: Emission) -> np.ndarray:
    """int64: key group and rank of each row."""
    group = np.arange(len(e.offsets) - 1).repeat(sizes(e.offsets))
    return (group << RANK_BITS) | e.ranks()


def _shifted(e: Emission, places: np.ndarray, room: np.ndarray) -> Emission:
    """An emission whose ranks leave room after those at `places`. room: how much before each, and
    in all."""
    mine = _places(e)
    begins = mine >> RANK_BITS << RANK_BITS
    by = room[places.searchsorted(mine)] - room[places.searchsorted(begins)]
    return Emission(e.rows, e.offsets, e.ranks() + by)


@lru_cache(maxsize=256)
def warm(edge: Edge) -> None:
    """Load the functions that cut an edge's rows, so that no epoch waits for them."""
    if edge.key is not None:
        none = empty(edge.schema).ranked(np.zeros(0, np.int64) if edge.ranked else None)
        for by_key in (_few_by_key, _many_by_key):
            by_key(none, [none.key(k) for k in edge.key], 1)


def cut_for(edge: Edge, e: Emission, keys: KeyRange, groups: int) -> tuple[Columns, np.ndarray]:
    """The rows sorted by the consumer's key group, and all offsets (int64 [groups + 1])."""
    rows = e.rows
    if edge.ranked:
        base = np.arange(keys.lo, keys.hi).repeat(sizes(e.offsets)).astype(np.int64)
        rows = rows.ranked((base << RANK_BITS) | e.ranks())
    if edge.key is None and len(e.offsets) > groups:  # the range is all key groups
        return rows, e.offsets
    if edge.key is None:
        offsets = np.empty(groups + 1, np.int64)
        offsets[: keys.lo] = 0
        offsets[keys.lo : keys.hi + 1] = e.offsets
        offsets[keys.hi + 1 :] = e.offsets[-1]
        return rows, offsets
    if not rows.length:
        return rows, np.zeros(groups + 1, np.int64)
    if len(e.offsets) > len(keys) + 1:
        return _several_by_key(
            rows, e.offsets[:: len(keys)], [rows.key(k) for k in edge.key], groups
        )
    by_key = _few_by_key if rows.length < MANY else _many_by_key
    return by_key(rows, [rows.key(k) for k in edge.key], groups)


def _several_by_key(
    rows: Columns, begins: np.ndarray, key: list[Any], groups: int
) -> tuple[Columns, np.ndarray]:
    """Sort the rows of several epochs, which stay apart. begins: where each epoch begins, and the
    end."""
    from raystream.state import kernels

    epochs = len(begins) - 1
    of_epoch = np.arange(epochs).repeat(sizes(begins)) * groups
    order, offsets = kernels.sort_by_group(
        of_epoch + kernels.key_groups(key, groups), epochs * groups
    )
    return rows.take(order), offsets


def _few_by_key(rows: Columns, key: list[Any], groups: int) -> tuple[Columns, np.ndarray]:
    from raystream.state import kernels

    order, offsets = kernels.sort_by_key(key, groups)
    return rows if rows.length == 1 else rows.take(order), offsets


def _many_by_key(rows: Columns, key: list[Any], groups: int) -> tuple[Columns, np.ndarray]:
    """Sort the rows of many columns. To put a column at its places reads it as it lies, and writes
    at the ends of the key groups, which are in the cache. To take it in order goes through all of
    it for each key group."""
    from raystream.state import kernels

    places, offsets = kernels.places_by_key(key, groups)
    order = None
    arrays = []
    for array in rows.arrays:
        if isinstance(array, np.ndarray):
            arrays.append(kernels.placed(places, array))
            continue
        if order is None:
            order = pa.array(kernels.placed(places, np.arange(len(rows))))
        arrays.append(array.take(order))
    rank = None if rows.rank is None else kernels.placed(places, rows.rank)
    return Columns(rows.schema, arrays, len(rows), rank), offsets
