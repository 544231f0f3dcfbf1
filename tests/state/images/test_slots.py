"""Images that name slots: those of a table together hold what it held, whoever restores them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import StateError
from raystream.schema.fields import field_of
from raystream.schema.state import state_schema
from raystream.schema.types import KeyRange
from raystream.state.images.chain import CheckpointRequest
from raystream.state.images.image import Image, ImageHeader, InputPosition, check_whole, decode
from raystream.state.images.partition import fold, partition
from raystream.state.images.row_shape import RowShape
from raystream.state.tables.backend import WHOLE
from raystream.state.tables.object_table import ObjectTable
from raystream.state.tables.structured_restore import RowColumns
from raystream.state.tables.structured_table import StructuredTable
from raystream.state.tables.views import NONE_OLD
from tests.dataflow.random_ranges import random_ranges
from tests.examples import examples

ALL = KeyRange(0, 16)


class Tally(rs.State):
    n: int = 0


def shape_of(*keys: Any, window: str = "") -> RowShape:
    fields = [field_of("Key", f"k{i}", key, state=False) for i, key in enumerate(keys)]
    return RowShape(tuple(fields), state_schema(Tally), window)  # type: ignore[arg-type]


SHAPES = {
    "number": shape_of(int),
    "two numbers": shape_of(int, int),
    "text": shape_of(str),
    "text and number": shape_of(str, int),
    "window": shape_of(int, window="in windows"),
}


Epoch = tuple[bool, list[int]]
"""Whether keys are put or removed, and which."""


class Table:
    """Rows by numbers from 0 to 11."""

    def __init__(self, shape: RowShape) -> None:
        self.shape = shape
        columns, window = len(shape.keys), 30 if shape.window else None
        self.rows = StructuredTable(
            shape.state, keys=columns, groups=len(ALL), window=window, shape=shape
        )
        self.texts = self.rows.texts
        self.epoch = 0

    def columns(self, numbers: Sequence[int]) -> list[np.ndarray]:
        """The key columns of numbers, any two of which differ in the first or the last."""
        found = []
        for j in range(self.rows.store.columns):
            values = [n // 3 if j else n % 3 if self.rows.store.columns > 1 else n for n in numbers]
            texts = self.texts[j] if j < len(self.texts) else None
            if texts is None:
                found.append(np.array(values, np.int64))
            else:
                found.append(texts.number(pa.array([f"word {v}" for v in values], pa.string())))
        return found

    def apply(self, epochs: Sequence[Epoch]) -> None:
        for put, numbers in epochs:
            self.epoch += 1
            columns = self.columns(numbers)
            if put:
                n = np.array(numbers, np.int64) + 100 * self.epoch
                self.rows.put_columns(RowColumns(columns, self.epoch, {"n": n}))
            else:
                slots = self.rows.find(columns)
                self.rows.remove(slots[slots >= 0], self.epoch)

    def image(self, since: int, name: str, before: tuple[int, int] = NONE_OLD) -> Image:
        """What has changed, and what is old; slots are named if the table is."""
        wanted = CheckpointRequest(since, before)
        pending = self.rows.capture(wanted, self.epoch, named=bool(name))
        (_, rows, gone), *_ = pending.parts(WHOLE)
        stands, shape = InputPosition(self.epoch), self.shape.fingerprint
        header = ImageHeader(
            operator="op",
            shape=shape,
            groups=len(ALL),
            keys=ALL,
            base=since,
            checkpoint=self.epoch,
            input_position=stands,
            table=name,
        )
        return decode(Image(header, rows, gone).encode())

    def content(self) -> dict[int, int]:
        slots = self.rows.find(self.columns(range(12)))
        values = self.rows.read(np.maximum(slots, 0), "n").tolist()
        found = {n: v for n, v, slot in zip(range(12), values, slots, strict=True) if slot >= 0}
        assert len(self.rows) == len(found)
        return found


def images_of(
    table: Table, checkpoints: Sequence[Sequence[Epoch]], rng: random.Random
) -> list[Image]:
    """Checkpoints, with some of the oldest rows in each; those that are needed."""
    chain = list[Image]()
    for epochs in checkpoints:
        table.apply([(True, [0]), *epochs])
        if not chain:
            chain.append(table.image(0, "table"))
            continue
        base = chain[-1].header.checkpoint
        sample = table.rows.sample().tolist()
        old = [(epoch, slot) for epoch, slot in sample if epoch <= base]
        before = rng.choice([*old, (base + 1, 0)])
        chain = [i for i in chain if i.header.checkpoint >= before[0]]
        chain.append(table.image(base, "table", before))
        table.rows.settle(base)
    return chain


numbers = st.lists(st.integers(0, 11), min_size=1, max_size=6, unique=True)
epochs = st.lists(st.tuples(st.booleans(), numbers), max_size=4)


@pytest.mark.parametrize("name", SHAPES)
@examples(40)
@given(st.lists(epochs, min_size=1, max_size=9), epochs, st.randoms(use_true_random=False))
def test_the_images_of_a_table_hold_what_it_held(
    name: str, checkpoints: Any, later: Any, rng: random.Random
) -> None:
    table = Table(SHAPES[name])
    chain, expected = images_of(table, checkpoints, rng), table.content()

    ranges = random_ranges(rng, len(ALL))
    parts = [list(c) for c in zip(*(partition(i, ranges) for i in chain), strict=True)]
    at_once, in_turn = Table(table.shape), Table(table.shape)
    at_once.rows.fill(parts)
    in_turn.rows.fill([p[:1] for p in parts])
    for image in chain[1:]:
        in_turn.rows.apply(image)
    assert at_once.content() == in_turn.content() == expected

    objects = ObjectTable(table.shape, len(ALL))
    objects.fill([chain])
    assert sorted(row.n for row in objects.rows.values()) == sorted(expected.values())
    folded = fold(chain[0], chain[1:])
    assert sorted(folded.rows.column("n").to_pylist()) == sorted(expected.values())

    at_once.epoch = table.epoch
    for each in (table, at_once):
        each.apply(later)
    assert at_once.content() == table.content()


def test_images_of_two_tables_are_not_taken_for_those_of_one() -> None:
    """What was refreshed in one table's slots says nothing of another's."""
    one, two = (
        ImageHeader(
            operator="op",
            shape="",
            groups=len(ALL),
            keys=ALL,
            base=checkpoint - 1,
            checkpoint=checkpoint,
            input_position=InputPosition(checkpoint),
            oldest=oldest,
            table=name,
        )
        for checkpoint, oldest, name in ((2, 0, "one"), (3, 2, "two"))
    )
    with pytest.raises(StateError, match="are not of one table"):
        check_whole([one, two])
    check_whole([replace(one, table="two"), two])
    check_whole([replace(one, base=0), replace(two, oldest=0)])


def test_a_key_that_moved_to_another_slot_is_there_once() -> None:
    table = Table(SHAPES["number"])
    table.apply([(True, [1, 2, 3])])
    chain = [table.image(0, "table")]
    table.apply([(False, [1, 2]), (True, [1])])  # in what was the slot of 2
    chain.append(table.image(1, "table"))
    assert chain[1].gone.num_rows == 2
    restored = Table(table.shape)
    restored.rows.fill([chain])
    assert restored.content() == table.content() == {1: 301, 3: 103}
