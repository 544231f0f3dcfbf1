"""The kinds of times: datetimes, dates and lengths."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from math import floor
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from raystream.schema.types import TimeFormat
from raystream.schema.value_kind import INT64, Misfit, ValueKind

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = date(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


def micros(value: Any) -> int:
    """Microseconds since 1970 in UTC of an aware datetime, or of NumPy's datetime64, which counts
    in UTC."""
    if isinstance(value, np.datetime64):
        return _whole(value, "datetime64[us]")
    if not isinstance(value, datetime):
        raise Misfit(f"{value!r:.80} is no datetime")
    if value != value:  # pandas' NaT is a datetime
        raise Misfit("NaT is no time", "Declare `datetime | None`, and give None.")
    if getattr(value, "nanosecond", 0):
        raise Misfit(f"{value!r} has nanoseconds", "Round it to microseconds, which are stored.")
    if value.tzinfo is None or value.utcoffset() is None:
        raise Misfit(
            f"{value!r} has no time zone",
            "Say which it is in: value.replace(tzinfo=timezone.utc), datetime.now(timezone.utc).",
        )
    value = value.to_pydatetime() if hasattr(value, "to_pydatetime") else value
    return int((value - _EPOCH) // _MICROSECOND)


def days(value: Any) -> int:
    """Days since 1970 of a date."""
    if isinstance(value, np.datetime64):
        return _whole(value, "datetime64[D]")
    if value != value:
        raise Misfit("NaT is no date", "Declare `date | None`, and give None.")
    if not isinstance(value, date) or isinstance(value, datetime):
        raise Misfit(f"{value!r:.80} is no date", "A datetime has one: value.date().")
    return value.toordinal() - _DAY.toordinal()


def length(value: Any) -> int:
    """Microseconds of a timedelta."""
    if isinstance(value, np.timedelta64):
        return _whole(value, "timedelta64[us]")
    if not isinstance(value, timedelta):
        hint = "Declare `timedelta | None`, and give None." if value != value else ""
        raise Misfit(f"{value!r:.80} is no timedelta", hint)
    if getattr(value, "nanoseconds", 0):
        raise Misfit(f"{value!r} has nanoseconds", "Round it to microseconds, which are stored.")
    value = value.to_pytimedelta() if hasattr(value, "to_pytimedelta") else value
    found = int(value // _MICROSECOND)
    if found not in INT64:
        raise Misfit(f"{value!r} is longer than 292,000 years, which is what is stored")
    return found


def _whole(value: Any, unit: str) -> int:
    """A scalar of NumPy's in a unit, if it is a whole number of them."""
    if np.isnat(value):
        raise Misfit("NaT is no time", "Declare that it may be None, and give None.")
    made = value.astype(unit)
    if made != value:
        raise Misfit(f"{value!r} is no whole number of {unit.partition('[')[2].rstrip(']')}")
    return int(made.astype(np.int64))


def _moment(stored: int) -> datetime:
    return _EPOCH + timedelta(microseconds=stored)


def _day(stored: int) -> date:
    return date.fromordinal(stored + _DAY.toordinal())


def _lasting(stored: int) -> timedelta:
    return timedelta(microseconds=stored)


def _parsed_moment(text: str) -> datetime:
    return _moment(micros(datetime.fromisoformat(text.strip())))


def _zulu(value: datetime) -> str:
    return value.isoformat().replace("+00:00", "Z")


def _seconds(value: timedelta) -> str:
    """Seconds, exactly."""
    whole = length(value)
    sign, (seconds, rest) = "-" * (whole < 0), divmod(abs(whole), 1_000_000)
    return f"{sign}{seconds}.{rest:06d}".rstrip("0").rstrip(".")


def _parsed_length(text: str) -> timedelta:
    exact = Decimal(text.strip()).scaleb(6)
    if not exact.is_finite() or exact != exact.to_integral_value():
        raise Misfit(f"{text!r} is no whole number of microseconds")
    return _lasting(int(exact))


_FIRST, _LAST = micros(datetime.min.replace(tzinfo=UTC)), micros(datetime.max.replace(tzinfo=UTC))

MOMENT = ValueKind(
    name="datetime",
    python=datetime,
    stored="fixed",
    dtype="i8",
    store=micros,
    restore=_moment,
    exact=lambda v: type(v) is datetime and v.tzinfo is UTC and not v.fold,
    text=_zulu,
    parse=_parsed_moment,
    bounds=(_FIRST, _LAST),
    described=True,
)
DAY = ValueKind(
    name="date",
    python=date,
    stored="fixed",
    dtype="i4",
    store=days,
    restore=_day,
    exact=lambda v: type(v) is date,
    by_class=True,
    text=date.isoformat,
    parse=lambda text: date.fromisoformat(text.strip()),
    bounds=(days(date.min), days(date.max)),
    described=True,
)
LENGTH = ValueKind(
    name="timedelta",
    python=timedelta,
    stored="fixed",
    dtype="i8",
    store=length,
    restore=_lasting,
    exact=lambda v: type(v) is timedelta and v // _MICROSECOND in INT64,
    text=_seconds,
    parse=_parsed_length,
    described=True,
)


@cache
def moment_kind(written: TimeFormat) -> ValueKind:
    """The kind of a datetime field that files write otherwise than as ISO 8601 with a zone."""
    zone = None if written.zone is None else ZoneInfo(written.zone)
    per_second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}.get(written.unit or "")

    def parse(text: str) -> datetime:
        text = text.strip()
        if written.format is not None:
            found = datetime.strptime(text, written.format)  # noqa: DTZ007 - it gets its zone below
        elif per_second is not None:
            exact = Fraction(text) * 1_000_000 / per_second
            return _moment(floor(exact) if written.unit == "ns" else round(exact))
        else:
            found = datetime.fromisoformat(text)
        return _moment(
            micros(found if zone is None or found.tzinfo else found.replace(tzinfo=zone))
        )

    return replace(MOMENT, parse=parse, written=written)
