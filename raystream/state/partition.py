"""What a keeper does with images: partition, recut, merge, fold. It knows columns, not users'
classes."""

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
from raystream.schema.columns import read_only
from raystream.schema.types import KeyRange
from raystream.state.counts import joined, part_of_counts
from raystream.state.image import (
    KEY,
    SLOT,
    START,
    Ended,
    Image,
    ImageHeader,
    Standing,
    decode,
    oldest_of,
)
from raystream.state.keys import common, key_group
from raystream.state.priority import step_aside


def keys_of(batch: Any) -> list[Any]:
    """The key columns of rows: int64 NumPy arrays and Arrow text or bytes."""
    columns = [batch.column(i) for i, n in enumerate(batch.schema.names) if n.startswith(KEY)]
    return [c.to_numpy() if pa.types.is_integer(c.type) else c for c in columns]


def offsets_of(batch: Any, groups: int, bounds: Iterable[int]) -> list[int]:
    """Before how many rows, which are in key order, each of these key groups begins.

    By halving: a keeper that cuts an image hashes some dozens of keys, and needs no compiled code,
    which a fresh process would have to load first.
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
    """int64 both: the positions of rows by key group, key and window start, stable; and where each
    key group begins among these, [groups + 1]."""
    from raystream.state.image_kernels import sort_in_groups
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


def count_keys(batch: Any, groups: int) -> np.ndarray:
    """int64 [groups]: how many rows there are of each key group."""
    from raystream.state.kernels import key_groups

    if not batch.num_rows:
        return np.zeros(groups, np.int64)
    return np.bincount(key_groups(keys_of(batch), groups), minlength=groups)


def _ranks(column: Any) -> np.ndarray:
    """int64: numbers that are ordered as the text (or bytes) of a column."""
    import pyarrow.compute as pc  # takes a while, and only text needs it

    encoded = column.dictionary_encode()
    rank = np.empty(len(encoded.dictionary), np.int64)
    rank[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(rank))
    return rank[encoded.indices.to_numpy()]


# ---------------------------------------------------------------- partition


def partition(image: Image, ranges: Sequence[KeyRange]) -> list[Image]:
    """The parts of an image for ranges inside its own, at the same cut.

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
    """The header of the part of an image for a range inside its own."""
    if keys == header.keys:
        return header
    s = header.standing
    splits = {n: at for n, at in s.splits.items() if keys.lo <= at[0] < keys.hi}
    counts = part_of_counts(s.counts, header.keys, keys)
    return replace(header, keys=keys, standing=replace(s, splits=splits, counts=counts))


def _slices(batch: Any, groups: int, ranges: Sequence[KeyRange]) -> list[Any]:
    if batch is None:
        return [None] * len(ranges)
    bounds = sorted({bound for keys in ranges for bound in keys})
    at = dict(zip(bounds, offsets_of(batch, groups, bounds), strict=True))
    return [batch.slice(at[keys.lo], at[keys.hi] - at[keys.lo]) for keys in ranges]


def recut(chains: Iterable[Sequence[Image]], keys: KeyRange) -> list[list[Image]]:
    """What chains (each the images that are needed, of one range) hold of another range: the
    chains of its parts. Where nobody holds a part there is none."""
    found = []
    for chain in chains:
        if part := common(chain[0].header.keys, keys):
            found.append([partition(image, [part])[0] for image in chain])
    return found


def in_ranges(parts: Sequence[Image], ranges: Sequence[KeyRange]) -> list[Image]:
    """Parts of an image, whose ranges follow each other, cut and merged to other ranges in these.

    Raises:
        StateError: they do not belong together.
    """
    if [p.header.keys for p in parts] == list(ranges):
        return list(parts)
    found: list[list[Image]] = [[] for _ in ranges]
    for part in parts:
        inside = [(i, c) for i, r in enumerate(ranges) if (c := common(part.header.keys, r))]
        for (i, _), image in zip(inside, partition(part, [c for _, c in inside]), strict=True):
            found[i].append(image)
    return [images[0] if len(images) == 1 else merge(images) for images in found]


def by_parts(chain: Sequence[Sequence[Image]]) -> list[list[Image]]:
    """Chains that together are a chain of images in parts: one for each part of the first image.

    Raises:
        StateError: parts do not belong together.
    """
    ranges = [part.header.keys for part in chain[0]]
    return [list(c) for c in zip(*(in_ranges(parts, ranges) for parts in chain), strict=True)]


def recut_encoded(parts: Sequence[Any], keys: KeyRange) -> memoryview:
    """The encoded image of a range inside that of an image of which these are the encoded parts.

    Raises:
        StateError: a part is damaged, or there is no such range.
    """
    return in_ranges([decode(data) for data in parts], [keys])[0].encode()


# ---------------------------------------------------------------- merge


def merge(images: Sequence[Image]) -> Image:
    """One image of several whose ranges follow each other, of one operator, base and cut.

    Raises:
        StateError: they do not belong together.
    """
    parts = sorted(images, key=lambda i: i.header.keys.lo)
    first = parts[0].header
    for before, after in pairwise(parts):
        if before.header.keys.hi != after.header.keys.lo:
            raise StateError(f"{after.header} does not follow {before.header}: ranges must meet")
        same = replace(after.header, keys=first.keys, standing=first.standing)
        one, two = first.standing, after.header.standing
        alike = (one.watermark, one.ended) == (two.watermark, two.ended)
        if same != first or not (alike or _of_source(parts)):
            raise StateError(f"{after.header} does not belong with {first}")
    header = replace(
        first,
        keys=KeyRange(first.keys.lo, parts[-1].header.keys.hi),
        standing=together([p.header.standing for p in parts]),
    )
    rows = None if parts[0].rows is None else pa.concat_batches([p.rows for p in parts])
    gone = None if parts[0].gone is None else pa.concat_batches([p.gone for p in parts])
    return Image(header, rows, gone)


def _of_source(parts: Sequence[Image]) -> bool:
    """Ranges of a source end each for itself; those of an operator stand where the others do."""
    return any(p.header.standing.splits for p in parts)


def together(standings: Sequence[Standing]) -> Standing:
    """Where an instance stands whose range is made of these, each of which follows the last."""
    return reduce(_together, standings)


def _together(one: Standing, two: Standing) -> Standing:
    """Two ranges may have heard of an end from different senders: both are true."""
    inlets: dict[int, tuple[Ended, ...]] = {
        edge: tuple(sorted({*one.inlets.get(edge, ()), *two.inlets.get(edge, ())}))
        for edge in {*one.inlets, *two.inlets}
    }
    return Standing(
        min(one.watermark, two.watermark),
        one.ended and two.ended,
        inlets,
        {**one.splits, **two.splits},
        joined(one.counts, two.counts),
    )


# ---------------------------------------------------------------- fold


def fold(base: Image, deltas: Sequence[Image]) -> Image:
    """The image that a base and the deltas since it make: at the newest cut, since the base's base;
    a full one where no older ones are needed.

    Raises:
        StateError: a delta was taken against another base.
    """
    images = [without_slots(i) for i in (base, *deltas)]
    base = images[0]
    for at, delta in pairwise(images):
        follows(at, delta)
    whole = oldest_of([i.header for i in images]) == base.header.cut
    header = replace(images[-1].header, base=0 if whole else base.header.base, oldest=0)
    if base.rows is None or not deltas:
        return Image(header, base.rows, base.gone)
    events = [b for i in images for b in (i.gone, i.rows)]
    columns = base.gone.schema.names
    keys = pa.concat_batches([b.select(columns) for b in events])
    lasting = _last_of_each(keys, header.groups)
    removal = np.concatenate([np.full(b.num_rows, i % 2 == 0) for i, b in enumerate(events)])
    number = np.cumsum(~removal) - 1
    live = lasting[~removal[lasting]]
    rows = pa.concat_batches([i.rows for i in images]).take(pa.array(number[live]))
    gone = keys.take(pa.array([] if whole else lasting[removal[lasting]], pa.int64()))
    return Image(header, rows, gone)


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
    ) or not two.base == one.cut < two.cut:
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
