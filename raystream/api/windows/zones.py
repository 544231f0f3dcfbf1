"""When the clocks of a time zone change.

The changes are looked up once, when the window is declared, and travel with the operator in the
plan of the job. So all instances agree on them, whatever version of the time zone database is on
their machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo

from raystream.errors import GraphError
from raystream.schema.records import caller

FIRST_YEAR, LAST_YEAR = 1900, 2200
"""Before and after these years clocks are taken not to change."""
_RULES_SINCE = 2040
"""From this year on clocks change by rules, never twice within a week."""
_DAY, _WEEK = 86_400, 604_800
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, repr=False)
class Zone:
    """A time zone as a table."""

    name: str
    changes: tuple[int, ...]
    """When its clocks change, in seconds since 1970, ascending."""
    offsets: tuple[int, ...]
    """How many seconds they are ahead of UTC: before the first change, and from each change on."""

    def __repr__(self) -> str:
        return f"Zone({self.name!r})"


def zone_of(call: str, given: Any) -> Zone | None:
    """The table of a zone that a user names; None where no zone is named, or UTC.

    Args:
        call: what was called, for messages.

    Raises:
        GraphError: there is no such time zone.
    """
    if given is None:
        return None
    zone = given
    if isinstance(given, str):
        try:
            zone = ZoneInfo(given)
        except (ValueError, OSError, KeyError):
            zone = None
    if not isinstance(zone, tzinfo):
        raise GraphError(
            f"{call}(zone={given!r:.80}): there is no such time zone",
            where=caller()[0],
            hint='Name it as "America/New_York" or "Europe/Berlin"; where the machine has no time'
            " zones, install the package tzdata.",
        )
    table = _table(zone)
    return table if table.changes or table.offsets != (0,) else None


@lru_cache(maxsize=64)
def _table(zone: tzinfo) -> Zone:
    first = _seconds(datetime(FIRST_YEAR, 1, 1, tzinfo=UTC))
    rules = _seconds(datetime(_RULES_SINCE, 1, 1, tzinfo=UTC))
    last = _seconds(datetime(LAST_YEAR, 1, 1, tzinfo=UTC))
    changes: list[int] = []
    offsets = [_offset(zone, first)]
    before = first
    for at in (*range(first + _DAY, rules, _DAY), *range(rules, last, _WEEK)):
        if (offset := _offset(zone, at)) != offsets[-1]:
            changes.append(_first_with(zone, before, at, offset))
            offsets.append(offset)
        before = at
    return Zone(str(zone), tuple(changes), tuple(offsets))


def _first_with(zone: tzinfo, before: int, at: int, offset: int) -> int:
    """The first second after `before` at which the zone has the offset that it has at `at`."""
    while at - before > 1:
        middle = (before + at) // 2
        before, at = (before, middle) if _offset(zone, middle) == offset else (middle, at)
    return at


def _seconds(moment: datetime) -> int:
    return int((moment - _EPOCH).total_seconds())


def _offset(zone: tzinfo, at: int) -> int:
    """Seconds by which the clocks of a zone are ahead of UTC."""
    ahead = (_EPOCH + timedelta(seconds=at)).astimezone(zone).utcoffset()
    return 0 if ahead is None else int(ahead.total_seconds())
