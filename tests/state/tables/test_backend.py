"""What every state backend has to do, held against a dict: see `raystream.state.tables.backend`.

A new backend joins by a `Driver`, which changes its rows as a logic would.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.schema.fields import field_of
from raystream.schema.state import state_schema
from raystream.schema.types import KeyRange
from raystream.state.images.chain import FULL, CheckpointRequest
from raystream.state.images.image import Image, ImageHeader, InputPosition, decode
from raystream.state.images.partition import fold, merge, part_of, partition
from raystream.state.images.row_shape import RowShape
from raystream.state.keys import key_group
from raystream.state.tables.backend import WHOLE, NoRows, Table
from raystream.state.tables.object_table import ObjectTable
from raystream.state.tables.structured_table import StructuredTable
from tests.dataflow.random_ranges import random_ranges
from tests.examples import examples

GROUPS = 16
ALL = KeyRange(0, GROUPS)


class Tally(rs.State):
    n: int = 0


def shape_of(key: type) -> RowShape:
    return RowShape((field_of("Key", "key", key, state=False),), state_schema(Tally))


class Driver(ABC):
    """A table by a backend, and how a logic would change it."""

    table: Table

    @abstractmethod
    def put(self, values: dict[Any, int], epoch: int) -> None:
        """Set the rows of these keys, as an epoch does that touches them."""

    @abstractmethod
    def remove(self, keys: list[Any], epoch: int) -> None:
        """Remove the rows of these keys, which are there."""


class PythonRows(Driver):
    def __init__(self, key: type) -> None:
        self.table: ObjectTable = ObjectTable(shape_of(key), GROUPS)

    def put(self, values: dict[Any, int], epoch: int) -> None:
        for key, n in values.items():
            row: Any = self.table.touch(key, epoch)[0]
            row.n = n

    def remove(self, keys: list[Any], epoch: int) -> None:
        for key in keys:
            self.table.remove(key, epoch)


class Slots(Driver):
    def __init__(self, key: type) -> None:
        shape = shape_of(key)
        self.table: StructuredTable = StructuredTable(
            shape.state, keys=1, groups=GROUPS, shape=shape
        )

    def _slots(self, keys: list[Any], epoch: int) -> np.ndarray:
        numbers = self.table.texts[0] is None
        return self.table.slots_of([keys if numbers else pa.array(keys)], epoch)[0]

    def put(self, values: dict[Any, int], epoch: int) -> None:
        if values:
            slots = self._slots(list(values), epoch)
            self.table.write(slots, {"n": np.array(list(values.values()))}, epoch)

    def remove(self, keys: list[Any], epoch: int) -> None:
        if keys:
            self.table.remove(self._slots(keys, epoch), epoch)


BACKENDS: dict[str, type[Driver]] = {"Python rows": PythonRows, "structured rows": Slots}
KEYS: dict[str, Any] = {"numbers": list(range(-3, 9)), "text": [f"é{i}" for i in range(12)]}

backends = pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
key_kinds = pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)

epochs = st.lists(
    st.tuples(st.dictionaries(st.integers(0, 11), st.integers(0, 99), max_size=6),
              st.lists(st.integers(0, 11), max_size=4, unique=True)),
    min_size=1, max_size=6,
)  # fmt: skip
"""Per epoch what is put, and which keys are removed."""


class Model:
    """A table, and a dict that has had the same done to it."""

    def __init__(self, driver: Driver, keys: list[Any]) -> None:
        self.driver, self.keys = driver, keys
        self.table = driver.table
        self.rows: dict[Any, int] = {}
        self.epoch = 0

    def apply(self, put: dict[int, int], removed: list[int]) -> None:
        self.epoch += 1
        values = {self.keys[at]: n for at, n in put.items()}
        self.driver.put(values, self.epoch)
        self.rows.update(values)
        gone = [self.keys[at] for at in removed if self.keys[at] in self.rows]
        self.driver.remove(gone, self.epoch)
        for key in gone:
            del self.rows[key]

    def image(self, since: int = 0) -> Image:
        pending = self.table.capture(CheckpointRequest(since), self.epoch)
        (part,) = pending.parts(WHOLE)
        assert part.end == GROUPS
        return self._image(part.rows, part.gone, since)

    def _image(self, rows: Any, gone: Any, since: int) -> Image:
        stands, words = InputPosition(self.epoch), self.table.shape.fingerprint
        header = ImageHeader(
            operator="op",
            shape=words,
            groups=GROUPS,
            keys=ALL,
            base=since,
            checkpoint=self.epoch,
            input_position=stands,
        )
        return decode(Image(header, rows, gone).encode())


def content(image: Image) -> dict[Any, int]:
    keys, values = (image.rows.column(i).to_pylist() for i in (0, 1))
    return dict(zip(keys, values, strict=True))


@backends
@key_kinds
@examples(25)
@given(epochs, st.randoms(use_true_random=False))
def test_images_hold_the_rows_and_make_them_again(
    backend: type[Driver], keys: list[Any], history: Any, rng: random.Random
) -> None:
    kind = type(keys[0])
    model, chain = Model(backend(kind), keys), list[Image]()
    for put, removed in history:
        before = model.rows.copy()
        model.apply(put, removed)
        chain.append(model.image(chain[-1].header.checkpoint if chain else 0))
        delta = chain[-1]
        assert len(model.table) == len(model.rows)
        assert content(delta).items() <= model.rows.items()
        gone = set(delta.gone.column(0).to_pylist())
        assert before.keys() - model.rows.keys() <= gone <= set(keys) - model.rows.keys()
        if rng.random() < 0.5:
            model.table.settle(delta.header.checkpoint)
    full = model.image()
    assert content(full) == model.rows
    assert not full.gone.num_rows, "nothing was there before"
    assert fold(chain[0], chain[1:]).encode() == full.encode()
    counts = np.bincount([key_group((k,), GROUPS) for k in model.rows], minlength=GROUPS)
    assert (model.table.count_by_group() == counts).all()

    ranges = random_ranges(rng, GROUPS)
    by_part = [list(c) for c in zip(*(partition(i, ranges) for i in chain), strict=True)]
    cut = rng.randrange(1, len(chain) + 1)
    for other in BACKENDS.values():
        filled, advanced = Model(other(kind), keys), Model(other(kind), keys)
        filled.table.fill(by_part)
        advanced.table.fill([chain[:cut]])
        for delta in chain[cut:]:
            advanced.table.apply(delta)
        for again in (filled, advanced):
            again.epoch = model.epoch
            assert again.image().encode() == full.encode()
            assert not len(again.image(model.epoch)), "they were stored at that checkpoint"


@backends
@key_kinds
@examples(25)
@given(epochs, st.lists(st.integers(0, 11), max_size=12))
def test_rows_are_looked_up_as_they_are_in_the_order_of_the_keys(
    backend: type[Driver], keys: list[Any], history: Any, asked: list[int]
) -> None:
    model = Model(backend(type(keys[0])), keys)
    strange: Any = [99, -99] if isinstance(keys[0], int) else ["", "é99"]
    wanted = [*(keys[at] for at in asked), *strange]
    shape = model.table.shape
    batch = pa.RecordBatch.from_arrays([pa.array(wanted, shape.gone.types[0])], schema=shape.gone)
    for put, removed in history:
        model.apply(put, removed)
        found = model.table.look_up(batch)
        there = [(at, key) for at, key in enumerate(wanted) if key in model.rows]
        then = [model.rows[key] for _, key in there]
        model.apply(dict.fromkeys(put, 100), [])
        assert found.at.tolist() == [at for at, _ in there]
        rows = found.batch()
        assert rows.schema == shape.rows
        assert rows.to_pydict() == {"key:key": [key for _, key in there], "n": then}
        model.apply(put, removed)
        model.table.look_up(batch)
        assert len(model.table) == len(model.rows), "a key that is looked up gets no row"


@backends
@key_kinds
def test_a_capture_is_of_its_epoch_and_is_made_later(backend: type[Driver], keys: Any) -> None:
    model = Model(backend(type(keys[0])), keys)
    model.apply(dict.fromkeys(range(12), 1), [])
    expected = model.image()
    pending = model.table.capture(FULL, model.epoch)
    model.apply(dict.fromkeys(range(6), 2), [3, 4])
    pending.copy()
    assert pending.nbytes > 0
    parts = list(pending.parts(1))
    assert [p.end for p in parts][-1] == GROUPS
    images = [
        Image(part_of(expected.header, KeyRange(lo, p.end)), p.rows, p.gone)
        for lo, p in zip([0, *(p.end for p in parts)], parts, strict=False)
    ]
    assert merge(images).encode() == expected.encode()
    assert content(model.image()) == model.rows


@backends
def test_a_guard_is_held_while_rows_are_copied_elsewhere(backend: type[Driver]) -> None:
    model, lock, held = Model(backend(int), KEYS["numbers"]), Lock(), list[bool]()

    @contextmanager
    def guard() -> Iterator[Any]:
        with lock:
            held.append(True)
            yield lambda: True

    class Guards:
        """Made anew each time, as a context manager of a generator is used once."""

        def __enter__(self) -> Any:
            self.inner = guard()
            return self.inner.__enter__()

        def __exit__(self, *error: Any) -> Any:
            return self.inner.__exit__(*error)

    model.table.use_guard(Guards())
    model.apply({0: 1}, [])
    assert content(model.image()) == model.rows
    assert not lock.locked()
    assert held or not model.table.names_slots, "Python rows are copied at once"


@backends
def test_what_can_be_asked_of_an_empty_table(backend: type[Driver]) -> None:
    table = backend(int).table
    table.make_room(100, ALL)
    assert len(table) == 0 and table.nbytes >= 0
    assert table.sample().shape == (0, 2)
    assert not table.count_by_group().any()
    table.check(0)
    table.settle(5)
    rows, gone = next(table.capture(FULL, 5).parts(WHOLE))[1:]
    nothing = NoRows(table.shape, GROUPS)
    assert [(p.rows, p.gone) for p in nothing.parts(WHOLE)] == [(rows, gone)]
    assert nothing.nbytes == 0
    backend(int).table.warm()


def test_rows_to_refresh_are_found_where_slots_are_named() -> None:
    model = Model(Slots(int), KEYS["numbers"])
    model.apply({0: 1, 1: 2}, [])
    model.apply({1: 3}, [])
    assert model.table.sample()[:, 0].tolist() == [1, 2]
    pending = model.table.capture(CheckpointRequest(1, (2, 0)), model.epoch, named=True)
    (part,) = pending.parts(WHOLE)
    assert part.rows.num_rows == 2, "the one that changed, and the one that is old"
