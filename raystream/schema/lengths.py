"""Lengths of time as people write them: 300, timedelta(minutes=5), "5m"."""

from __future__ import annotations

import math
import re
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any

from raystream.errors import ConfigError, GraphError, caller

Seconds = float | timedelta | str
"""A number of seconds, a timedelta, or text such as "5m", "1h30m" or "250ms"."""

_UNITS = {
    "ns": Fraction(1, 1_000_000_000),
    "us": Fraction(1, 1_000_000),
    "ms": Fraction(1, 1_000),
    "s": Fraction(1),
    "m": Fraction(60),
    "min": Fraction(60),
    "h": Fraction(3_600),
    "d": Fraction(86_400),
    "w": Fraction(604_800),
}
_PART = r"(\d+(?:\.\d+)?)\s*(" + "|".join(sorted(_UNITS, key=len, reverse=True)) + r")\s*"
_TEXT = re.compile(f"(?:{_PART})+")


def seconds_of(
    call: str,
    name: str,
    value: Any,
    *,
    zero: bool = False,
    endless: bool = False,
    negative: bool = False,
    most: float = math.inf,
    error: type[GraphError | ConfigError] = GraphError,
) -> float:
    """A length of time in seconds: numbers as they are, so that whole ones stay so.

    Args:
        call: what was called, for messages; "" for an option of `run`.
        name: the parameter.
        zero: whether none at all is a length.
        endless: whether infinitely long is one.
        negative: whether it may be below zero.
        most: the longest that it may be, in seconds.
        error: what is raised.

    Raises:
        GraphError, ConfigError: it is no length of time.
    """
    minus = negative and isinstance(value, str) and value.strip().startswith("-")
    number = _number(value.strip()[1:] if minus else value)
    number = -number if minus and number is not None else number
    said = f"{call}({name}={value!r:.80})" if call else f"{name}={value!r:.80}"
    wanted = f"{'not below' if zero else 'above'} 0{'' if endless else ' and finite'}"
    wanted = "finite" if negative else wanted
    if number is None or math.isnan(number):
        raise error(
            f"{said} is no length of time",
            where=caller()[0],
            hint='Write a number of seconds, a timedelta, or text such as "5m", "1h30m", "250ms".',
        )
    if not (number > 0 or (zero and number == 0) or negative) or (
        math.isinf(number) and not endless
    ):
        raise error(f"{said}: must be {wanted}", where=caller()[0])
    if number > most:
        raise error(f"{said}: must not be above {most:g} s", where=caller()[0])
    return number


def wait_of(call: str, name: str, value: Any, *, zero: bool = True) -> float:
    """How long something waits for others, in seconds: a day at most.

    Raises:
        ConfigError: it is no such length of time.
    """
    return float(seconds_of(call, name, value, zero=zero, most=86_400, error=ConfigError))


def _number(value: Any) -> float | None:
    """Seconds, if a value says any."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return value
    if isinstance(value, timedelta):
        return _plain(Fraction(value // timedelta(microseconds=1), 1_000_000))
    if isinstance(value, str):
        text = value.strip().replace("µ", "u")
        if not _TEXT.fullmatch(text):
            return None
        parts = (Fraction(n) * _UNITS[unit] for n, unit in re.findall(_PART, text))
        return _plain(sum(parts, Fraction()))
    if isinstance(value, Real | Decimal):
        return float(value)
    return None


def _plain(exact: Fraction) -> float:
    return exact.numerator if exact.denominator == 1 else float(exact)
