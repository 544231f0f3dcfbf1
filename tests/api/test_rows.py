"""What a batch function sees of its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.api.batch import Batch, Rows
from raystream.errors import OperatorError, StateError
from raystream.schema.state import state_schema
from raystream.testing import OperatorHarness
from tests.flows import Word


class Held(rs.State):
    n: int = 0
    narrow: rs.Int8 = 0
    real: float = 0.0
    sure: bool = False
    items: Annotated[list[int], rs.Array("i1", 2)] = rs.zeros(2)


def rows_of(stored: Mapping[str, np.ndarray], length: int, index: Any = ()) -> Rows[Held]:
    schema = state_schema(Held)
    return Rows(schema, stored.__getitem__, length, np.array(index, np.int64))


def fresh() -> Rows[Held]:
    """Rows of three keys."""
    schema = state_schema(Held)
    return rows_of({f.name: np.zeros(3, schema.dtype[f.name]) for f in schema.fields}, 3)


@given(st.integers(1, 9), st.data())
def test_records_are_numbered_within_their_key(distinct: int, data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(0, distinct - 1), max_size=60))
    rows = rows_of({}, distinct, index)
    assert rows.nth.tolist() == [index[:i].count(key) for i, key in enumerate(index)]
    assert rows.counts.tolist() == [index.count(key) for key in range(distinct)]
    for numbers in (rows.index, rows.nth, rows.counts):
        assert numbers.dtype == np.int64
        with pytest.raises(ValueError, match="read-only"):
            numbers[:] = 0


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("n", [1, 2, 3]),
        ("n", np.array([1, 2, 3], np.int8)),
        ("n", np.array([1, 2, 3], np.uint64)),
        ("n", 7),
        ("narrow", np.array([-128, 127, 0])),
        ("real", np.array([1, 2, 3])),
        ("real", np.nan),
        ("sure", np.array([True, False, True])),
        ("items", np.array([[1, 2], [3, 4], [5, 6]])),
    ],
)
def test_what_is_assigned_is_the_new_state(column: str, values: Any) -> None:
    rows = fresh()
    rows[column] = values
    expected = np.broadcast_to(values, rows[column].shape)
    np.testing.assert_array_equal(rows._stored()[column], expected)
    if isinstance(values, np.ndarray):
        values[0] = values[1]  # the array stays the caller's
        assert (rows[column] != values).any()


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        ("n", np.array([0.5, 1, 2]), "0.5 does not fit n: int64"),
        ("n", np.nan, "nan does not fit n: int64"),
        ("n", np.array([2**63, 0, 0], np.uint64), "9223372036854775808 does not fit"),
        ("n", np.array(["1", "2", "3"]), "'1' does not fit n: int64"),
        ("n", None, "None does not fit"),
        ("n", np.array([7]), r"an array of shape \(1,\), not \(3,\)"),
        ("n", [1, 2, 3, 4], r"an array of shape \(4,\), not \(3,\)"),
        ("narrow", np.array([1, 300, 2]), "300 does not fit narrow: int8"),
        ("sure", np.array([1, 0, 1]), "1 does not fit sure: bool"),
        ("items", [[1, 2], [3, 300], [5, 6]], "300 does not fit items"),
    ],
)
def test_what_does_not_fit_is_refused(column: str, values: Any, message: str) -> None:
    rows = fresh()
    with pytest.raises(StateError, match=f"Held.{column}: {message}"):
        rows[column] = values
    assert not rows[column].any()


def test_what_is_changed_in_place_is_the_new_state() -> None:
    rows = fresh()
    n = rows["n"]
    n += 1
    rows["n"][0] = 5
    assert rows._stored()["n"].tolist() == [5, 1, 1]


def test_a_narrow_number_does_not_wrap_around() -> None:
    @rs.operator(key="word")
    def count(words: rs.Batch[Word], rows: rs.Rows[Held]) -> rs.Batch[Word]:
        rows["narrow"] += rows.counts
        return words

    with pytest.raises(OperatorError, match="200 does not fit narrow: int8") as caught:
        OperatorHarness(count).send(*[Word(0, "be")] * 200)
    assert caught.value.where is not None


def test_a_batch_of_a_column_is_not_changed_by_it() -> None:
    rows = fresh()
    batch = Batch(Word, {"time": rows["n"], "word": ["a", "b", "c"]})
    rows["n"] += 1
    assert batch["time"].tolist() == [0, 0, 0]
    assert rows["n"].tolist() == [1, 1, 1]
