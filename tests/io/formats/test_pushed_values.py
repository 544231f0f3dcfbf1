"""What a client pushes is what the record of the job holds."""

from __future__ import annotations

import enum
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, NamedTuple
from uuid import UUID

from raystream import decimal
from raystream.io.push.bodies import decoded
from raystream.push import _object, _plain


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
