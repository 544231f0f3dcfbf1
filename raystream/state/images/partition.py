"""What a keeper does with images: partition, recut, merge, fold. It works on columns and needs no
class of the user's."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from raystream.errors import StateError
from raystream.native.thread_priority import step_aside
from raystream.schema.columns import read_only
from raystream.schema.types import KeyRange
from raystream.state.counts import joined, part_of_counts
from raystream.state.images.image import (
    KEY,
    SLOT,
    START,
    EndedRange,
    Image,
    ImageHeader,
    InputPosition,
    decode,
    oldest_of,
)
from raystream.state.keys import key_group


def keys_of(batch: Any) -> list[Any]:
    """The key columns of rows: int64 NumPy arrays and Arrow text or bytes; Arrow integers where
    some are None."""
    columns = [batch.column(i) for i, n in enumerate(batch.schema.names) if n.startswith(KEY)]
    return [
        c.to_numpy() if pa.types.is_integer(c.type) and not c.null_count else c for c in columns
    ]


def offsets_of(batch: Any, groups: int, bounds: Iterable[int]) -> list[int]:
    """The position at which each of these key groups begins among the rows, which are in key order.

    It is found by bisection: a keeper that cuts an image hashes a few dozen keys, and needs no
    compiled code, which a fresh process would have to load first.
    """
    if not batch.num_rows:
        return [0 for _ in bounds]
    columns = keys_of(batch)

    def group(row: int) -> int:
        key = [c[row].item() if isinstance(c, np.ndarray) else c[row].as_py() for c in columns]
        return key_group(tuple(key), groups)

    rows = range(batch.num_rows)
    return [bisect_left(rows, bound, key=group) for bound in bounds]


def key_order(batch: Any, groups: int) -> tuple[np.ndarray, np.ndarray]:
    """(the positions of rows sorted by key group, key and window start, stably; where each key
    group begins among these, [groups + 1]): int64 both."""
    from raystream.state.images.image_kernels import sort_in_groups
    from raystream.state.kernels import sort_by_key

    keys = keys_of(batch)
    columns = [c if isinstance(c, np.ndarray) else _ranks(c) for c in keys]
    if START in batch.schema.names:
        columns.append(batch.column(START).to_numpy())
    nbytes = batch.num_rows * 8
    step_aside(nbytes)
    order, offsets = sort_by_key(keys, groups)
    for column in columns[::-1]:
        step_aside(nbytes)
        sort_in_groups(read_only(column), offsets, order)
    return order, offsets


def in_groups(columns: list[Any], schema: Any, groups: int) -> Any:
    """Columns as a batch whose rows are sorted by key group and key.

    Raises:
        StateError: a column is larger than 2 GB.
    """
    for name, column in zip(schema.names, columns, strict=True):
        if isinstance(column, pa.ChunkedArray):  # Arrow makes several of more than 2 GB
            raise StateError(
                f"{name.removeprefix(KEY)} of {len(column)} rows takes more than 2 GB, which is"
                " what one checkpoint holds of it at most",
                hint="Let more instances share the keys.",
            )
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    if batch.num_rows < 2:
        return batch
    return batch.take(pa.array(key_order(batch, groups)[0]))


def count_keys(batch: Any, groups: int) -> np.ndarray:
    """int64 [groups]: how many rows there are of each key group."""
    from raystream.state.kernels import key_groups

    if not batch.num_rows:
        return np.zeros(groups, np.int64)
    return np.bincount(key_groups(keys_of(batch), groups), minlength=groups)


def _ranks(column: Any) -> np.ndarray:
    """int64: numbers that are ordered as the values of an Arrow column, None first."""
    import pyarrow.compute as pc  # takes a while, and only text needs it

    encoded = column.dictionary_encode()
    rank = np.empty(len(encoded.dictionary), np.int64)
    rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
    if not encoded.indices.null_count:
        return rank[encoded.indices.to_numpy()]
    there = np.asarray(encoded.is_valid())
    found = np.full(len(encoded), -1, np.int64)
    found[there] = rank[encoded.indices.drop_null().to_numpy()]
    return found


# ---------------------------------------------------------------- partition


def partition(image: Image, ranges: Sequence[KeyRange]) -> list[Image]:
    """The parts of an image for ranges inside its own, at the same checkpoint.

    Raises:
        StateError: a range is not inside that of the image.
    """
    for keys in ranges:
        if not image.header.keys.lo <= keys.lo < keys.hi <= image.header.keys.hi:
            raise StateError(f"{image.header} has no part {keys}")
    batches = [_slices(b, image.header.groups, ranges) for b in (image.rows, image.gone)]
    return [
        Image(part_of(image.header, keys), rows, gone)
        for keys, rows, gone in zip(ranges, *batches, strict=True)
    ]


def part_of(header: ImageHeader, keys: KeyRange) -> ImageHeader:
    """The header of a part of an image: of a range inside that of the image."""
    if keys == header.keys:
        return header
    s = header.input_position
    splits = {n: at for n, at in s.splits.items() if keys.holds(at[0])}
    counts = part_of_counts(s.counts, header.keys, keys)
    return replace(header, keys=keys, input_position=replace(s, splits=splits, counts=counts))


def _slices(batch: Any, groups: int, ranges: Sequence[KeyRange]) -> list[Any]:
    if batch is None:
        return [None] * len(ranges)
    bounds = sorted({bound for keys in ranges for bound in keys})
    at = dict(zip(bounds, offsets_of(batch, groups, bounds), strict=True))
    return [batch.slice(at[keys.lo], at[keys.hi] - at[keys.lo]) for keys in ranges]


def recut(chains: Iterable[Sequence[Image]], keys: KeyRange) -> list[list[Image]]:
    """The parts of chains that belong to another range, as chains of parts of that range. Key
    groups that no chain holds are missing.

    chains: each the images that are needed of one range.
    """
    found = []
    for chain in chains:
        if part := chain[0].header.keys.common(keys):
            found.append([partition(image, [part])[0] for image in chain])
    return found


def in_ranges(parts: Sequence[Image], ranges: Sequence[KeyRange]) -> list[Image]:
    """The parts of an image, whose ranges follow each other, cut and merged to other ranges inside
    those.

    Raises:
        StateError: the parts do not belong together.
    """
    if [p.header.keys for p in parts] == list(ranges):
        return list(parts)
    found: list[list[Image]] = [[] for _ in ranges]
    for part in parts:
        inside = [(i, c) for i, r in enumerate(ranges) if (c := part.header.keys.common(r))]
        for (i, _), image in zip(inside, partition(part, [c for _, c in inside]), strict=True):
            found[i].append(image)
    return [images[0] if len(images) == 1 else merge(images) for images in found]


def by_parts(chain: Sequence[Sequence[Image]]) -> list[list[Image]]:
    """A chain of images in parts as several chains: one for each part of the first image.

    Raises:
        StateError: parts do not belong together.
    """
    ranges = [part.header.keys for part in chain[0]]
    return [list(c) for c in zip(*(in_ranges(parts, ranges) for parts in chain), strict=True)]


def recut_encoded(parts: Sequence[Any], keys: KeyRange) -> memoryview:
    """The encoded image of a range, cut from an image of which these are the encoded parts.

    Raises:
        StateError: a part is damaged, or there is no such range.
    """
    return in_ranges([decode(data) for data in parts], [keys])[0].encode()


# ---------------------------------------------------------------- merge


def merge(images: Sequence[Image]) -> Image:
    """One image of several whose ranges follow each other, of one operator, base and checkpoint.

    Raises:
        StateError: the images do not belong together.
    """
    parts = sorted(images, key=lambda i: i.header.keys.lo)
    first = parts[0].header
    for before, after in pairwise(parts):
        if before.header.keys.hi != after.header.keys.lo:
            raise StateError(f"{after.header} does not follow {before.header}: ranges must meet")
        same = replace(after.header, keys=first.keys, input_position=first.input_position)
        one, two = first.input_position, after.header.input_position
        alike = (one.watermark, one.ended) == (two.watermark, two.ended)
        if same != first or not (alike or _of_source(parts)):
            raise StateError(f"{after.header} does not belong with {first}")
    header = replace(
        first,
        keys=KeyRange(first.keys.lo, parts[-1].header.keys.hi),
        input_position=together([p.header.input_position for p in parts]),
    )
    rows = None if parts[0].rows is None else pa.concat_batches([p.rows for p in parts])
    gone = None if parts[0].gone is None else pa.concat_batches([p.gone for p in parts])
    return Image(header, rows, gone)


def _of_source(parts: Sequence[Image]) -> bool:
    """Whether the images are of a source. Each range of a source ends by itself; all ranges of an
    operator have one watermark and end together."""
    return any(p.header.input_position.splits for p in parts)


def together(positions: Sequence[InputPosition]) -> InputPosition:
    """The input position of a range that is made of ranges with these positions, in order."""
    return reduce(_together, positions)


def _together(one: InputPosition, two: InputPosition) -> InputPosition:
    """Join two positions. Where two ranges know an end from different senders, both are kept."""
    inlets: dict[int, tuple[EndedRange, ...]] = {
        edge: tuple(sorted({*one.inlets.get(edge, ()), *two.inlets.get(edge, ())}))
        for edge in {*one.inlets, *two.inlets}
    }
    return InputPosition(
        min(one.watermark, two.watermark),
        one.ended and two.ended,
        inlets,
        {**one.splits, **two.splits},
        joined(one.counts, two.counts),
        one.control or two.control,
    )


# ---------------------------------------------------------------- fold


def fold(base: Image, deltas: Sequence[Image]) -> Image:
    """The image that a base and the deltas on it make together: at the newest checkpoint, and a
    delta on the base's own base. It is full if no older images are needed.

    Raises:
        StateError: a delta was taken against another base.
    """
    images = [without_slots(i) for i in (base, *deltas)]
    base = images[0]
    for at, delta in pairwise(images):
        follows(at, delta)
    whole = oldest_of([i.header for i in images]) == base.header.checkpoint
    header = replace(images[-1].header, base=0 if whole else base.header.base, oldest=0)
    if base.rows is None or not deltas:
        return Image(header, base.rows, base.gone)
    pairs = [(i.rows, i.gone) for i in images]
    return Image(header, *fold_batches(pairs, header.groups, whole=whole))


def fold_batches(pairs: Sequence[tuple[Any, Any]], groups: int, *, whole: bool) -> tuple[Any, Any]:
    """What changes make together: (rows, keys of removed rows), in key order both.

    Args:
        pairs: rows and keys of removed rows, the oldest first, in any order each.
        whole: whether nothing is older: then no removal has to be said.
    """
    events = [b for rows, gone in pairs for b in (gone, rows)]
    columns = pairs[0][1].schema.names
    keys = pa.concat_batches([b.select(columns) for b in events])
    lasting = _last_of_each(keys, groups)
    removal = np.concatenate([np.full(b.num_rows, i % 2 == 0) for i, b in enumerate(events)])
    number = np.cumsum(~removal) - 1
    live = lasting[~removal[lasting]]
    rows = pa.concat_batches([rows for rows, _ in pairs]).take(pa.array(number[live]))
    gone = keys.take(pa.array([] if whole else lasting[removal[lasting]], pa.int64()))
    return rows, gone


def without_slots(image: Image) -> Image:
    """An image that names no slots."""
    if not image.header.table:
        return image
    rows, gone = (b.drop_columns([SLOT]) for b in (image.rows, image.gone))
    return Image(replace(image.header, table=""), rows, gone)


def follows(base: Image, delta: Image) -> None:
    """Check that a delta was taken against this very image.

    Raises:
        StateError: it was not.
    """
    one, two = base.header, delta.header
    if (one.operator, one.keys, one.groups, one.shape) != (
        two.operator,
        two.keys,
        two.groups,
        two.shape,
    ) or not two.base == one.checkpoint < two.checkpoint:
        raise StateError(
            f"the {two} does not apply to the {one}",
            hint="A delta applies to exactly the base that it names. Take a full image instead.",
        )


def _last_of_each(keys: Any, groups: int) -> np.ndarray:
    """int64: for each distinct key the position where it comes last, in key order."""
    order, _ = key_order(keys, groups)
    columns = [c if isinstance(c, np.ndarray) else _ranks(c) for c in keys_of(keys)]
    if START in keys.schema.names:
        columns.append(keys.column(START).to_numpy())
    changes = np.zeros(max(len(order) - 1, 0), bool)
    for column in columns:
        in_order = column[order]
        changes |= in_order[1:] != in_order[:-1]
    return order[np.append(changes, True)[: len(order)]]
