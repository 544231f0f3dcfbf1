"""What a client pushes is what the record of the job holds."""

from __future__ import annotations

import enum
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pytest

from raystream import decimal
from raystream.errors import InputError
from raystream.io.push.bodies import decoded
from raystream.push import _object, _plain


def pushed(record: type, **columns: Any) -> list[Any]:
    table, sink = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    body = sink.getvalue().to_pybytes()
    return [*decoded(record, body, arrow=True, most=1 << 20).records()]


class Text(NamedTuple):
    text: str | None
    pair: list[int]


PAIRS = pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int64(), 2))


def test_views_and_lists_of_one_size_are_taken() -> None:
    long = "long enough to be elsewhere"
    views = pa.array(["cut", "a", None, long], pa.string_view()).slice(1)
    expected = [Text("a", [1, 2]), Text(None, [3, 4]), Text(long, [5, 6])]
    assert pushed(Text, text=views, pair=PAIRS) == expected


def test_many_views_of_one_long_text_are_refused() -> None:
    data = pa.py_buffer(b"x" * 100_000)
    view = (100_000).to_bytes(4, "little") + b"xxxx" + bytes(8)
    many = pa.Array.from_buffers(pa.string_view(), 100, [None, pa.py_buffer(view * 100), data])
    assert many.nbytes < 1 << 18
    with pytest.raises(InputError, match="'text' has more than 1,048,576 bytes"):
        pushed(Text, text=many, pair=pa.array([[0, 0]] * 100, pa.list_(pa.int64(), 2)))


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Shape(enum.Enum):
    ROUND = 1
    OBLONG = (2, 3)


class Event(NamedTuple):
    at: datetime
    day: date
    took: timedelta
    price: Annotated[Decimal, decimal(25, 2)]
    id: UUID
    colour: Colour
    shape: Shape
    raw: bytes


def test_values_of_all_kinds_come_as_they_were() -> None:
    events = [
        Event(
            datetime(2024, 1, 1, 12, tzinfo=UTC),
            date(2024, 1, 1),
            took,
            Decimal("12345678901234567.89"),
            UUID(int=5),
            Colour.BLUE,
            shape,
            bytes(range(256)),
        )
        for took, shape in [
            (timedelta(microseconds=-1), Shape.ROUND),
            (timedelta(days=100_000, microseconds=7), Shape.OBLONG),
            (timedelta(hours=1), Shape.OBLONG),
        ]
    ]
    body = "\n".join(json.dumps(_object(event), default=_plain) for event in events)
    assert [*decoded(Event, body.encode(), arrow=False)] == events
