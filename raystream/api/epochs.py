"""How a source cuts its records into epochs: by event time or by arrival; and which field of a
stream is its event time."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal

from raystream.errors import GraphError, Where, placed
from raystream.schema.lengths import Seconds, seconds_of
from raystream.schema.records import RecordSchema, caller

AllIdle = Literal["stay", "advance"]
"""What the watermark does while all splits of a source are idle."""

UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


@dataclass(frozen=True, slots=True, kw_only=True)
class Epochs:
    """How a source cuts its records into epochs; made by `by_time` and `by_arrival`."""

    column: str | None
    """The field that epochs follow from; None by arrival."""
    seconds: float | None
    """The length of an epoch: in event time, or by arrival on the clock. None: it is chosen."""
    ticks: int = 1
    """Units of `column` per time unit of the flow."""
    speed: float | None = None
    """Event seconds per real second; None for as fast as the job goes."""
    disorder: float = 0.0
    """Seconds of event time by which the watermark stays behind."""
    origin: int | None = None
    """A value of `column` in epoch 1; None: the least first value of all splits."""
    time: str = "time"
    """The field that the watermark follows by arrival."""
    idle: float | None = None
    """By arrival: seconds of silence after which a split holds no watermark back; None: never."""
    max_ahead: float | None = None
    """Seconds of event time by which a record may be ahead of those before it in its split; None:
    by any."""
    ahead: Literal["refuse", "drop", "stream"] = "refuse"
    """What happens to a record that is further ahead."""
    all_idle: AllIdle = "stay"
    """By arrival: what the watermark does while all splits are idle."""


@placed
def by_time(
    column: str = "time",
    *,
    seconds: Seconds | None = None,
    ticks: int = 1,
    speed: float | None = None,
    disorder: Seconds = 0.0,
    origin: int | None = None,
    max_ahead: Seconds | None = None,
    ahead: Literal["refuse", "drop"] = "refuse",
) -> Epochs:
    """Cut recorded data by event time.

    Args:
        column: an integer field that (nearly) ascends within each split.
        seconds: the length of an epoch in event time. When not given, what passes in 10 ms of
            real time at `speed`, or a second without it; whole ticks of `column`, at least one.
        ticks: units of `column` per time unit of the flow.
        speed: event seconds per real second; None reads as fast as the job goes. An epoch is
            released when the last record that it can have is due: at its last tick.
        disorder: seconds of event time by which a record may be behind those before it; the
            watermark stays as far behind.
        origin: a value of `column` in epoch 1, the least first value of all splits when not given.
            Epochs begin at multiples of their length, and what is before the first is in it, too.
        max_ahead: seconds of event time by which a record may be ahead of the greatest time before
            it in its split. A record further ahead is taken for wrong: it moves neither the epoch
            nor the watermark. The first record of a split is always taken. Unless given, a record
            may be ahead by any length.
        ahead: `"refuse"` ends the job at such a record, `"drop"` leaves it out, and counts it.
            `ahead=True` of `Flow.source` makes a stream of such records.
    """
    _named_column("by_time", column)
    if speed is not None and not (
        isinstance(speed, Real) and not isinstance(speed, bool) and 0 < speed < math.inf
    ):
        raise GraphError(
            f"by_time({speed=}): must be above 0 and finite, a number", where=caller(2)[0]
        )
    if origin is not None and (not isinstance(origin, Integral) or isinstance(origin, bool)):
        raise GraphError(
            f"by_time({origin=}): must be a value of {column!r}, which is an integer field",
            where=caller(2)[0],
        )
    if not isinstance(ticks, Integral) or isinstance(ticks, bool) or ticks < 1:
        raise GraphError(
            f"by_time({ticks=}): there is at least one tick in a time unit of the flow, and a whole"
            " number of them",
            where=caller(2)[0],
        )
    return Epochs(
        column=column,
        seconds=None if seconds is None else seconds_of("by_time", "seconds", seconds),
        ticks=int(ticks),
        speed=speed,
        disorder=seconds_of("by_time", "disorder", disorder, zero=True),
        origin=None if origin is None else int(origin),
        max_ahead=_ahead("by_time", max_ahead, ahead),
        ahead=ahead,
    )


def _ahead(call: str, most: Any, ahead: Any) -> float | None:
    """By how many seconds a record may be ahead."""
    if not isinstance(ahead, str) or ahead not in ("refuse", "drop"):
        raise GraphError(
            f'{call}({ahead=!r:.80}): it is "refuse" or "drop"',
            where=caller()[0],
            hint="flow.source(..., ahead=True) makes a stream of such records.",
        )
    if most is None and ahead != "refuse":
        raise GraphError(
            f"{call}({ahead=!r}): no record is too far ahead unless you say by how much",
            where=caller()[0],
            hint=f'{call}(max_ahead="1d", {ahead=!r})',
        )
    return None if most is None else float(seconds_of(call, "max_ahead", most, zero=True))


@placed
def by_arrival(
    column: str = "time",
    *,
    seconds: Seconds = 0.05,
    disorder: Seconds = 0.0,
    idle: Seconds | None = None,
    all_idle: AllIdle = "stay",
    max_ahead: Seconds | None = None,
    ahead: Literal["refuse", "drop"] = "refuse",
) -> Epochs:
    """Cut by the clock: whatever was read in `seconds` is an epoch.

    The watermark follows the greatest value of `column`, an integer field, that was read,
    `disorder` seconds behind; of several splits the slowest decides. Without such a field there is
    no watermark before the end of the input.

    Args:
        column: the field that the watermark follows.
        seconds: the length of an epoch, on the clock. An epoch is longer where the job cannot keep
            up with such epochs, as far as the source reads ahead (`Source.read_ahead`). Where
            nothing has come by its end, and the job has no other source instance, the epoch ends
            with what comes next, up to `seconds` later.
        disorder: seconds of event time by which a record may be behind those before it.
        idle: seconds on the clock: a split of which nothing has come for that long holds no
            watermark back, until its next record comes. That record may be late. Unless given,
            a silent split holds windows open until it goes on or ends.
        all_idle: what happens while all splits are idle. With `"stay"` the watermark stays at the
            greatest that a split has reached; with `"advance"` it goes on from there as fast as the
            clock.
        max_ahead, ahead: see `by_time`.
    """
    _named_column("by_arrival", column)
    length = seconds_of("by_arrival", "seconds", seconds, endless=True)
    if idle is not None and length == math.inf:
        raise GraphError(
            "by_arrival(idle=...): whether a split is idle is decided at the end of an epoch, and"
            " with seconds=inf no epoch ends by the clock",
            where=caller(2)[0],
            hint="Give epochs a length: seconds=0.05.",
        )
    if not isinstance(all_idle, str) or all_idle not in ("stay", "advance"):
        raise GraphError(
            f'by_arrival({all_idle=!r:.80}): it is "stay" or "advance"', where=caller(2)[0]
        )
    if all_idle == "advance" and idle is None:
        raise GraphError(
            'by_arrival(all_idle="advance"): no split is idle unless you say after how long',
            where=caller(2)[0],
            hint='by_arrival(idle="30s", all_idle="advance")',
        )
    return Epochs(
        column=None,
        seconds=length,
        disorder=seconds_of("by_arrival", "disorder", disorder, zero=True),
        time=column,
        idle=None if idle is None else float(seconds_of("by_arrival", "idle", idle)),
        all_idle=all_idle,
        max_ahead=_ahead("by_arrival", max_ahead, ahead),
        ahead=ahead,
    )


def _named_column(what: str, column: Any) -> None:
    if not isinstance(column, str):
        raise GraphError(
            f"{what}({column!r}): the first argument is the name of the field that holds the time",
            where=caller()[0],
            hint=f'{what}("time", ...); lengths are given by name: seconds=...',
        )


def check_time(schema: RecordSchema, epochs: Epochs, ticks: int, where: Where) -> None:
    """By arrival records may do without `time`, but not without a field that was named."""
    by, name = ("arrival", epochs.time) if epochs.column is None else ("time", epochs.column)
    if schema.has_time(name):
        check_unit(schema, name, ticks * (epochs.ticks if by == "time" else 1), where)
        return
    if (by, name) == ("arrival", "time"):
        for name, asked in (("idle", epochs.idle), ("max_ahead", epochs.max_ahead)):
            if asked is not None:
                raise GraphError(
                    f"by_arrival({name}=...): {schema.name} has no integer field 'time', so there"
                    " is no watermark",
                    where=where,
                    hint=f'Name the field that holds the time: by_arrival("ts", {name}=...).',
                )
        return
    length = "" if name.isidentifier() else " A length is given by name: seconds=..."
    raise GraphError(
        f"by_{by}({name!r}): {schema.name} has no such integer field",
        where=where,
        hint=f"It has {', '.join(map(str, schema.fields))}.{length}"
        + (_as_time(name) if schema.field(name) is not None else ""),
    )


def _as_time(name: str) -> str:
    """What to do about a field that is there and no time: a float, a date, text, or one that may
    be None."""
    return (
        f"\n  Event time is an int in the unit of the flow, or a datetime where that is"
        f' rs.Flow(..., time_unit="us"). Files are read so if the record says how they have it:'
        f' {name}: Annotated[datetime, rs.timestamp(unit="s")], or a format such as'
        ' rs.timestamp("%d.%m.%Y", zone="UTC").\n  Or let an operator make such a field, and say'
        f" which after it: stream.timed({name!r}), with rs.by_arrival()."
    )


def check_unit(schema: RecordSchema, name: str, ticks: int, where: Where) -> None:
    """Refuse a datetime as event time unless the time unit of the flow is the microsecond."""
    f = schema.field(name)
    if f is not None and f.moment and ticks != UNITS["us"]:
        raise GraphError(
            f"{schema.name}.{f} counts microseconds, but the flow does not",
            where=where,
            hint='Write rs.Flow(..., time_unit="us").',
        )


@dataclass(frozen=True, slots=True)
class EventTime:
    """What the watermark of a stream follows."""

    field: str
    """The field that is event time."""
    disorder: int
    """By how much the watermark stays behind the greatest time so far, in the flow's unit."""
    behind: int | None
    """If given, the watermark is that of the stream less this much, whatever the field says."""


def event_time(
    schemas: Iterable[RecordSchema],
    field: str,
    *,
    disorder: Seconds,
    behind: Seconds | None,
    ticks: int,
    where: Where,
) -> EventTime:
    """What `Stream.timed` declares.

    Raises:
        GraphError: a record has no such field of times, or a length is none.
    """
    late = seconds_of("timed", "disorder", disorder, zero=True)
    back = None if behind is None else seconds_of("timed", "behind", behind, zero=True)
    if late and back is not None:
        raise GraphError(
            "timed: disorder= and behind= exclude each other",
            where=where,
            hint="disorder= follows the times of the records; behind= the watermark of the stream.",
        )
    for schema in schemas:
        if not isinstance(field, str) or not schema.has_time(field):
            raise GraphError(
                f"timed({field!r}): {schema.name} has no such field of whole numbers or datetimes",
                where=where,
                hint=f"It has {', '.join(map(str, schema.fields))}.",
            )
        check_unit(schema, field, ticks, where)
    return EventTime(
        field, math.ceil(late * ticks), None if back is None else math.ceil(back * ticks)
    )


def refuse_by_time(source: Any, where: Where) -> None:
    """Refuse a source (`Source`) whose epochs cannot be cut by time, because its next record may
    not be there yet."""
    if source.recorded or source.waits:
        which = "cannot be read again" if source.recorded else "waits for more records"
        raise GraphError(
            f"a source that {which} is cut as its records come, not by their time",
            where=where,
            hint="Write epochs=rs.by_arrival(...): windows follow event time there, too.",
        )


def with_ahead(source: Any, epochs: Epochs, where: Where, *, streamed: bool) -> Epochs:
    """The epochs of a source (`Source`) with `max_ahead`; or it is refused."""
    if source.recorded:
        raise GraphError(
            "max_ahead=: what cannot be read again goes without it",
            where=where,
            hint="An operator may drop records that are far ahead.",
        )
    if not streamed:
        return epochs
    if epochs.max_ahead is None:
        raise GraphError(
            "source(ahead=True): no record is too far ahead unless you say by how much",
            where=where,
            hint='epochs=rs.by_time(max_ahead="1d"), or of rs.by_arrival',
        )
    if source.stages(where):
        raise GraphError(
            'source(ahead=True): a source with bad="stream" has no second such stream',
            where=where,
            hint='Leave such records out: ahead="drop" beside max_ahead=.',
        )
    return replace(epochs, ahead="stream")
