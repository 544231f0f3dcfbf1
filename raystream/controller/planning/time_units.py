"""Finds times that are in another unit than the flow, by the first time of a source."""

from __future__ import annotations

import warnings
from datetime import UTC, datetime
from fractions import Fraction

from raystream.errors import Where

UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_LIKELY = range(2000, 2101)
"""The years in which the times of a source are likely to be."""
_EARLY, _LATE = 1973, 2200
"""Times outside of these years are unlikely. Times that count from a zero point of their own are
early."""
_YEAR = 31_556_952
"""Seconds in a mean year."""


class DoubtfulTimeWarning(UserWarning):
    """The times of a source seem to be in another unit than the flow."""


def doubt(first: int, ticks: int) -> tuple[str, str]:
    """What is odd about a time, and what it would be in another unit, in words, and that unit;
    empty if the time is likely.

    Args:
        first: the time.
        ticks: how many of its units a second has.
    """
    seconds = Fraction(first, ticks)
    if seconds <= 0 or _EARLY <= _year(seconds) <= _LATE:
        return "", ""
    for unit, other in UNITS.items():
        coarser = other < ticks
        if coarser == (_year(seconds) < _EARLY) and _year(Fraction(first, other)) in _LIKELY:
            words = f"it is {_shown(seconds)}, and in {unit} {_shown(Fraction(first, other))}"
            return words, unit
    return "", ""


def warn_of(source: str, first: int, ticks: int, where: Where) -> None:
    """Warn, at the user's line, of a first time that seems to be in another unit."""
    words, likely = doubt(first, ticks)
    if words:
        unit = next((u for u, n in UNITS.items() if n == ticks), f"1/{ticks} s")
        warnings.warn_explicit(
            f"the first time of {source} is {first}: in {unit}, the unit of the flow, {words}."
            f' Say which it is: rs.Flow(..., time_unit="{likely}"), or rs.by_time(ticks=...).',
            DoubtfulTimeWarning,
            where.file,
            where.line,
        )


def _year(seconds: Fraction) -> int:
    return 1970 + int(seconds // _YEAR)


def _shown(seconds: Fraction) -> str:
    if _year(seconds) > 9998:
        return f"in the year {_year(seconds):,}"
    return f"{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%d %H:%M:%S}"
