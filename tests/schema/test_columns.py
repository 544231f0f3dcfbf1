"""Columns: what goes in comes out, through Arrow and the wire too; what does not fit is refused."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import GraphError, StateError
from raystream.schema.buffers import blocks_of, columns_in, padded
from raystream.schema.columns import (
    Columns,
    concat,
    empty,
    from_columns,
    from_records,
    physical,
)
from raystream.schema.objects import decode, encode
from raystream.schema.records import record_schema
from raystream.schema.state import state_schema
from tests.examples import examples


class Mood(enum.StrEnum):
    """Its members would come back as plain texts."""

    CALM = "calm"


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


class Point(NamedTuple):
    x: int
    tag: str | None


class Everything(NamedTuple):
    plain: int
    narrow: rs.Int8
    real: float
    short: rs.Float32
    sure: bool
    text: str
    raw: bytes
    colour: Colour
    maybe: rs.Int16 | None
    maybe_real: float | None
    maybe_sure: bool | None
    maybe_text: str | None
    maybe_colour: Colour | None
    many: list[Point]
    pair: tuple[int, str]
    long: tuple[int, ...]
    table: dict[str, list[int]]
    by_pair: dict[tuple[int, int], int]
    point: Point
    maybe_point: Point | None
    moods: list[Colour]
    deep: dict[str, tuple[Point, ...]] | None


SCHEMA = record_schema(Everything)
points = st.builds(Point, st.integers(-(2**63), 2**63 - 1), st.none() | st.text(max_size=3))
colours = st.sampled_from(Colour)
reals = st.floats(allow_nan=False)
rows = st.builds(
    Everything,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-128, 127),
    reals,
    st.floats(allow_nan=False, width=32),
    st.booleans(),
    st.text(max_size=4),
    st.binary(max_size=4),
    colours,
    st.none() | st.integers(-(2**15), 2**15 - 1),
    st.none() | reals,
    st.none() | st.booleans(),
    st.none() | st.text(max_size=3),
    st.none() | colours,
    st.lists(points, max_size=2),
    st.tuples(st.integers(0, 5), st.text(max_size=2)),
    st.lists(st.integers(0, 5), max_size=3).map(tuple),
    st.dictionaries(st.text(max_size=2), st.lists(st.integers(0, 9), max_size=2), max_size=2),
    st.dictionaries(st.tuples(st.integers(0, 3), st.integers(0, 3)), st.integers(0, 9), max_size=2),
    points,
    st.none() | points,
    st.lists(colours, max_size=2),
    st.none()
    | st.dictionaries(st.text(max_size=2), st.lists(points, max_size=2).map(tuple), max_size=2),
)
tables = st.lists(rows, max_size=6)


def kinds(value: Any) -> Any:
    """The types of a value and of all that it holds."""
    if isinstance(value, dict):
        return dict, [(kinds(k), kinds(v)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [kinds(v) for v in value]
    return type(value)


def check(columns: Columns, records: list[Everything]) -> None:
    found = list(columns.records())
    assert found == records
    assert [kinds(r) for r in found] == [kinds(r) for r in records]


@examples(60)
@given(tables)
def test_records_come_out_as_they_went_in(records: list[Everything]) -> None:
    check(from_records(SCHEMA, records), records)
    check(from_records(SCHEMA, iter(records)), records)


@examples(60)
@given(tables, tables, st.data())
def test_slices_takes_and_concatenations_are_those_of_lists(
    one: list[Everything], two: list[Everything], data: st.DataObject
) -> None:
    both = one + two
    columns = concat([from_records(SCHEMA, one), empty(SCHEMA), from_records(SCHEMA, two)])
    check(columns, both)
    lo = data.draw(st.integers(0, len(both)))
    hi = data.draw(st.integers(lo, len(both)))
    check(columns.slice(lo, hi), both[lo:hi])
    order = data.draw(st.lists(st.integers(0, len(both) - 1), max_size=8)) if both else []
    check(columns.take(np.array(order, np.int64)), [both[i] for i in order])
    part = columns.slice(lo, hi).ranked(np.arange(lo, hi))
    assert part.take(np.arange(hi - lo)[::-1]).rank is not None
    assert part.take(np.arange(hi - lo)[::-1]).rank.tolist() == list(range(lo, hi))[::-1]


@examples(60)
@given(tables, st.booleans(), st.data())
def test_blocks_change_nothing(
    records: list[Everything], ranked: bool, data: st.DataObject
) -> None:
    lo = data.draw(st.integers(0, len(records)))
    columns = from_records(SCHEMA, records).slice(lo, len(records))
    columns = columns.ranked(np.arange(len(columns)) << 40 if ranked else None)
    blocks = blocks_of(columns) if len(columns) else []
    memory = np.frombuffer(b"".join(padded(blocks)), np.uint8)
    read = columns_in(SCHEMA, len(columns), [*map(len, blocks)], memory) if blocks else columns
    check(read, records[lo:])
    assert (None if read.rank is None else read.rank.tolist()) == (
        None if columns.rank is None else columns.rank.tolist()
    )


def test_nan_and_signed_zero_stay() -> None:
    class Real(NamedTuple):
        a: float
        b: float | None

    schema = record_schema(Real)
    (found,) = from_records(schema, [Real(-0.0, math.nan)]).records()
    assert math.copysign(1, found.a) == -1
    assert math.isnan(found.b)


def test_blocks_are_the_memory_of_the_columns() -> None:
    columns = from_columns(
        record_schema(Noted), {"n": np.arange(5), "text": pa.array(["", "a", "bc", "d", ""])}
    ).slice(1, 4)
    numbers, there, ends, content = blocks_of(columns)
    assert np.shares_memory(numbers, columns.column("n"))
    assert len(there) == 0 and ends.view(np.int32).tolist() == [0, 1, 3, 4]
    assert content.ctypes.data == columns.column("text").buffers()[2].address


def test_bytes_are_counted_of_the_slice_only() -> None:
    columns = from_columns(record_schema(Flat), {"n": np.arange(100), "sure": np.ones(100, bool)})
    assert columns.nbytes() == 900
    assert columns.slice(10, 12).nbytes() == 18


# ---------------------------------------------------------------- what users hand in


class Flat(NamedTuple):
    n: int
    sure: bool


class Noted(NamedTuple):
    n: int
    text: str


class Short(NamedTuple):
    real: rs.Float32


class Mixed(NamedTuple):
    small: rs.Int8
    real: rs.Float32
    text: str
    maybe: rs.Int32 | None
    kind: Colour
    items: list[int]


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


@examples(60)
@given(st.lists(rows, max_size=2))
def test_a_value_that_was_encoded_is_not_encoded_again(records: list[Everything]) -> None:
    hints = {f.name: f for f in SCHEMA.fields if f.kind == "object"}
    for record in records:
        for name, f in hints.items():
            value = getattr(record, name)
            assert encode(encode(value)) == encode(value)
            assert decode(encode(encode(value)), f.convert) == value


# ---------------------------------------------------------------- fields that have no stored form


def test_physical_columns() -> None:
    assert physical(record_schema(Mixed)) == (
        ("small", "number", "i1"),
        ("real", "number", "f4"),
        ("text", "text", ""),
        ("maybe", "number", "i4"),
        ("maybe?", "number", "?"),
        ("kind", "number", "i8"),
        ("items", "bytes", ""),
    )
    assert record_schema(Mixed).fingerprint == (
        "Mixed(small: int8, real: float32, text: str, maybe: int32 | None, kind: int64,"
        " items: list[int64])"
    )


@pytest.mark.parametrize(
    ("hint", "complaint"),
    [
        (set[int], "a set has no stable order, so it cannot be replayed"),
        (frozenset[int], "a set has no stable order"),
        (Any, "declare what it holds; Any has no stored form"),
        (object, "declare what it holds"),
        (date, "date has no stored form"),
        (complex, "complex has no stored form"),
        (np.int64, "int64 has no stored form"),
        (list[int] | dict[int, int], "has no stored form"),
        (list[date], "date has no stored form"),
        (dict[str, tuple[Mood | None, ...]], "Mood has no stored form"),
        (list[int | set[int]], "a set has no stable order"),
    ],
)
def test_fields_without_a_stored_form_are_refused(hint: Any, complaint: str) -> None:
    class Odd(NamedTuple):
        thing: hint  # type: ignore[valid-type]

    with pytest.raises(GraphError, match=f"Odd.thing: .*{complaint}"):
        record_schema(Odd, {"hint": hint})


@pytest.mark.parametrize(
    ("hint", "complaint"),
    [
        (set[int], "a set has no stable order"),
        (Mood, "Mood has no stored form"),
        (list[date], "date has no stored form"),
    ],
)
def test_so_are_those_of_records_inside_of_records(hint: Any, complaint: str) -> None:
    class Odd(NamedTuple):
        thing: hint  # type: ignore[valid-type]

    class Holder(NamedTuple):
        odd: dict[int, Odd]

    class Row(rs.State):
        odd: Odd | None = None

    scope = {"hint": hint, "Odd": Odd}
    with pytest.raises(GraphError, match=f"Odd.thing: .*{complaint}"):
        record_schema(Holder, scope)
    with pytest.raises(GraphError, match=f"Odd.thing: .*{complaint}"):
        state_schema(Row, scope)


class Tree(NamedTuple):
    children: list[Tree]


def test_a_record_does_not_hold_itself() -> None:
    with pytest.raises(GraphError, match="Tree holds records of its own type"):
        record_schema(Tree)


def test_names_of_a_function_are_known_inside_of_records() -> None:
    class Leaf(NamedTuple):
        size: int

    class Twig(NamedTuple):
        leaves: list[Leaf]

    class Branch(NamedTuple):
        twig: Twig

    grown = [Branch(Twig([Leaf(1), Leaf(2)]))]
    columns = from_records(record_schema(Branch, locals()), grown)
    (back,) = columns.records()
    assert back == grown[0]
    assert type(back.twig.leaves[1]) is Leaf


def test_arrays_are_for_state() -> None:
    class Odd(NamedTuple):
        six: Annotated[list[int], rs.Array("i4", 6)]

    with pytest.raises(GraphError, match=r"Odd\.six: rs\.Array is for state rows"):
        record_schema(Odd)


def test_only_named_tuples_are_records() -> None:
    for cls in (int, tuple, dict):
        with pytest.raises(GraphError, match="is not a record"):
            record_schema(cls)
    with pytest.raises(GraphError, match="Nothing has no fields"):
        record_schema(NamedTuple("Nothing", []))


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
