"""Values of every kind in whole flows: as state, keys and event time, and what is refused."""

from __future__ import annotations

import enum
import importlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import raystream as rs
from raystream.controller.planning.time_units import DoubtfulTimeWarning, doubt
from raystream.errors import GraphError, InputError, OperatorError, StateError
from raystream.schema.records import record_schema
from raystream.schema.storing import from_columns, from_records
from raystream.state.kernels import key_groups
from raystream.state.keys import key_group
from raystream.testing import Collect, run_local

Money = Annotated[Decimal, rs.decimal(12, 2)]
NAIVE = datetime(2024, 1, 1)  # noqa: DTZ001 - what is to be refused
NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Order(NamedTuple):
    at: datetime
    user: str | None
    colour: Colour
    price: Money
    id: uuid.UUID


@dataclass(frozen=True)
class Sum:
    """A record that is a dataclass."""

    user: str | None
    colour: Colour
    total: Money
    last: datetime
    days: list[date]


class Book(rs.State):
    total: Money = Decimal(0)
    last: datetime = datetime(1970, 1, 1, tzinfo=UTC)
    longest: timedelta = timedelta(0)
    days: dict[date, int] = rs.field(factory=dict)
    ids: list[uuid.UUID] = rs.field(factory=list)
    means: list[float] = rs.field(factory=list)
    colour: Colour | None = None


@rs.operator(key=("user", "colour"))
def sums(order: Order, book: Book) -> Iterator[Sum]:
    found = f"{book.total!r} {book.longest!r} {book.days!r} {book.means!r} {book.colour!r}"
    assert "np." not in found  # what an epoch leaves is Python's
    book.total += order.price
    book.longest = max(book.longest, order.at - book.last)
    book.last = order.at
    book.days[order.at.date()] = np.int64(book.days.get(order.at.date(), 0) + 1)
    book.ids.append(order.id)
    book.means.append(np.mean(book.means or [0.5]))
    book.colour = order.colour
    yield Sum(order.user, order.colour, book.total, book.last, list(book.days))


def orders(n: int = 40) -> list[Order]:
    return [
        Order(
            NOON + timedelta(hours=5 * i),
            [None, "a", "b"][i % 3],
            list(Colour)[i % 2],
            Decimal(i) / 4,
            uuid.UUID(int=i),
        )
        for i in range(n)
    ]


@pytest.mark.parametrize("instances", [1, 3])
def test_a_flow_of_all_of_them_is_restored_to_what_it_was(instances: int) -> None:
    flow, sink = rs.Flow("kinds", key_groups=8, time_unit="us"), Collect()
    source = rs.io.iterable(orders(), Order)
    stream = flow.source(source, epochs=rs.by_time("at", seconds="10h"))
    stream.through(sums, name="sums").to(sink)
    run_local(flow, instances={"sums": instances}, checkpoint_every=1, check=True)
    found = sorted(sink.records(), key=lambda s: (s.last, str(s.user)))
    assert len(found) == 40
    assert all(type(s) is Sum and s.last.tzinfo is UTC for s in found)
    assert found[-1].total == sum(o.price for o in orders()[3::6])
    assert str(found[-1].total).count(".") == 1


@rs.operator(key="user", window=rs.tumbling(seconds="1d"), time="at")
class Daily:
    def process(self, order: Order, book: Book) -> None:
        book.total += order.price
        book.means.append(np.float64(1))

    def close(self, key: str | None, window: rs.Window, book: Book) -> Iterator[Sum]:
        at = datetime.fromtimestamp(window.start / 1e6, UTC)
        yield Sum(key, Colour.RED, book.total, at, [at.date()])


@pytest.mark.parametrize("disorder", [0, 7200])
def test_windows_of_datetimes(disorder: float) -> None:
    flow, sink = rs.Flow("kinds", time_unit="us"), Collect()
    source = rs.io.iterable(orders(), Order)
    stream = flow.source(source, epochs=rs.by_time("at", seconds="7h", disorder=disorder))
    stream.through(Daily(), name="daily").to(sink)
    run_local(flow, checkpoint_every=1, check=True)
    days = {(s.user, s.days[0]) for s in sink.records()}
    assert days == {(o.user, o.at.date()) for o in orders()}
    assert sum(s.total for s in sink.records()) == sum(o.price for o in orders())


def test_a_datetime_is_the_time_of_flows_that_count_microseconds() -> None:
    source = rs.io.iterable(orders(), Order)
    with pytest.raises(GraphError, match=r'counts microseconds(.|\n)*time_unit="us"'):
        rs.Flow("x").source(source, epochs=rs.by_time("at"))


@pytest.mark.parametrize(
    ("hint", "keys"),
    [
        (int | None, [None, 0, 1, -(2**63)]),
        (str | None, [None, "", "a"]),
        (bytes | None, [None, b"", b"a"]),
        (datetime, [NOON, datetime(1, 1, 1, tzinfo=UTC)]),
        (date | None, [None, date(1970, 1, 1), date(2024, 1, 1)]),
        (timedelta, [timedelta(0), timedelta(-5)]),
        (uuid.UUID, [uuid.UUID(int=3), uuid.UUID(int=2**127)]),
        (Colour | None, [None, *Colour]),
        (Literal["a", "b"], ["a", "b"]),
    ],
)
def test_keys_hash_alike_in_columns_and_in_python(hint: Any, keys: list[Any]) -> None:
    keyed: Any = NamedTuple("keyed", [("key", hint), ("n", int)])
    columns = from_records(record_schema(keyed), [keyed(k, 1) for k in keys])
    for groups in (1, 7, 256, 4096):
        one = key_groups([columns.key("key")], groups)
        assert one.tolist() == [key_group(k, groups) for k in keys]
        two = key_groups([columns.key("n"), columns.key("key")], groups)
        assert two.tolist() == [key_group((1, k), groups) for k in keys]


class Timed(NamedTuple):
    at: datetime


class Priced(NamedTuple):
    price: Annotated[Decimal, rs.decimal(5, 2)]


class Coloured(NamedTuple):
    colour: Colour


class Named(NamedTuple):
    id: uuid.UUID
    word: Literal["a", "b"]
    day: date | None


@pytest.mark.parametrize(
    ("record", "values", "complaint"),
    [
        (Timed, [NAIVE], r"Timed\.at: .* has no time zone(.|\n)*timezone\.utc"),
        (Timed, [pd.NaT], r"Timed\.at: NaT is no time(.|\n)*datetime \| None"),
        (Timed, [pd.Timestamp("2024-01-01T00:00:00.000000001Z")], "has nanoseconds(.|\n)*Round"),
        (Timed, [np.datetime64("NaT")], "NaT is no time"),
        (Timed, ["2024-01-01"], "is no datetime"),
        (Timed, [1], "is no datetime"),
        (Timed, np.array(["2024-01-01", "NaT"], "M8[us]"), "NaT is no|no datetime"),
        (Timed, np.array([1]), "is no datetime|does not fit|none of datetime"),
        (Timed, pa.array([NAIVE], pa.timestamp("us")), "has no time zone"),
        (Timed, [None], "declared optional"),
        (Priced, [Decimal("1000")], r"Priced\.price: .*more than 3 digits before(.|\n)*decimal\("),
        (Priced, [Decimal("0.001")], "more than 2 digits after the point(.|\n)*Round it"),
        (Priced, [Decimal("NaN")], "is no number"),
        (Priced, [0.5], r"is no Decimal(.|\n)*Decimal\(str"),
        (Priced, pa.array([Decimal("1000.0")]), r"Priced\.price: "),
        (Coloured, ["blue"], "is no Colour(.|\n)*RED=red"),
        (Coloured, pa.array(["blue"]), "is no Colour"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_do(
    record: Any, values: Any, complaint: str
) -> None:
    with pytest.raises(StateError, match=complaint):
        from_columns(record_schema(record), {record._fields[0]: values})


def test_state_that_does_not_fit_is_refused_at_once() -> None:
    @rs.operator(key="n")
    def op(tick: Tick, book: Book) -> Iterator[Tick]:
        book.last = NAIVE
        yield tick

    flow = rs.Flow("x")
    flow.source(rs.io.iterable([Tick(0, 1)], Tick)).through(op).to(Collect())
    with pytest.raises(OperatorError, match=r"Book\.last: .* has no time zone"):
        flow.run()


class Tick(NamedTuple):
    time: int
    n: int


def test_numpy_and_pandas_scalars_are_taken_wherever_pythons_are() -> None:
    class All(NamedTuple):
        at: datetime
        day: date
        lasted: timedelta
        numbers: list[int]
        means: dict[str, float | None]
        times: list[datetime]

    rows = [
        All(
            pd.Timestamp("2024-01-01T12:00Z"),
            np.datetime64("2024-01-01"),
            pd.Timedelta("5min"),
            [np.int64(1), np.int8(2), True],
            {"a": np.float32(0.5), "b": np.float64(1)},
            [np.datetime64("2024-01-01T12:00:00"), pd.Timestamp("2024-01-01T13:00+01:00")],
        )
    ]
    (found,) = from_records(record_schema(All), rows).records()
    assert found == (
        NOON,
        date(2024, 1, 1),
        timedelta(minutes=5),
        [1, 2, True],
        {"a": 0.5, "b": 1.0},
        [NOON, NOON],
    )
    assert "np." not in repr(found)
    assert "Timestamp" not in repr(found)


def test_times_in_a_batch_are_numpys() -> None:
    @rs.operator
    def later(batch: rs.Batch[Timed]) -> rs.Batch[Timed]:
        assert batch["at"].dtype == np.dtype("M8[us]")
        return rs.Batch(Timed, {"at": batch["at"] + np.timedelta64(1, "h")})

    flow, sink = rs.Flow("x"), Collect()
    flow.source(rs.io.iterable([Timed(NOON)], Timed)).through(later).to(sink)
    flow.run()
    assert sink.records() == [Timed(NOON + timedelta(hours=1))]


def test_compiled_operators_refuse_them_with_what_to_do() -> None:
    @rs.operator(key="at", compiled=True)
    def op(timed: Timed, tally: Tally) -> Iterator[Timed]:
        yield timed

    with pytest.raises(GraphError, match=r"Timed\.at: datetime(.|\n)*Count time in an int"):
        rs.Flow("x").source(rs.io.iterable([], Timed)).through(op)


class Tally(rs.State):
    n: int = 0


# ---------------------------------------------------------------- as files have time


class Local(NamedTuple):
    at: Annotated[datetime, rs.timestamp("%d.%m.%Y %H:%M", zone="Europe/Berlin")]


class Counted(NamedTuple):
    at: Annotated[datetime, rs.timestamp(unit="s")]


class Naive(NamedTuple):
    at: Annotated[datetime, rs.timestamp(zone="UTC")]


class Whole(NamedTuple):
    at: int


def read(source: Any, unit: str = "us") -> list[Any]:
    flow, sink = rs.Flow("x", time_unit=unit), Collect()  # type: ignore[arg-type]
    flow.source(source, epochs=rs.by_time("at", seconds=1)).to(sink)
    flow.run()
    return [r.at for r in sink.records()]


@pytest.mark.parametrize(
    ("record", "cell"),
    [
        (Timed, "2024-01-01T12:00:00Z"),
        (Timed, "2024-01-01 13:00:00+01:00"),
        (Local, "01.01.2024 13:00"),
        (Counted, "1704110400"),
        (Counted, "1704110400.0"),
        (Naive, "2024-01-01 12:00"),
    ],
)
def test_time_as_text_has_it(record: Any, cell: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"at\n{cell}\n")
    shown = cell if cell[:4] == "1704" else f'"{cell}"'
    (tmp_path / "x.jsonl").write_text(f'{{"at": {shown}}}\n')
    assert read(rs.io.csv(tmp_path / "x.csv", record)) == [NOON]
    assert read(rs.io.json(tmp_path / "x.jsonl", record)) == [NOON]


@pytest.mark.parametrize(
    ("record", "column", "expected"),
    [
        (Timed, pa.array([NOON], pa.timestamp("ns", "America/New_York")), NOON),
        (Timed, pa.array([NOON], pa.timestamp("s", "UTC")), NOON),
        (Naive, pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ms")), NOON),
        (Counted, pa.array([1704110400]), NOON),
        (Counted, pa.array([1704110400.0]), NOON),
        (Whole, pa.array([NOON], pa.timestamp("us", "UTC")), 1704110400_000_000),
        (Whole, pa.array([NOON.replace(tzinfo=None)], pa.timestamp("ms")), 1704110400_000_000),
        (Whole, pa.array([date(1970, 1, 3)]), 2),
    ],
)
def test_time_as_parquet_has_it(record: Any, column: Any, expected: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"at": column}), tmp_path / "x.parquet")
    assert read(rs.io.parquet(tmp_path / "x.parquet", record)) == [expected]


@pytest.mark.parametrize(("nanos", "micros"), [(1_999, 1), (-1, -1), (-1_000, -1), (None, None)])
def test_nanoseconds_of_files_are_cut_off(nanos: int | None, micros: int, tmp_path: Path) -> None:
    class Both(NamedTuple):
        at: datetime | None
        took: timedelta | None

    kinds = pa.timestamp("ns", "America/New_York"), pa.duration("ns")
    columns = [pa.array([nanos], kind) for kind in kinds]
    pq.write_table(pa.table(columns, ["at", "took"]), tmp_path / "x.parquet")
    took = None if nanos is None else timedelta(microseconds=micros)
    at = None if took is None else datetime(1970, 1, 1, tzinfo=UTC) + took
    sink, flow = Collect(), rs.Flow("x")
    flow.source(rs.io.parquet(tmp_path / "x.parquet", Both)).to(sink)
    flow.run()
    assert sink.records() == [Both(at, took)]


def test_times_that_the_unit_of_the_flow_cannot_hold_are_refused(tmp_path: Path) -> None:
    late = NOON + timedelta(milliseconds=1)
    pq.write_table(
        pa.table({"at": pa.array([late], pa.timestamp("ms", "UTC"))}), tmp_path / "x.parquet"
    )
    with pytest.raises(InputError, match=r'no whole numbers of s(.|\n)*time_unit="ms"'):
        read(rs.io.parquet(tmp_path / "x.parquet", Whole), "s")


def test_text_without_a_zone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("at\n2024-01-01 12:00:00\n")
    with pytest.raises(InputError, match=r"x\.csv, line 2: 'at' is .*does not fit at: datetime"):
        read(rs.io.csv(tmp_path / "x.csv", Timed))


@pytest.mark.parametrize(
    ("first", "ticks", "words"),
    [
        (1_700_000_000_000, 1, "in the year 55,840, and in ms 2023-11-14 22:13:20"),
        (1_700_000_000, 1_000, "1970-01-20 16:13:20, and in s 2023-11-14 22:13:20"),
        (1_700_000_000_000_000, 1_000, "in the year 55,840, and in us 2023-11-14"),
        (1_700_000_000, 1, ""),
        (0, 1, ""),
        (-5, 1_000, ""),
        (2**62, 1, ""),
        (86_400, 1_000, ""),
    ],
)
def test_times_in_another_unit_than_the_flow_are_doubted(
    first: int, ticks: int, words: str
) -> None:
    found, unit = doubt(first, ticks)
    assert words in found
    assert bool(words) == bool(found)
    assert f"in {unit} 2023" in found or not words


@pytest.mark.parametrize(("unit", "likely"), [("s", "ms"), ("ms", "s"), ("us", "s")])
def test_a_flow_warns_of_times_in_another_unit_and_says_which(unit: Any, likely: str) -> None:
    flow = rs.Flow("x", time_unit=unit)
    rows = [Tick(1_700_000_000 * (1000 if likely == "ms" else 1), 1)]
    flow.source(rs.io.iterable(rows, Tick), epochs=rs.by_time(seconds=1)).to(Collect())
    wanted = rf'in {likely} 2023-11-14(.|\n)*time_unit="{likely}"'
    with pytest.warns(DoubtfulTimeWarning, match=wanted) as told:
        flow.run()
    assert told[0].filename == __file__


# ---------------------------------------------------------------- what others make of it


@pytest.mark.parametrize("reader", ["pyarrow", "pandas", "polars", "duckdb"])
def test_others_read_parquet_as_it_was_meant(reader: str, tmp_path: Path) -> None:
    library = importlib.import_module(reader)
    flow = rs.Flow("x", time_unit="us")
    flow.source(rs.io.iterable(orders(3), Order)).to(rs.io.parquet(tmp_path / "out"))
    flow.run()
    (part,) = (p.path for p in rs.io.parts(tmp_path / "out"))
    if reader == "pyarrow":
        rows = pq.read_table(part).to_pylist()
    elif reader == "pandas":
        rows = library.read_parquet(part, dtype_backend="pyarrow").to_dict("records")
    elif reader == "polars":
        rows = library.read_parquet(part).to_dicts()
    else:
        found = library.sql(f"set timezone = 'UTC'; select * from '{part}'")
        rows = [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]
    for row, order in zip(rows, orders(3), strict=True):
        assert row["at"] == order.at
        assert row["price"] == order.price
        assert row["colour"] == order.colour.value
        assert (None if pd.isna(row["user"]) else row["user"]) == order.user
        assert row["id"] in (order.id, order.id.bytes)
