"""Compiled operators emit what the same functions emit when they are interpreted, bit for bit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given as forall
from hypothesis import settings
from hypothesis import strategies as st

import raystream as rs
from raystream.api.declarations import spec_of
from raystream.compiled import buffers
from raystream.compiled.operator import compile_operator
from raystream.native import numba_internals
from raystream.state.tables import row_store, view
from raystream.state.tables import structured_table as rows
from tests.compiled import operators as ops
from tests.compiled.reference import Reference, assert_same, given

GROUPS = 5
small = st.integers(0, 3)


def records_of(*classes: Any, **fields: Any) -> Any:
    """Lists of records of these classes; `fields` overrides what a field may be."""
    each = []
    for cls in classes:
        values = [fields.get(f"{cls.__name__}_{n}", fields.get(n, small)) for n in cls._fields]
        each.append(st.tuples(*values).map(lambda v, cls=cls: cls(*v)))
    return st.lists(st.one_of(*each), max_size=60)


times = st.integers(-20, 300)
floats = st.floats(-1e3, 1e3, width=32)
CASES: dict[str, tuple[Any, Any]] = {
    "vehicles": (
        ops.vehicles,
        records_of(
            ops.Report,
            time=times,
            vid=st.integers(0, 6),
            spd=st.integers(0, 60),
            lane=st.integers(0, 4),
        ),
    ),
    "segments": (
        ops.segments,
        records_of(
            ops.Seen,
            ops.Accident,
            time=times.map(abs),
            enters=st.booleans(),
            xway=st.just(0),
            speed=st.integers(0, 100),
            cars=st.integers(0, 9),
            ahead=st.integers(0, 4),
        ),
    ),
    "accounts": (
        ops.accounts,
        records_of(
            ops.Charge,
            ops.Left,
            ops.Query,
            time=times,
            vid=st.integers(-3, 3),
            charged=st.booleans(),
        ),
    ),
    "tumbling": (
        ops.Busy(at_least=2),
        records_of(ops.Event, time=st.integers(-30, 60), value=floats),
    ),
    "sliding": (
        ops.Sliding(1.5),
        records_of(ops.Odd, time=st.integers(-30, 60), odd=st.booleans()),
    ),
    "sessions": (ops.Sessions(), records_of(ops.Event, time=st.integers(-30, 60), value=floats)),
    "echo": (ops.Echo(), records_of(ops.Event, time=st.integers(-30, 60), value=floats)),
    "parts": (
        ops.parts,
        records_of(
            ops.Note,
            ops.Odd,
            code=st.none() | st.integers(-9, 9),
            weight=st.none() | floats,
            odd=st.booleans(),
            Odd_key=st.integers(-9, 9),
        ),
    ),
    "ask": (
        ops.ask,
        records_of(ops.Charge, ops.Left, ops.Query, time=small, charged=st.booleans()),
    ),
    "smooth": (ops.smooth, records_of(ops.Event, value=floats)),
}


@pytest.fixture(params=["roomy", "tiny"])
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Room for everything, or for so little that everything has to grow. Then Numba looks at the
    types of all arguments at each call, and would compile a driver again for others."""
    if request.param == "tiny":
        monkeypatch.setattr(numba_internals, "entry_of", lambda driver: driver)
        monkeypatch.setattr(buffers.BlockLayout, "guess", lambda self, records: 1)
        monkeypatch.setattr(rows, "LEAST_ROWS", 1)
        monkeypatch.setattr(row_store, "GROWTH_BYTES", 1)
        monkeypatch.setattr(view, "SLICE_BYTES", 1)
    return request.param  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", CASES)
def test_compiled_is_interpreted(name: str, room: str) -> None:
    op, records = CASES[name]
    spec = spec_of(op)
    groups = GROUPS if spec.key else 1
    compiled = compile_operator(spec, groups=groups)
    shape = compiled.shape

    @settings(max_examples=60, deadline=None)
    @forall(
        st.lists(st.tuples(records, st.integers(0, 15)), max_size=4),
        st.randoms(use_true_random=False),
    )
    def holds(epochs: list[tuple[list[Any], int]], shuffle: random.Random) -> None:
        table = compiled.new_table()
        reference = Reference(spec, groups, shape.size, shape.every)
        watermark = -30
        viewed, expected = None, np.zeros(0)
        for epoch, (given_records, step) in enumerate(epochs, start=1):
            mixed = shuffle if epoch % 2 else None
            batch = given(spec, given_records, groups, mixed)
            output = compiled.process(batch, table, epoch, watermark)
            assert_same(output, reference.process(given_records, watermark), spec, groups)
            assert (
                output.late if output.late is not None else np.zeros(0)
            ).tolist() == reference.late
            watermark += step
            fire(epoch, watermark, table, reference)
            if viewed is not None:
                assert np.array_equal(rows.in_key_order(viewed.rows()), expected)
            if table is not None:  # and the next epoch changes rows that it has yet to copy
                since = shuffle.randrange(-1, epoch)
                first, last = (shuffle.randrange(table.store.used + 1) for _ in range(2))
                expected = rows.in_key_order(changed(table, since, first, last))
                viewed = table.view(since, epoch, (first, last))
                for _ in range(shuffle.randrange(3)):
                    viewed.advance()
        fire(len(epochs) + 1, rs.NEVER, table, reference, last=True)
        if table is not None:
            assert_rows(table, reference, windowed=shape.size > 0)

    def fire(
        epoch: int, watermark: int, table: Any, reference: Reference, last: bool = False
    ) -> None:
        if table is None:
            return
        output = compiled.fire(table, rs.KeyRange(0, groups), epoch, watermark, last=last)
        assert_same(output, reference.fire(watermark), spec, groups)

    holds()
    if room == "tiny":  # otherwise the machine code is called as it is, whatever comes
        assert {len(driver.overloads) for driver in compiled.drivers} == {1}


def changed(table: rows.StructuredTable, since: int, old: int, old_slot: int) -> np.ndarray:
    """A copy of the rows that were touched after an epoch, and of old ones, with their slots in
    place of their epochs."""
    used, slots = table.rows[: table.store.used], np.arange(table.store.used)
    epochs = used["_epoch"]
    before = (epochs < old) | ((epochs == old) & (slots < old_slot))
    those = (epochs > since) | (before & (epochs >= 0))
    found = used[those]
    found["_epoch"] = slots[those]
    return found


def assert_rows(table: rows.StructuredTable, reference: Reference, *, windowed: bool) -> None:
    """The table holds the reference's rows."""
    stored = {}
    for row in table.ordered():
        key = row["_key"].tolist()
        start = key.pop() if windowed else 0
        names = [f.name for f in table.schema.fields]
        stored[key[0] if len(key) == 1 else tuple(key), start] = {n: row[n].tolist() for n in names}
    assert stored == {
        at: {n: getattr(row, n) for n in row._names} for at, row in reference.rows.items()
    }
