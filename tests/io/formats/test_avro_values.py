"""Values of messages that do not fit are refused: Arrow would cut them off without a word."""

from __future__ import annotations

import enum
import io
import json
from dataclasses import make_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import pytest

import raystream as rs
from raystream.errors import InputError

fastavro = pytest.importorskip("fastavro")
LONG_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 1}
LOCAL = {"type": "long", "logicalType": "local-timestamp-micros"}
MICROS = {"type": "long", "logicalType": "timestamp-micros"}


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


def decoded(hint: Any, schema: Any, *values: Any) -> list[Any]:
    record = make_dataclass("record", [("x", hint)], frozen=True)
    whole = {"type": "record", "name": "R", "fields": [{"name": "x", "type": schema}]}
    parsed, messages = fastavro.parse_schema(whole), []
    for value in values:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, {"x": value})
        messages.append(buffer.getvalue())
    codec = rs.io.formats.avro(schema=json.dumps(whole)).codec(record)
    return [r.x for r in codec.decode(messages).records()]


NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
CUT = [
    (int, "double", 1.5),
    (int, LONG_DECIMAL, Decimal("1.5")),
    (rs.Int8, "float", 0.5),
    (list[int], {"type": "array", "items": "double"}, [1.0, 2.5]),
    (dict[str, int], {"type": "map", "values": "double"}, {"a": 2.5}),
    (rs.Float32, "double", 1e39),
    (date, MICROS, NOON),
    (date, "double", 5.0),
    (timedelta, "double", 0.5),
    (datetime, "long", 1_700_000_000),
    (datetime, LOCAL, NOON.replace(tzinfo=None)),
    (Colour, {"type": "enum", "name": "E", "symbols": ["RED"]}, "RED"),
]


@pytest.mark.parametrize(("hint", "schema", "value"), CUT)
@pytest.mark.parametrize("number", [1, 100])
def test_what_would_be_cut_off_is_refused(hint: Any, schema: Any, value: Any, number: int) -> None:
    with pytest.raises(InputError, match=r"'x' (is .*, which )?does not fit"):
        decoded(hint, schema, *[value] * number)


@pytest.mark.parametrize("unit", ["millis", "micros"])
@pytest.mark.parametrize("number", [1, 100])
def test_a_time_without_a_zone_is_in_the_one_that_the_record_says(unit: str, number: int) -> None:
    local = {"type": "long", "logicalType": f"local-timestamp-{unit}"}
    berlin = Annotated[datetime, rs.timestamp(zone="Europe/Berlin")]
    naive = NOON.replace(tzinfo=None)
    found = decoded(berlin | None, ["null", local], *[naive, None] * number)
    assert found == [NOON - timedelta(hours=1), None] * number
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": ["null", local]}]}
    record: Any = make_dataclass("record", [("x", berlin | None)], frozen=True)
    codec = rs.io.formats.avro(schema=schema).codec(record)
    again = codec.decode(codec.encode(rs.Batch(record, {"x": found})))
    assert [r.x for r in again.records()] == found
    record = make_dataclass("record", [("x", datetime | None)], frozen=True)
    codec = rs.io.formats.avro(schema=schema).codec(record)
    with pytest.raises(InputError, match="Avro has 'x' as a local-timestamp"):
        codec.encode(rs.Batch(record, {"x": found}))


def test_what_fits_is_taken() -> None:
    millis = Annotated[datetime, rs.timestamp(unit="ms")]
    assert decoded(int, "double", 7.0, -(2.0**53)) == [7, -(2**53)]
    assert decoded(list[int], {"type": "array", "items": "double"}, [7.0]) == [[7]]
    assert decoded(rs.Float32, "double", 0.5, float("inf")) == [0.5, float("inf")]
    assert decoded(millis, "long", int(1000 * NOON.timestamp())) == [NOON]
    assert decoded(millis, MICROS, NOON) == [NOON]
