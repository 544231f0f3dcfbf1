"""Columns that users hand in: what is alike is taken, what does not fit is refused in words."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

import raystream as rs
from raystream.errors import StateError
from raystream.schema.columns import Columns, concat
from raystream.schema.records import record_schema
from raystream.schema.storing import from_columns, from_records
from tests.schema.samples import Colour, Flat, Mixed, kinds

FINE: dict[str, Any] = {
    "small": [1, -2], "real": [0.5, 1], "text": ["a", "b"], "maybe": [None, 7],
    "kind": [1, 2], "items": [[1], []],
}  # fmt: skip
EXPECTED = [Mixed(1, 0.5, "a", None, Colour.RED, [1]), Mixed(-2, 1.0, "b", 7, Colour.BLUE, [])]


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"small": np.array([1, -2])},
        {"items": [(1,), ()]},
        {"small": np.array([1, -2], np.int8), "real": np.array([0.5, 1.0], np.float32)},
        {"small": pa.array([1, -2]), "real": pa.array([0.5, 1.0])},
        {"text": pa.array(["a", "b"]).dictionary_encode()},
        {
            "text": pa.chunked_array([["a"], ["b"]]),
            "maybe": pa.chunked_array([[None], [7]], pa.int64()),
        },
        {"text": pa.array(["a", "b"], pa.large_string()), "maybe": pa.array([None, 7])},
        {"text": np.array(["a", "b"]), "kind": [Colour.RED, Colour.BLUE]},
        {"items": pa.array([[1], []])},
        {"small": np.array([1, -2], object), "maybe": np.array([None, 7], object)},
        {"maybe": np.ma.array([5, 7], mask=[True, False])},
        {"text": np.ma.array(["a", "b"], mask=False)},
    ],
    ids=lambda o: ",".join(f"{k}:{type(v).__name__}" for k, v in o.items()) or "lists",
)
def test_batches_take_what_is_alike(other: dict[str, Any]) -> None:
    columns = from_columns(record_schema(Mixed), {**FINE, **other})
    assert list(columns.records()) == EXPECTED
    assert [kinds(r) for r in columns.records()] == [kinds(r) for r in EXPECTED]
    assert columns.column("small").dtype == np.int8
    assert columns.column("real").dtype == np.float32


# ---------------------------------------------------------------- what does not fit


@pytest.mark.parametrize(
    ("field", "values", "complaint"),
    [
        ("text", ["ok", "a\ud800"], r"Mixed\.text: 'a\\ud800' is no text that can be stored"),
        ("small", [1, 128], r"Mixed\.small: 128 does not fit small: int8"),
        ("small", np.array([1, 300]), r"Mixed\.small: 300 does not fit"),
        ("small", [1, 2.5], r"Mixed\.small: 2\.5 does not fit"),
        ("small", [1, 2**70], r"Mixed\.small: 1180591620717411303424 does not fit"),
        ("small", [1, None], r"Mixed\.small: None does not fit"),
        ("small", ["1", "2"], r"Mixed\.small: '1' does not fit"),
        ("small", pa.array([1, None]), r"Mixed\.small is None, but is not declared optional"),
        ("real", [0.5, "x"], r"Mixed\.real: 'x' does not fit real: float32"),
        ("real", [0.5, 1e39], r"Mixed\.real: 1e\+39 does not fit real: float32"),
        ("real", np.array([-1e39, 1.0]), r"Mixed\.real: -1e\+39 does not fit real: float32"),
        ("real", [1, 10**400], r"Mixed\.real: 10*\.* does not fit real: float32"),
        ("small", np.ma.array([5, 7], mask=[True, False]), r"Mixed\.small: None does not fit"),
        ("text", pa.array([1, 2]), r"Mixed\.text: an array of int64 does not fit text: str"),
        ("text", pa.array([True, None]), r"Mixed\.text: an array of bool does not fit text: str"),
        ("maybe", [None, 2**31], r"Mixed\.maybe: 2147483648 does not fit maybe: int32 \| None"),
        ("text", ["a", None], r"Mixed\.text is None, but is not declared optional"),
        ("text", ["a", 1], r"Mixed\.text: 1 does not fit text: str"),
        ("text", ["a", b"b"], r"Mixed\.text: b'b' does not fit text: str"),
        ("text", np.array([b"a", b"b"]), r"Mixed\.text: b'a' does not fit text: str"),
        ("real", [0.5, Decimal("0.1")], r"Mixed\.real: Decimal\('0.1'\) does not fit real"),
        ("real", [np.float32(1), Fraction(1, 3)], r"Mixed\.real: Fraction\(1, 3\) does not fit"),
        ("small", [np.int64(1), 2.5], r"Mixed\.small: 2\.5 does not fit"),
        ("small", np.ones((2, 3), np.int8), r"Mixed\.small: an array of shape \(2, 3\) is no col"),
        ("small", np.array([1, "x"], object), r"Mixed\.small: 'x' does not fit small: int8"),
        ("items", [[1], object()], r"Mixed\.items cannot be stored: object inside it"),
        ("items", [[1], {1, 2}], "cannot be stored: set inside it has no stored form"),
        ("items", [[1], [2**64]], "cannot be stored: 18446744073709551616 .* more than 64 bits"),
        ("items", [[1], None], r"Mixed\.items is None, but is not declared optional"),
        ("items", [[1], [None]], r"Mixed\.items: \[None\] does not fit items: list\[int\]"),
        ("items", [[1], ["a"]], r"Mixed\.items: \['a'\] does not fit items: list\[int\]"),
        ("items", [[1], 2], r"Mixed\.items: 2 does not fit"),
    ],
)
def test_values_that_do_not_fit_are_refused(field: str, values: Any, complaint: str) -> None:
    with pytest.raises(StateError, match=complaint):
        from_columns(record_schema(Mixed), {**FINE, field: values})


def test_a_number_inside_is_refused_by_the_name_that_people_wrote() -> None:
    class Odd(NamedTuple):
        small: dict[str, list[rs.Int8 | None]]

    with pytest.raises(StateError, match=r"does not fit small: dict\[str, list\[.*rs\.Int8"):
        from_columns(record_schema(Odd), {"small": [{"a": [300]}]})


def test_text_is_not_taken_for_bytes() -> None:
    class Sealed(NamedTuple):
        data: bytes

    with pytest.raises(StateError, match=r"Sealed\.data: 'a' does not fit data: bytes"):
        from_columns(record_schema(Sealed), {"data": [b"a", "a"]})
    with pytest.raises(StateError, match=r"bytearray\(b'a'\) does not fit data: bytes"):
        from_records(record_schema(Sealed), [Sealed(bytearray(b"a"))])  # it might change


class Short(NamedTuple):
    real: rs.Float32


def test_infinite_floats_are_stored_in_32_bits_too() -> None:
    reals = [float("inf"), -float("inf"), float("nan"), 1e38, 1e-50]
    for given_reals in (reals, np.array(reals)):
        columns = from_columns(record_schema(Short), {"real": given_reals})
        assert repr([r.real for r in columns.records()][:3]) == "[inf, -inf, nan]"


def test_the_shape_of_a_batch_is_checked() -> None:
    schema = record_schema(Flat)
    with pytest.raises(StateError, match="Flat has no field 'm'\n  It has n, sure"):
        from_columns(schema, {"n": [1], "m": [1]})
    with pytest.raises(StateError, match="lacks the column 'sure'"):
        from_columns(schema, {"n": [1]})
    with pytest.raises(StateError, match="different lengths"):
        from_columns(schema, {"n": [1], "sure": []})
    with pytest.raises(StateError, match=r"Flat\.sure: 1 does not fit sure: bool"):
        from_columns(schema, {"n": [1], "sure": [1]})


class Note(NamedTuple):
    text: str


class Notes(NamedTuple):
    texts: list[str]


def test_more_text_than_a_column_holds_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 2**31 - 1
    memory = map(pa.py_buffer, (np.array([0, most], np.int32), np.zeros(most, np.uint8)))
    large = Columns(record_schema(Note), [pa.StringArray.from_buffers(1, *memory)], 1)
    refused = r"Note\.text of 2 records takes more than 2 GB"
    with pytest.raises(StateError, match=refused):
        concat([large, large])

    def in_two(values: Any, kind: Any) -> Any:  # what Arrow does with more than it can put in one
        return pa.chunked_array([[value] for value in values], kind)

    monkeypatch.setattr(pa, "array", in_two)
    with pytest.raises(StateError, match=refused):
        from_records(record_schema(Note), [Note("a"), Note("b")])
    with pytest.raises(StateError, match=r"Notes\.texts of 2 records takes more than 2 GB"):
        from_records(record_schema(Notes), [Notes(["a"]), Notes(["b"])])


# ---------------------------------------------------------------- memory of the caller


class Measured(NamedTuple):
    value: float


VALUES = [1.0, 2.0, 3.0]


def measured(values: Any) -> Columns:
    return from_columns(record_schema(Measured), {"value": values})


def test_an_array_is_taken_over_without_a_copy() -> None:
    mine = np.array(VALUES)
    columns = measured(mine)
    assert columns.column("value") is mine
    with pytest.raises(ValueError, match="read-only"):
        mine[0] = 9.0


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[:],
        lambda a: a.reshape(1, 3)[0],
        lambda a: np.frombuffer(memoryview(a), np.float64),
        memoryview,
        lambda a: a.view(type("Special", (np.ndarray,), {})),
    ],
)
def test_a_view_that_can_be_written_to_is_copied(view: Callable[[np.ndarray], Any]) -> None:
    mine = np.array(VALUES)
    columns = measured(view(mine))
    mine[:] = 9.0
    assert columns.column("value").tolist() == VALUES
