"""Images cut by key groups and into parts, and put together again."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.errors import StateError
from raystream.schema.types import KeyRange
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import (
    EndedRange,
    Image,
    ImageHeader,
    InputPosition,
    decode,
)
from raystream.state.images.partition import (
    by_parts,
    fold,
    in_ranges,
    merge,
    part_of,
    partition,
    recut,
    recut_encoded,
)
from raystream.state.keys import cover
from raystream.state.tables.backend import WHOLE
from raystream.state.tables.structured_columns import part_ends
from raystream.state.tables.structured_table import StructuredTable
from tests.dataflow.random_ranges import random_ranges
from tests.examples import examples
from tests.state.images.histories import (
    ALL,
    COUNTED,
    GROUPS,
    KINDS,
    NUMBERS,
    History,
    group,
    header,
    histories,
    image_of,
    restored,
    whole,
)


@pytest.mark.parametrize("kind", KINDS)
@examples(25)
@given(data=st.data(), seed=st.integers(0, 999))
def test_partition_then_merge_is_the_identity(kind: str, data: st.DataObject, seed: int) -> None:
    shape = KINDS[kind][0]
    history = History(shape)
    changes = data.draw(histories(kind))
    for each in changes:
        history.apply(each)
    input_position = InputPosition(
        5, False, {1: (EndedRange(2, 0, 4),)}, {"a": (0, 7), "b": (9,)}, COUNTED
    )
    for since in {0, len(changes) // 2}:
        whole = history.image(since, input_position)
        ranges = random_ranges(random.Random(seed), GROUPS)
        parts = [decode(p.encode()) for p in partition(whole, ranges)]
        for keys, part in zip(ranges, parts, strict=True):
            assert part.header.keys == keys
            table = restored(shape, part).table if not since else None
            assert table is None or all(group(shape, k) in range(*keys) for k in table.rows)
        assert sum(map(len, parts)) == len(whole)
        random.Random(seed).shuffle(parts)
        assert merge(parts).encode() == whole.encode()


@pytest.mark.parametrize("kind", KINDS)
@examples(15)
@given(data=st.data(), seed=st.integers(0, 999))
def test_chains_cut_into_other_ranges_and_back_are_the_same_rows(
    kind: str, data: st.DataObject, seed: int
) -> None:
    """Of ranges as one set of instances had them, the parts that others are to have."""
    shape, rng = KINDS[kind][0], random.Random(seed)
    history, images = History(shape), []
    for since, changes in enumerate([[], *data.draw(histories(kind))]):
        history.apply(changes)
        images.append(history.image(since))
    held = [
        (keys, [p.encode() for i in images for p in partition(i, [keys])])
        for keys in random_ranges(rng, GROUPS)
    ]
    for wanted in random_ranges(rng, GROUPS):
        parts = cover([keys for keys, _ in held], wanted)
        assert parts is not None
        encoded = [[recut_encoded([e], part) for e in dict(held)[keys]] for keys, part in parts]
        chains = [[decode(each) for each in chain] for chain in encoded]
        assert chains == recut([[decode(e) for e in chain] for _, chain in held], wanted)
        merged = merge([fold(base, deltas) for base, *deltas in chains])
        (expected,) = partition(history.image(), [wanted])
        assert merged.rows == expected.rows


@examples(50)
@given(data=st.data(), seed=st.integers(0, 2**16))
def test_parts_are_the_image(data: st.DataObject, seed: int) -> None:
    """Images in parts, other parts of each, are the image, cut to any ranges that theirs make."""
    history, rng = History(NUMBERS), random.Random(seed)
    table = StructuredTable(NUMBERS.state, keys=2, groups=GROUPS, shape=NUMBERS)
    for since, changes in enumerate(data.draw(histories("numbers"))):
        history.apply(changes)
        table.apply(history.image(since))
    since = rng.randrange(history.epoch + 1)
    image = image_of(table, since, header(NUMBERS, since, history.epoch))
    pending = table.capture(CheckpointRequest(since), history.epoch)
    made = list(pending.parts(rng.choice((1, 300, WHOLE))))
    ends = [part.end for part in made]
    parts = [
        Image(part_of(image.header, KeyRange(lo, hi)), part.rows, part.gone)
        for lo, hi, part in zip([0, *ends], ends, made, strict=False)
    ]
    assert merge(parts).encode() == image.encode()
    ranges = random_ranges(rng, GROUPS)
    assert in_ranges(parts, ranges) == partition(image, ranges)
    assert by_parts([parts, partition(image, ranges)]) == [[part, part] for part in parts]


@given(counts=st.lists(st.integers(0, 9), min_size=1), most=st.integers(1, 30))
def test_parts_are_as_large_as_they_may_be(counts: list[int], most: int) -> None:
    offsets = np.cumsum([0, *counts])
    ends = part_ends(offsets, most)
    assert ends == sorted(set(ends)) and ends[-1] == len(counts)
    begins = [0, *ends]
    for begin, end in zip(begins, ends, strict=False):
        rows = counts[begin:end]
        assert sum(rows) <= most or len([n for n in rows if n]) == 1
        assert end == len(counts) or sum(rows) + sum(counts[end : end + 1]) > most
    assert sum(counts[begins[-2] :]) > 0 or len(ends) == 1


def test_an_image_without_state() -> None:
    input_position = InputPosition(7, True, {0: (EndedRange(3, 0, 16),)}, {"s": (1, 2, 3)}, COUNTED)
    image = Image(
        ImageHeader(
            operator="op",
            shape="",
            groups=GROUPS,
            keys=ALL,
            base=0,
            checkpoint=9,
            input_position=input_position,
        ),
        None,
        None,
    )
    assert decode(image.encode()) == image
    parts = partition(image, [KeyRange(0, 5), KeyRange(5, 16)])
    assert [p.header.input_position.counts for p in parts] == [
        {"in": COUNTED["in"][: 8 * 5]},
        {"in": COUNTED["in"][8 * 5 :]},
    ]
    assert merge(parts) == image
    later = replace(image, header=replace(image.header, base=9, checkpoint=12))
    assert fold(image, [later]).header == replace(image.header, checkpoint=12)


def test_parts_that_do_not_belong_together() -> None:
    one, two, three = partition(whole(), [KeyRange(0, 4), KeyRange(4, 8), KeyRange(8, 16)])
    with pytest.raises(StateError, match=r"op \[8, 16\) .* does not follow .* \[0, 4\)"):
        merge([one, three])
    with pytest.raises(StateError, match="does not follow"):
        merge([one, one])
    later = replace(two, header=replace(two.header, checkpoint=9))
    with pytest.raises(StateError, match="does not belong with"):
        merge([one, later])
    with pytest.raises(StateError, match=r"has no part \[3, 9\)"):
        partition(two, [KeyRange(3, 9)])
