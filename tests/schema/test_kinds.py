"""Values of every kind come back as they were, from columns, blocks, images and files."""

from __future__ import annotations

import enum
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NewType

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import raystream as rs
from raystream.schema.buffers import blocks_of, columns_in, padded
from raystream.schema.columns import Columns, concat
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import KeyRange
from tests.io.kinds import batch

UserId = NewType("UserId", int)
Money = Annotated[Decimal, rs.decimal(12, 2)]


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


class Shape(enum.Enum):
    """Of values that are neither all ints nor all text: it is stored by name."""

    ROUND = (1, 1)
    SQUARE = "4"


class Size(enum.StrEnum):
    SMALL = "s"
    LARGE = "l"


class Flat(NamedTuple):
    """What any file can hold."""

    time: int
    at: datetime
    maybe_at: datetime | None
    day: date
    maybe_day: date | None
    lasted: timedelta
    maybe_lasted: timedelta | None
    price: Money
    maybe_price: Money | None
    large: Annotated[Decimal, rs.decimal(38, 18)]
    id: uuid.UUID
    maybe_id: uuid.UUID | None
    colour: Colour
    level: Level
    shape: Shape
    size: Size
    maybe_size: Size | None
    word: Literal["a", "b"]
    number: Literal[1, 2, None]
    user: UserId


@dataclass(frozen=True)
class Stay:
    began: datetime
    lasted: timedelta | None = None


class Deep(NamedTuple):
    """What lists and records of these are."""

    time: int
    times: list[datetime]
    prices: dict[str, Money]
    by_day: dict[date, list[timedelta]]
    ids: tuple[uuid.UUID, ...]
    colours: list[Colour]
    shapes: dict[str, Shape | None]
    stay: Stay
    stays: list[Stay]
    maybe: Stay | None


class Any_(NamedTuple):
    """What is of one of several types."""

    time: int
    some: list[int | str | datetime | None]
    other: int | Colour
    more: dict[str, float | bytes | list[int]]
    one: Literal["a", 1]


TIMES = st.datetimes(timezones=st.just(UTC)).map(lambda t: t.replace(fold=0))
DAYS = st.dates()
LENGTHS = st.timedeltas(timedelta(days=-90_000_000), timedelta(days=90_000_000))
MONEY = st.decimals("-9999999999.99", "9999999999.99", places=2).map(lambda d: d or abs(d))
LARGE = st.decimals("-" + "9" * 20, "9" * 20, places=18).map(lambda d: d or abs(d))
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=6)
INTS = st.integers(-(2**63), 2**63 - 1)
NONE = st.none()

FLAT: Any = st.builds(
    Flat,
    INTS,
    TIMES,
    NONE | TIMES,
    DAYS,
    NONE | DAYS,
    LENGTHS,
    NONE | LENGTHS,
    MONEY,
    NONE | MONEY,
    LARGE,
    st.uuids(),
    NONE | st.uuids(),
    st.sampled_from(Colour),
    st.sampled_from(Level),
    st.sampled_from(Shape),
    st.sampled_from(Size),
    NONE | st.sampled_from(Size),
    st.sampled_from(["a", "b"]),
    st.sampled_from([1, 2, None]),
    INTS.map(UserId),
)
STAY = st.builds(Stay, TIMES, NONE | LENGTHS)
DEEP: Any = st.builds(
    Deep,
    INTS,
    st.lists(TIMES, max_size=3),
    st.dictionaries(TEXT, MONEY, max_size=2),
    st.dictionaries(DAYS, st.lists(LENGTHS, max_size=2), max_size=2),
    st.lists(st.uuids(), max_size=2).map(tuple),
    st.lists(st.sampled_from(Colour), max_size=3),
    st.dictionaries(TEXT, NONE | st.sampled_from(Shape), max_size=2),
    STAY,
    st.lists(STAY, max_size=2),
    NONE | STAY,
)
ANY: Any = st.builds(
    Any_,
    INTS,
    st.lists(INTS | TEXT | TIMES | NONE, max_size=4),
    INTS | st.sampled_from(Colour),
    st.dictionaries(TEXT, st.floats(allow_nan=False) | st.binary(max_size=3) | st.lists(INTS)),
    st.sampled_from(["a", 1]),
)
ROWS = st.sampled_from([(Flat, FLAT), (Deep, DEEP), (Any_, ANY)]).flatmap(
    lambda pair: st.tuples(st.just(pair[0]), st.lists(pair[1], min_size=1, max_size=5))
)


def exactly(values: Any) -> list[str]:
    """Values with all that tells them apart: equal ones may differ in zone, digits or type."""
    return [f"{value!r}" for value in values]


@given(ROWS)
def test_records_come_back_from_columns_and_blocks(made: Any) -> None:
    record, rows = made
    columns = from_records(record_schema(record), rows)
    assert exactly(columns.records()) == exactly(rows)
    for cut in (columns, columns.slice(1, len(rows)), concat([columns, columns])):
        if len(cut):
            assert exactly(shipped(cut).records()) == exactly(cut.records())
    assert exactly(columns.take(np.arange(len(rows))[::-1]).records()) == exactly(rows[::-1])


def shipped(columns: Columns) -> Columns:
    """Columns that crossed a socket."""
    blocks = blocks_of(columns)
    memory = np.frombuffer(b"".join(padded(blocks)), np.uint8)
    return columns_in(columns.schema, len(columns), [len(b) for b in blocks], memory)


@given(ROWS)
def test_what_a_batch_shows_makes_the_same_batch(made: Any) -> None:
    record, rows = made
    seen = batch(record, rows) if issubclass(record, tuple) else None
    assert seen is not None
    again = rs.Batch(record, {n: seen[n] for n in record._fields})
    assert exactly(again.records()) == exactly(rows)


@settings(max_examples=40, deadline=None)
@given(
    made=st.sampled_from(["parquet", "csv", "json"]).flatmap(
        lambda form: st.tuples(
            st.just(form),
            ROWS
            if form == "json"
            else st.tuples(st.just(Flat), st.lists(FLAT, min_size=1, max_size=5)),
        )
    )
)
def test_records_come_back_from_files(made: Any, tmp_path_factory: Any) -> None:
    form, (record, rows) = made
    assert exactly(through_files(form, record, rows, tmp_path_factory.mktemp("x"))) == exactly(rows)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(DEEP, min_size=1, max_size=4))
def test_nested_records_come_back_from_parquet(rows: Any, tmp_path_factory: Any) -> None:
    found = through_files("parquet", Deep, rows, tmp_path_factory.mktemp("x"))
    assert exactly(found) == exactly(rows)


def through_files(form: str, record: Any, rows: list[Any], folder: Path) -> list[Any]:
    """Records that were written by a sink, in two epochs of which one is cut off, and read."""
    sink = getattr(rs.io, form)(folder)
    sink.open(context())
    half = len(rows) // 2
    for epoch, some in ((1, rows[:half]), (2, rows[half:])):
        sink.write(epoch, KeyRange(0, 256), batch(record, some))
    sink.prepare(2)
    sink.commit(2)
    return [r for b in rs.io.read_parts(folder, record, partial=True) for r in b.records()]


def context() -> rs.SinkContext:
    return rs.SinkContext("run", "sink", KeyRange(0, 256), None, 0, None)
