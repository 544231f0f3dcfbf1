"""Operators of every form, and flows through them, for `test_several`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import raystream as rs
from raystream.testing import Collect


class Trade(NamedTuple):
    time: int
    symbol: str
    size: int


class Sum(NamedTuple):
    symbol: str
    size: int
    trades: list[int]


class Total(rs.State):
    size: int = 0
    trades: list[int] = rs.field(factory=list)


@rs.operator()
def large(trade: Trade) -> Iterator[Trade]:
    if trade.size % 5:
        yield trade
    if trade.size % 7 == 0:
        yield trade._replace(symbol="seventh")


@rs.operator(key="symbol")
def summed(trade: Trade, total: Total) -> Iterator[Sum]:
    total.size += trade.size
    total.trades.append(trade.size)
    del total.trades[:-3]
    yield Sum(trade.symbol, total.size, total.trades)
    if total.size % 11 == 0:
        rs.forget(total)


@rs.operator(key="symbol")
def refuses_some(trade: Trade, total: Total) -> Iterator[Sum]:
    total.size += trade.size
    yield Sum(trade.symbol, total.size, [])
    assert trade.size % 3


class Plain(rs.State):
    size: int = 0


class Windowed:
    """A window that emits with a record, when it closes, and has rows that are forgotten."""

    def process(self, trade: Trade, total: Total) -> Iterator[Sum]:
        total.size += trade.size
        total.trades.append(trade.size)
        if trade.size % 13 == 0:
            rs.forget(total)
        if trade.size % 3 == 0:
            yield Sum(trade.symbol, trade.size, [])

    def merge(self, into: Total, other: Total) -> None:
        into.size += other.size
        into.trades = [*into.trades, *other.trades]

    def close(self, key: str, window: rs.Window, total: Total) -> Iterator[Sum]:
        yield Sum(f"{key} {window.start} {window.end}", total.size, total.trades)


WINDOWS = {
    "short": rs.tumbling(seconds=1),
    "long": rs.tumbling(seconds=7),
    "sliding": rs.sliding(seconds=6, every=2),
    "apart": rs.sliding(seconds=2, every=5),
    "days": rs.tumbling(days=1, zone="America/New_York"),
    "sessions": rs.session(gap=3),
}


class Corrects(Windowed):
    """The same with early results and corrections."""

    def close(  # type: ignore[override]
        self, key: str, window: rs.Window, total: Total, early: bool, correction: bool
    ) -> Iterator[Sum]:
        kind = "early" if early else "correction" if correction else "final"
        yield Sum(f"{key} {window.start} {window.end} {kind}", total.size, total.trades)


class Late(Windowed):
    """The same with corrections."""

    def close(  # type: ignore[override]
        self, key: str, window: rs.Window, total: Total, correction: bool
    ) -> Iterator[Sum]:
        yield Sum(f"{key} {window.start} {window.end} {correction}", total.size, total.trades)


class Early(Windowed):
    """The same with early results."""

    def close(  # type: ignore[override]
        self, key: str, window: rs.Window, total: Total, early: bool
    ) -> Iterator[Sum]:
        yield Sum(f"{key} {window.start} {window.end} {early}", total.size, total.trades)


class Alarm(rs.State):
    n: int = 0
    trades: list[int] = rs.field(factory=list)
    due: rs.Timer = rs.NEVER


class Timed:
    """Alarms that records set anew, that ring again, and whose rows are forgotten."""

    def process(self, trade: Trade, alarm: Alarm) -> Iterator[Sum]:
        alarm.n += 1
        alarm.trades = [*alarm.trades[-2:], trade.size]
        if trade.size % 4:
            alarm.due = trade.time + trade.size % 6
        if trade.size % 5 == 1:
            yield Sum(trade.symbol, trade.size, alarm.trades)
        if trade.size % 17 == 0:
            rs.forget(alarm)

    def timer(self, key: str, time: int, alarm: Alarm) -> Iterator[Sum]:
        yield Sum(f"{key} {time}", alarm.n, alarm.trades)
        if alarm.n % 3:
            alarm.n += 1
            alarm.due = time + alarm.n % 5 + 1
        elif alarm.n % 2:
            rs.forget(alarm)


class Picky(Timed):
    def process(self, trade: Trade, alarm: Alarm) -> Iterator[Sum]:
        yield from super().process(trade, alarm)
        assert trade.size % 3

    def timer(self, key: str, time: int, alarm: Alarm) -> Iterator[Sum]:
        yield from super().timer(key, time, alarm)
        assert time % 5


class PickyWindow(Windowed):
    def process(self, trade: Trade, total: Total) -> Iterator[Sum]:
        yield from super().process(trade, total)
        assert trade.size % 4

    def close(self, key: str, window: rs.Window, total: Total) -> Iterator[Sum]:
        yield from super().close(key, window, total)
        assert window.end % 3


@rs.operator()
def measured(trades: rs.Batch[Trade]) -> rs.Batch[Sum]:
    """It can tell how many records an epoch has."""
    n = [len(trades)] * len(trades)
    return rs.Batch(Sum, {"symbol": trades["symbol"], "size": n, "trades": [[at] for at in n]})


@rs.operator(key="symbol")
def running(trades: rs.Batch[Trade], rows: rs.Rows[Plain]) -> rs.Batch[Sum]:
    rows["size"] += rows.counts
    size = rows["size"][rows.index]
    empty: list[list[int]] = [[] for _ in size]
    return rs.Batch(Sum, {"symbol": trades["symbol"], "size": size, "trades": empty})


class PlainAlarm(rs.State):
    n: int = 0
    due: rs.Timer = rs.NEVER


class Number(NamedTuple):
    time: int
    key: int
    size: int


@rs.operator()
def numbered(trade: Trade) -> Iterator[Number]:
    yield Number(trade.time, trade.size % 3, trade.size)


@rs.operator()
def named(number: Number) -> Iterator[Sum]:
    yield Sum(str(number.key), number.size, [number.time])


@rs.operator(key="key", compiled=True)
class CompiledTimed:
    def process(self, number: Number, alarm: PlainAlarm) -> None:
        alarm.n += 1
        alarm.due = number.time + 3

    def timer(self, key: int, time: int, alarm: PlainAlarm) -> Iterator[Number]:
        yield Number(time, key, alarm.n)


@rs.operator(key="key", window=rs.tumbling(seconds=3), compiled=True)
class CompiledWindow:
    def process(self, number: Number, total: Plain) -> None:
        total.size += number.size

    def close(self, key: int, window: rs.Window, total: Plain) -> Iterator[Number]:
        yield Number(window.start, key, total.size)


@rs.operator(key="key", compiled=True)
def added(number: Number, total: Plain) -> Iterator[Number]:
    total.size += number.size
    yield Number(number.time, number.key, total.size)


def of_key(target: Any, **options: Any) -> Any:
    own = type(target.__name__, (target,), {})
    return rs.operator(key="symbol", **options)(own)()


FAILS = {"on_error": "stream"}
FORMS: dict[str, tuple[Any, dict[str, Any]]] = {
    "timers": (of_key(Timed), {}),
    "timers by size": (of_key(Timed, order_by="size"), {}),
    "timers that wait": (of_key(Timed), {"wait": True}),
    "timers that fail": (of_key(Picky), FAILS),
    "windows that fail": (of_key(PickyWindow, window=rs.sliding(seconds=6, every=2)), FAILS),
    "sessions that fail": (of_key(PickyWindow, window=rs.session(gap=2)), FAILS),
    "keyed that fails": (refuses_some, FAILS),
    "counts": (of_key(Windowed, window=rs.tumbling(count=3)), {}),
    "ever on": (of_key(Early, window=rs.global_window(count=4)), {}),
    "ever on, by time": (of_key(Early, window=rs.global_window(every=3)), {}),
    "corrected": (of_key(Corrects, window=rs.tumbling(seconds=4, every=2, lateness=5)), {}),
    "corrected and sliding": (of_key(Late, window=rs.sliding(seconds=4, every=2, lateness=3)), {}),
    "columns": (measured, {}),
    "rows as columns": (running, {}),
    "compiled": (added, {}),
    "compiled timers": (CompiledTimed(), {}),
    "compiled windows": (CompiledWindow(), {}),
}
HAVE_LATE = "corrected", "corrected and sliding", "compiled windows", "timers that wait"


def formed(trades: list[Trade], form: str, disorder: int, sinks: list[Any]) -> rs.Flow:
    """A flow through an operator of one of the forms, with all that it gives in sinks."""
    flow, (operator, options) = rs.Flow("trades"), FORMS[form]
    epochs = rs.by_time(disorder=disorder)
    stream = flow.source(rs.io.iterable(trades, Trade), epochs=epochs).through(large)
    if form.startswith("compiled"):
        stream = stream.through(numbered)
    made = stream.through(operator, name="formed", late=form in HAVE_LATE, **options)
    if form in HAVE_LATE:
        made, late = made
        late.to(sinks[1], name="late")
    elif options == FAILS:
        made[rs.FailedRecord].to(sinks[1], name="late")
        made = made[Sum]
    if form.startswith("compiled"):
        made = made.through(named)
    made.through(counted, name="more").to(sinks[0])
    return flow


@rs.operator(key="symbol")
def counted(made: Sum, total: Total) -> Iterator[Sum]:
    total.size += 1
    yield made._replace(trades=[total.size, *made.trades])


def flow_of(
    trades: list[Trade],
    sink: Any,
    *,
    fails: Any = None,
    window: str = "",
    disorder: int = 0,
    late: Any = None,
) -> rs.Flow:
    flow = rs.Flow("trades")
    epochs = rs.by_time(disorder=disorder)
    stream = flow.source(rs.io.iterable(trades, Trade), epochs=epochs).through(large)
    if fails is not None:
        stream = stream.through(fails)
    if not window:
        stream.through(summed, name="summed").to(sink)
        return flow
    operator = rs.operator(key="symbol", window=WINDOWS[window])(Windowed)()
    made, left = stream.through(operator, name="windowed", late=True)
    made.through(counted, name="counted").to(sink)
    left.to(late or Collect(), name="late")
    return flow
