"""Canonical order: the one order in which an instance sees the records of an epoch.

Records are ordered by key group; within one by the `order_by` field where declared; then by
producer (the order of the types in the operator's annotation); then in the producer's own canonical
order. Several edges of *one* producer are merged in the order of emission, which travels as a
hidden rank: the producer's key group and the running number of emission within it. So the order
does not depend on how producers or consumers are cut into instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from raystream.dataflow.pieces import Piece
from raystream.dataflow.plan import Edge, Vertex
from raystream.schema.blocks import Input, sizes
from raystream.schema.columns import Columns, concat, empty
from raystream.schema.records import RecordSchema
from raystream.schema.types import KeyRange

RANK_BITS = 40
"""A rank is `key group << RANK_BITS | number`: more than 10^12 records a key group and epoch."""


@dataclass(frozen=True, slots=True)
class Feed:
    """The edges of one producer into one consumer; ranked when there are several."""

    edges: tuple[Edge, ...]

    @property
    def ranked(self) -> bool:
        return self.edges[0].ranked


def feeds_of(vertex: Vertex, *, to_all: bool = False) -> list[Feed]:
    """The feeds of a vertex in canonical order: by the first of their types, then by producer.

    Args:
        to_all: those of its control stream.
    """
    by_producer: dict[int, list[Edge]] = {}
    for edge in vertex.inputs:
        if edge.to_all == to_all:
            by_producer.setdefault(edge.producer, []).append(edge)
    return [
        Feed(tuple(edges))
        for edges in sorted(
            by_producer.values(), key=lambda es: (min(e.type for e in es), es[0].producer)
        )
    ]


@dataclass(slots=True)
class _Run:
    """Records in canonical order, except for key group and `order_by`."""

    type: np.ndarray | int
    """The input type of each record, or of all."""
    where: np.ndarray
    """The row of each record among those of its type."""
    group: np.ndarray
    """The key group of each record."""
    rank: np.ndarray | None
    """The rank of each record, on ranked edges."""


def warm() -> None:
    """Load the code that merges pieces."""
    from raystream.state.kernels import sort_by_group

    sort_by_group(np.zeros(0, np.int64), 1)


def assemble(
    feeds: Sequence[Feed],
    pieces: dict[int, list[Piece]],
    schemas: Sequence[RecordSchema],
    keys: KeyRange,
    order_by: str | None,
) -> Input:
    """Bring the pieces of one epoch (by edge id, tiling) into canonical order.

    Args:
        schemas: of the classes that the records are to have.
    """
    return _assembled(feeds, pieces, schemas, keys, order_by).typed(schemas)


def _assembled(
    feeds: Sequence[Feed],
    pieces: dict[int, list[Piece]],
    schemas: Sequence[RecordSchema],
    keys: KeyRange,
    order_by: str | None,
) -> Input:
    if order_by is None and len(pieces) == len(schemas) == 1:
        (came,) = pieces.values()
        if len(came) == 1 and came[0].rows.length:  # the usual case where epochs are small
            return Input((came[0].rows,), None, None, came[0].offsets, keys.lo)
    full = [(e, p) for f in feeds for e in f.edges for p in pieces[e.id] if p.rows.length]
    if not full:
        return Input(
            tuple(map(empty, schemas)), None, None, np.zeros(len(keys) + 1, np.int64), keys.lo
        )
    edge, found = full[0][0], [p for _, p in full]
    if len(full) == 1 or (all(e is edge for e, _ in full) and _follow(found)):
        rows, offsets = concat([p.rows for p in found]), found[0].offsets
        for piece in found[1:]:
            offsets = offsets + piece.offsets
        if order_by is None or _ascends(rows.column(order_by), offsets):
            if len(schemas) == 1:
                return Input((rows,), None, None, offsets, keys.lo)
            columns = tuple(rows if t == edge.type else empty(s) for t, s in enumerate(schemas))
            which = np.full(len(rows), edge.type, np.uint8)
            return Input(columns, which, None, offsets, keys.lo)
    return _merge(feeds, pieces, schemas, keys, order_by)


def _follow(pieces: Sequence[Piece]) -> bool:
    """Whether each piece only has key groups after those of the piece before it, as where consumers
    keep the key groups of their producers."""
    last = 0
    for piece in pieces if len(pieces) > 1 else ():
        first = int(piece.offsets.searchsorted(0, "right")) - 1
        if first < last:
            return False
        last = int(piece.offsets.searchsorted(len(piece.rows))) - 1
    return True


def _ascends(column: np.ndarray, offsets: np.ndarray) -> bool:
    """Whether a column never falls inside a key group."""
    falls = (column[1:] < column[:-1]).nonzero()[0] + 1
    return not len(falls) or bool((offsets[offsets.searchsorted(falls)] == falls).all())


def _merge(
    feeds: Sequence[Feed],
    pieces: dict[int, list[Piece]],
    schemas: Sequence[RecordSchema],
    keys: KeyRange,
    order_by: str | None,
) -> Input:
    from raystream.state.kernels import sort_by_group

    parts: list[list[Columns]] = [[] for _ in schemas]
    lengths = [0] * len(schemas)
    runs: list[_Run] = []
    groups = len(keys)
    for feed in feeds:
        of_feed = []
        for edge in feed.edges:
            for piece in pieces[edge.id]:
                n = len(piece.rows)
                if n:
                    groups = len(piece.offsets) - 1  # several epochs have their own key groups
                    at = lengths[edge.type]
                    of_feed.append(
                        _Run(edge.type, np.arange(at, at + n), _groups(piece), piece.rows.rank)
                    )
                    parts[edge.type].append(piece.rows.ranked(None))  # others may have none
                    lengths[edge.type] = at + n
        if of_feed:
            runs.append(_in_order_of_emission(of_feed) if feed.ranked else _chain(of_feed))
    run = _chain(runs)
    columns = tuple(concat(ps) if ps else empty(s) for ps, s in zip(parts, schemas, strict=True))
    sort_key, buckets = run.group, groups
    if order_by is not None:
        sort_key, buckets = _by_time(run, columns, order_by, groups)
    if buckets <= 4 * len(run.where) + (1 << 16):
        order, _ = sort_by_group(sort_key, buckets)
    else:
        order = np.argsort(sort_key, kind="stable")
    offsets = np.zeros(groups + 1, np.int64)
    np.bincount(run.group, minlength=groups).cumsum(out=offsets[1:])
    which = None if len(schemas) == 1 else _types(run)[order]
    return Input(columns, which, run.where[order], offsets, keys.lo)


def _groups(piece: Piece) -> np.ndarray:
    """int64: the key group of each record, from the start of the consumer's range."""
    return np.arange(len(piece.offsets) - 1).repeat(sizes(piece.offsets))


def _types(run: _Run) -> np.ndarray:
    if isinstance(run.type, int):
        return np.full(len(run.where), run.type, np.uint8)
    return run.type


def _chain(runs: list[_Run]) -> _Run:
    if len(runs) == 1:
        return runs[0]
    same = all(isinstance(r.type, int) and r.type == runs[0].type for r in runs)
    return _Run(
        runs[0].type if same else np.concatenate([_types(r) for r in runs]),
        np.concatenate([r.where for r in runs]),
        np.concatenate([r.group for r in runs]),
        None,
    )


def _in_order_of_emission(runs: list[_Run]) -> _Run:
    ranks = np.concatenate([r.rank for r in runs if r.rank is not None])
    order = np.argsort(ranks, kind="stable")
    run = _chain(runs)
    kind = run.type if isinstance(run.type, int) else run.type[order]
    return _Run(kind, run.where[order], run.group[order], None)


def _by_time(
    run: _Run, columns: tuple[Columns, ...], order_by: str, groups: int
) -> tuple[np.ndarray, int]:
    """The sort key (key group, order_by) as one integer, and how many values it can take."""
    times = np.empty(len(run.where), np.int64)
    kinds = _types(run)
    for t, rows in enumerate(columns):
        mine = kinds == t
        if len(rows):
            times[mine] = rows.column(order_by)[run.where[mine]]
    least, most = int(times.min()), int(times.max())
    span = most - least + 1
    if span == 1:
        return run.group, groups
    if span * groups < 1 << 62:
        return run.group * span + (times - least), groups * span
    ranked = np.unique(times, return_inverse=True)[1].astype(np.int64)
    span = int(ranked.max()) + 1
    return run.group * span + ranked, groups * span
