"""What Arrow and Parquet hold in columns and inside of nested ones: read alike, or refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import make_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raystream as rs
from raystream.errors import GraphError, InputError, StateError
from raystream.testing import Collect

ZERO = datetime(1970, 1, 1, tzinfo=UTC)
NANOS = 1_700_000_000_123_456_789
MOMENT = datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
ID = "12345678-1234-5678-1234-567812345678"
Cents = Annotated[Decimal, rs.decimal(10, 2)]
NewYork = Annotated[datetime, rs.timestamp(zone="America/New_York")]
Millis = Annotated[datetime, rs.timestamp(unit="ms")]
Nanos = Annotated[datetime, rs.timestamp(unit="ns")]


def times(kind: Any, *values: int) -> pa.Array:
    return pa.array(values, pa.int64()).view(kind)


def listed(array: pa.Array) -> pa.Array:
    """A list of each value, and None and an empty list between them; the first one is cut off."""
    n = len(array)
    starts = [0, *(at for at in range(n) for _ in range(3)), n]
    mask = pa.array([False, *(k == 1 for _ in range(n) for k in range(3))])
    return pa.ListArray.from_arrays(pa.array(starts, pa.int32()), array, mask=mask)


Wrap = Callable[[pa.Array], pa.Array]
PLACES: dict[str, tuple[Wrap, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "column": (lambda a: a, lambda t: t, lambda v: v),
    "dictionary": (lambda a: a.dictionary_encode(), lambda t: t, lambda v: v),
    "list": (
        lambda a: pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), a),
        lambda t: list[t],
        lambda v: [v],
    ),
    "large list": (
        lambda a: pa.LargeListArray.from_arrays(pa.array([0, 1], pa.int64()), a),
        lambda t: list[t],
        lambda v: [v],
    ),
    "list of one size": (
        lambda a: pa.FixedSizeListArray.from_arrays(a, 1),
        lambda t: tuple[t, ...],
        lambda v: (v,),
    ),
    "struct": (
        lambda a: pa.StructArray.from_arrays([a], ["f0"]),
        lambda t: tuple[t],
        lambda v: (v,),
    ),
    "value of a map": (
        lambda a: pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), pa.array(["k"]), a),
        lambda t: dict[str, t],
        lambda v: {"k": v},
    ),
    "key of a map": (
        lambda a: pa.MapArray.from_arrays(pa.array([0, 1], pa.int32()), a, pa.array([1])),
        lambda t: dict[t, int],
        lambda v: {v: 1},
    ),
}
READ: dict[str, tuple[pa.Array, Any, Any]] = {
    "nanoseconds": (times(pa.timestamp("ns", "UTC"), NANOS), datetime, MOMENT),
    "nanoseconds before 1970": (
        times(pa.timestamp("ns", "UTC"), -1),
        datetime,
        ZERO - timedelta(microseconds=1),
    ),
    "a length in nanoseconds": (
        times(pa.duration("ns"), 1_234_567),
        timedelta,
        timedelta(microseconds=1234),
    ),
    "a time in a zone": (times(pa.timestamp("us", "+02:00"), NANOS // 1000), datetime, MOMENT),
    "a time without one": (times(pa.timestamp("ns"), NANOS), NewYork, MOMENT + timedelta(hours=5)),
    "milliseconds as a number": (pa.array([2500]), Millis, ZERO + timedelta(seconds=2.5)),
    "nanoseconds as a number": (pa.array([1999]), Nanos, ZERO + timedelta(microseconds=1)),
    "a time as text": (pa.array(["2023-11-14T22:13:20.123456789Z"]), datetime, MOMENT),
    "an id as text": (pa.array([ID]), UUID, UUID(ID)),
    "a decimal of more digits": (
        pa.array([Decimal("1.2300")], pa.decimal128(12, 4)),
        Cents,
        Decimal("1.23"),
    ),
    "a decimal as text": (pa.array(["1.2"]), Cents, Decimal("1.20")),
    "an int as a decimal": (pa.array([5]), Cents, Decimal("5.00")),
    "a decimal as a float": (pa.array([Decimal("1.25")]), float, 1.25),
    "an int as a float": (pa.array([(1 << 53) + 2]), float, float((1 << 53) + 2)),
    "half a float": (pa.array([1.5], pa.float16()), float, 1.5),
    "large text": (pa.array(["x"], pa.large_string()), str, "x"),
    "days": (pa.array([19723], pa.date32()), date, date(2024, 1, 1)),
}


def read(array: pa.Array, hint: Any, path: Path) -> list[Any]:
    record: Any = make_dataclass("Row", [("v", hint)], frozen=True)
    pq.write_table(pa.table({"v": array}), path)
    sink, flow = Collect(), rs.Flow("read")
    flow.source(rs.io.parquet(path, record)).to(sink)
    flow.run()
    return [row.v for _, row in sink.by_epoch()]


BUT = {("a length in nanoseconds", "dictionary")}  # Parquet has no lengths, and forgets these
TRIED = [(what, place) for what in READ for place in PLACES if (what, place) not in BUT]


@pytest.mark.parametrize(("what", "place"), TRIED)
def test_a_value_is_read_alike_wherever_it_is(what: str, place: str, tmp_path: Path) -> None:
    array, hint, wanted = READ[what]
    wrap, hinted, made = PLACES[place]
    (found,) = read(wrap(array), hinted(hint), tmp_path / "rows.parquet")
    assert found == made(wanted)
    assert repr(found) == repr(made(wanted))


REFUSED: dict[str, tuple[pa.Array, Any]] = {
    "after the last year": (times(pa.timestamp("s", "UTC"), 1 << 43), datetime),
    "the date of no year": (pa.array([10_000_000], pa.date32()), date),
    "a time without a zone": (times(pa.timestamp("us"), 1), datetime),
    "a cut decimal": (pa.array([Decimal("1.234")]), Cents),
    "a large decimal": (pa.array([Decimal(10**12)], pa.decimal128(20, 2)), Cents),
    "a large int as a decimal": (pa.array([10**12]), Cents),
    "a time as a date": (times(pa.timestamp("us", "UTC"), 1), date),
    "text that is no id": (pa.array(["x"]), UUID),
    "a fraction as an int": (pa.array([1.5]), int),
    "bytes as text": (pa.array([b"x"]), str),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("what", REFUSED)
def test_a_value_that_would_change_is_refused_with_its_column(
    what: str, place: str, tmp_path: Path
) -> None:
    array, hint = REFUSED[what]
    wrap, hinted, _ = PLACES[place]
    with pytest.raises(InputError, match=r"'v'|Row\.v"):
        read(wrap(array), hinted(hint), tmp_path / "rows.parquet")


def test_lists_that_are_none_or_empty_or_cut_off_keep_their_nanoseconds_apart(
    tmp_path: Path,
) -> None:
    array = listed(times(pa.timestamp("ns", "UTC"), NANOS, NANOS + 5_000))
    found = read(array.slice(1), list[datetime] | None, tmp_path / "rows.parquet")
    later = MOMENT + timedelta(microseconds=5)
    assert found == [[], None, [MOMENT], [], None, [later]]


class Mixed(NamedTuple):
    parts: list[int | str]


def test_a_part_that_has_no_column_is_refused_with_the_name_of_the_field(tmp_path: Path) -> None:
    flow = rs.Flow("mixed")
    with pytest.raises(GraphError, match=r"^parts: a column of a file is of one type"):
        flow.source(rs.io.iterable([Mixed([1])], Mixed)).to(rs.io.parquet(tmp_path / "out"))


class Dated(NamedTuple):
    day: date


class Named(NamedTuple):
    id: UUID


class Listed(NamedTuple):
    days: list[date]


class Paid(NamedTuple):
    cents: Cents


@pytest.mark.parametrize(
    ("record", "array", "why"),
    [
        (Dated, times(pa.timestamp("us", "UTC"), NANOS // 1000), "none of date"),
        (Named, pa.array([ID]), "string does not fit UUID"),
        (Named, pa.array([b"x"]), "binary does not fit UUID"),
        (Listed, pa.array([[10_000_000]], pa.list_(pa.date32())), "Listed.days: date value out"),
        (Paid, pa.array([10**12]), "precision 10"),
    ],
)
def test_a_batch_refuses_an_array_that_would_change(record: Any, array: Any, why: str) -> None:
    with pytest.raises(StateError, match=why):
        rs.Batch(record, {record._fields[0]: array})


def test_a_batch_takes_an_array_of_ints_as_decimals() -> None:
    batch = rs.Batch(Paid, {"cents": pa.array([5, 7], pa.uint64())})
    assert list(batch) == [Paid(Decimal("5.00")), Paid(Decimal("7.00"))]


class Part(NamedTuple):
    n: int
    tag: str | None = None
    unit: str = "km"


class Whole(NamedTuple):
    part: Part
    parts: list[Part]
    by_name: dict[str, Part]


def test_a_part_that_a_file_lacks_is_its_default(tmp_path: Path) -> None:
    """As a column that a file lacks, and as in JSON: files from before a field was added."""
    old = pa.struct([("n", pa.int64())])
    columns = {
        "part": pa.array([{"n": 1}], old),
        "parts": pa.array([[{"n": 2}, {"n": 3}]], pa.list_(old)),
        "by_name": pa.array([[("a", {"n": 4})]], pa.map_(pa.string(), old)),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text(
        '{"part": {"n": 1}, "parts": [{"n": 2}, {"n": 3}], "by_name": {"a": {"n": 4}}}'
    )
    one, two, three, four = (Part(n) for n in (1, 2, 3, 4))
    files = tmp_path / "a.parquet", tmp_path / "a.jsonl"
    for source in (rs.io.parquet(files[0], Whole), rs.io.json(files[1], Whole)):
        sink, flow = Collect(), rs.Flow("lacking")
        flow.source(source).to(sink)
        flow.run()
        assert sink.records() == [Whole(one, [two, three], {"a": four})]
    lacking = pa.array([{"tag": "x"}], pa.struct([("tag", pa.string())]))
    pq.write_table(pa.table({**columns, "part": lacking}), tmp_path / "a.parquet")
    flow = rs.Flow("refused")
    flow.source(rs.io.parquet(files[0], Whole)).to(Collect())
    with pytest.raises(InputError, match="the column 'part' holds struct<tag: string>"):
        flow.run()
