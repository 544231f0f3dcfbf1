"""Window kinds. Sizes are in seconds, timedeltas or text such as "5m"; a flow
turns them into its own time unit."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import Any

from raystream.api.arguments import whole
from raystream.api.windows.zones import Zone, zone_of
from raystream.errors import GraphError, placed
from raystream.schema.lengths import Seconds, seconds_of
from raystream.schema.records import caller

_DAY, _WEEK = 86_400, 604_800
_MONDAY = -3 * _DAY  # 1970 began on a Thursday
_MOST = 100_000
_WINDOWS_MOST = 100_000


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of `seconds`, or of calendar months, that follow each other without a gap."""

    seconds: float
    """The length; 0 for months."""
    months: int = 0
    offset: float = 0.0
    """How many seconds after midnight in 1970, or after the first of a month, a window begins."""
    zone: Zone | None = None
    """Whose clocks are meant; None: UTC."""
    lateness: float = 0.0
    """For how many seconds a window that has closed is corrected."""
    early: float = 0.0
    """Seconds of event time between early results; 0: there are none."""


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of `seconds`, a new one every `every` seconds."""

    seconds: float
    every: float
    offset: float = 0.0
    zone: Zone | None = None
    lateness: float = 0.0


@dataclass(frozen=True, slots=True)
class Session:
    """Windows that last until a key was silent for `gap` seconds."""

    gap: float


@dataclass(frozen=True, slots=True)
class Counted:
    """Windows of a number of records of a key."""

    count: int


@dataclass(frozen=True, slots=True)
class Global:
    """One window for each key, which lasts to the end of the input."""

    early: float
    """Seconds of event time between early results; 0: there are none."""
    count: int
    """Records of a key between early results; 0: there are none."""


WindowKind = Tumbling | Sliding | Session | Counted | Global


@placed
def tumbling(
    *,
    seconds: Seconds | None = None,
    days: int | None = None,
    weeks: int | None = None,
    months: int | None = None,
    count: int | None = None,
    offset: Seconds = 0,
    zone: str | tzinfo | None = None,
    lateness: Seconds = 0,
    every: Seconds | None = None,
) -> Tumbling | Counted:
    """Windows that follow each other without a gap: of `seconds`; of days, weeks (from Monday) or
    months of the calendar; or of `count` records of a key. Give one of these.

    Args:
        offset: how much later each window begins, or earlier if it is negative: days with
            `offset="6h"` begin at 6 o'clock.
        zone: the time zone whose clocks are meant, such as `"America/New_York"`; UTC unless given.
            A day on which its clocks are set back has 25 hours.
        lateness: how long a window that has closed takes late records. It closes again then, and
            `close` is told that this is a `correction`.
        every: there is a result of each window every so often in event time, counted from its
            beginning, if records came since the last. `close` is told that it is `early`.
    """
    units = {"seconds": seconds, "days": days, "weeks": weeks, "months": months, "count": count}
    given = {name: value for name, value in units.items() if value is not None}
    if len(given) != 1:
        said = ", ".join(f"{n}={v!r:.80}" for n, v in given.items())
        raise GraphError(
            f"tumbling({said}): give one of {', '.join(units)}",
            where=caller()[0],
            hint='tumbling(seconds=10), tumbling(days=1, zone="Europe/Berlin").',
        )
    ((unit, value),) = given.items()
    if unit == "count":
        if offset != 0 or lateness != 0 or zone is not None or every is not None:
            raise GraphError(
                "tumbling(count=...) has no offset, zone, lateness or every: a window of records"
                " closes with its last one",
                where=caller()[0],
            )
        return Counted(whole("tumbling", "count", value, 1, 2**62))
    rest: dict[str, Any] = {
        "zone": zone_of("tumbling", zone),
        "lateness": seconds_of("tumbling", "lateness", lateness, zero=True),
        "early": 0.0 if every is None else seconds_of("tumbling", "every", every),
    }
    later = _offset("tumbling", offset)
    if unit == "seconds":
        return Tumbling(seconds_of("tumbling", "seconds", value), 0, later, **rest)
    many = whole("tumbling", unit, value, 1, _MOST)
    if unit == "months":
        return Tumbling(0.0, many, later, **rest)
    if unit == "weeks":
        return Tumbling(many * _WEEK, 0, _MONDAY + later, **rest)
    return Tumbling(many * _DAY, 0, later, **rest)


@placed
def sliding(
    *,
    seconds: Seconds,
    every: Seconds,
    offset: Seconds = 0,
    zone: str | tzinfo | None = None,
    lateness: Seconds = 0,
) -> Sliding:
    """Windows of `seconds`, a new one every `every` seconds. Where `every` is longer than
    `seconds`, a record between two windows is in none, and is left out.

    Args:
        offset, zone, lateness: as of `tumbling`.
    """
    length = seconds_of("sliding", "seconds", seconds)
    step = seconds_of("sliding", "every", every)
    if length > _WINDOWS_MOST * step:
        raise GraphError(
            f"sliding({seconds=!r}, {every=!r}): each record would be in {length / step:,.0f}"
            f" windows, and in each its key would have a row; {_WINDOWS_MOST:,} are the most",
            where=caller()[0],
            hint="Choose a longer every=.",
        )
    return Sliding(
        length,
        step,
        _offset("sliding", offset),
        zone_of("sliding", zone),
        seconds_of("sliding", "lateness", lateness, zero=True),
    )


@placed
def session(*, gap: Seconds) -> Session:
    """Windows that last until a key was silent for `gap` seconds.

    A record may join two sessions, so the operator needs `merge(self, into, other)`.
    """
    return Session(seconds_of("session", "gap", gap))


@placed
def global_window(*, every: Seconds | None = None, count: int | None = None) -> Global:
    """One window for each key, which closes at the end of the input.

    Args:
        every: there is a result every so often in event time, if records came since the last.
        count: there is a result after every `count` records of a key. `close` is told that such
            results are `early`. Give one of the two, or none.
    """
    if every is not None and count is not None:
        raise GraphError(
            "global_window takes every= or count=, not both",
            where=caller()[0],
            hint="The other may be a condition in `process`, which may yield too.",
        )
    return Global(
        0.0 if every is None else seconds_of("global_window", "every", every),
        0 if count is None else whole("global_window", "count", count, 1, 2**62),
    )


def is_triggered(window: WindowKind | None) -> bool:
    """Whether a window may close more than once, or closes by a count."""
    if isinstance(window, Counted | Global):
        return True
    if isinstance(window, Tumbling) and window.early:
        return True
    return isinstance(window, Tumbling | Sliding) and window.lateness > 0


def by_count(window: WindowKind | None) -> bool:
    """Whether records are counted."""
    return isinstance(window, Counted) or (isinstance(window, Global) and window.count > 0)


def _offset(call: str, given: Any) -> float:
    return seconds_of(call, "offset", given, zero=True, negative=True)


def in_words(window: WindowKind) -> str:
    """A kind of window, for people; equal for kinds that keep the same rows."""
    if isinstance(window, Session):
        return f"sessions with gaps of {window.gap:g} s"
    if isinstance(window, Counted):
        return f"windows of {window.count} records"
    if isinstance(window, Global):
        if window.count:
            return f"one window, a result every {window.count} records"
        return "one window" + f", a result every {window.early:g} s" * bool(window.early)
    words = f"{window.seconds:g} s"
    if isinstance(window, Tumbling) and window.months:
        words = f"{window.months} month{'s' * (window.months > 1)}"
    words = f"windows of {words}"
    if isinstance(window, Sliding):
        words += f" every {window.every:g} s"
    if window.offset:
        words += f", offset {window.offset:g} s"
    if window.zone is not None:
        words += f", in {window.zone.name}"
    if isinstance(window, Tumbling) and window.early:
        words += f", a result every {window.early:g} s"
    return words + (f", corrected for {window.lateness:g} s" if window.lateness else "")
