"""Several epochs in one step give what each of them gives by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.errors import OperatorError
from raystream.local import several
from raystream.local.job import LocalJob, run_local
from raystream.testing import Collect
from tests.examples import examples


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


def found(trades: list[Trade], most: int, every: int, **given: Any) -> tuple[Any, ...]:
    """What a run gives, and how many steps the sink has taken. most: epochs of a step."""
    steps: list[int] = []

    class Steps(Collect):
        def commit(self, epoch: int) -> None:
            steps.append(epoch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(several, "MOST_EPOCHS", most)
        sink, late = Steps(), Collect()
        reports = run_local(flow_of(trades, sink, late=late, **given), checkpoint_every=every)
    counts = [(r.name, r.records_in, r.records_out, r.late) for r in reports]
    return sink.by_epoch(), late.by_epoch(), counts, steps


gaps = st.lists(st.tuples(st.sampled_from([0, 0, 1, 1, 1, 2, 9, 500]), st.integers(0, 60)))


@examples(40)
@given(gaps, st.sampled_from([1, 7, 100]))
def test_several_epochs_give_what_each_gives_alone(
    drawn: list[tuple[int, int]], every: int
) -> None:
    trades, time = [], 0
    for gap, size in drawn * 3:
        time += gap
        trades.append(Trade(time, "abc"[size % 3], size))
    assert found(trades, 128, every) == found(trades, 1, every)


@examples(60)
@given(gaps, st.sampled_from([1, 7, 100]), st.sampled_from(sorted(WINDOWS)), st.integers(0, 4))
def test_several_epochs_of_windows_give_what_each_gives_alone(
    drawn: list[tuple[int, int]], every: int, window: str, disorder: int
) -> None:
    trades, time = [], 0
    for gap, size in drawn * 3:
        time += gap
        trades.append(Trade(max(0, time - size % 11), "abc"[size % 3], size))
    given = {"window": window, "disorder": disorder}
    assert found(trades, 128, every, **given) == found(trades, 1, every, **given)


TRADES = [Trade(t // 2, f"s{t % 9}", t % 23) for t in range(800)]


@pytest.mark.parametrize("window", ["", "short", "sliding", "sessions"])
def test_several_epochs_are_one_step_up_to_each_checkpoint(window: str) -> None:
    sink = Collect()
    flow = flow_of(TRADES, sink, window=window)
    job = LocalJob(make_plan(flow, checkpoint_every=50), jumps=True)
    positions = []
    while not job.ended:
        job.turn()
        positions.append(job.sources[0].machine.position)
    assert len(positions) < 20 and {*range(50, 400, 50)} <= {*positions}
    assert {m.position for m in job.machines} == {400}
    assert len({epoch for epoch, _ in sink.by_epoch()}) > 300


@pytest.mark.parametrize("window", ["", "long", "sliding", "sessions"])
def test_a_job_goes_on_from_a_checkpoint_among_them(window: str) -> None:
    whole = Collect()
    run_local(flow_of(TRADES, whole, window=window), checkpoint_every=50)
    sink = Collect()
    plan = make_plan(flow_of(TRADES, sink, window=window), checkpoint_every=50)
    job = LocalJob(plan, jumps=True)
    while job.committed < 100:
        job.turn()
    images = job.checkpoint(100)
    rest = Collect()
    plan = make_plan(flow_of(TRADES, rest, window=window), checkpoint_every=50)
    again = LocalJob(plan, resume=images, jumps=True)
    again.run()
    assert rest.by_epoch() == [(e, r) for e, r in whole.by_epoch() if e > 100]


@rs.operator()
def refuses(trade: Trade) -> Iterator[Trade]:
    assert trade.time < 77
    yield trade


@rs.operator(key="symbol")
def refuses_later(trade: Trade, total: Total) -> Iterator[Trade]:
    assert trade.time < 77
    yield trade


@rs.operator(key="symbol")
def misfits(trade: Trade, total: Total) -> Iterator[Trade]:
    yield trade if trade.time < 77 else trade._replace(size=1 << 70)


@rs.operator(key="symbol")
def strange(trade: Trade, total: Total) -> Iterator[Trade]:
    yield trade if trade.time < 77 else 1  # type: ignore[misc]


@rs.operator(key="symbol", window=rs.tumbling(seconds=3))
class RefusesInWindow:
    def process(self, trade: Trade, total: Total) -> Iterator[Trade]:
        assert trade.time < 77
        yield trade

    def close(self, key: str, window: rs.Window, total: Total) -> Iterator[Trade]:
        return iter(())


@rs.operator(key="symbol", window=rs.tumbling(seconds=3))
class RefusesToClose:
    def process(self, trade: Trade, total: Total) -> None:
        pass

    def close(self, key: str, window: rs.Window, total: Total) -> Iterator[Trade]:
        assert window.end < 78
        yield Trade(window.start, key, 0)


@rs.operator(key="symbol", window=rs.tumbling(seconds=3))
class ClosesWithAMisfit:
    def process(self, trade: Trade, total: Total) -> None:
        pass

    def close(self, key: str, window: rs.Window, total: Total) -> Iterator[Trade]:
        yield Trade(window.start, key, 0 if window.end < 78 else 1 << 70)


WINDOWED = [RefusesInWindow(), RefusesToClose(), ClosesWithAMisfit()]


@pytest.mark.parametrize("fails", [refuses, refuses_later, misfits, strange, *WINDOWED])
def test_an_error_names_the_epoch_in_which_it_happened(
    fails: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = []
    for most in (1, 128):
        monkeypatch.setattr(several, "MOST_EPOCHS", most)
        with pytest.raises(OperatorError) as raised:
            run_local(flow_of(TRADES, Collect(), fails=fails))
        messages.append((str(raised.value), raised.value.hint))
    assert messages[0] == messages[1]
    assert "epoch 78" in str(messages[0])


@rs.operator(key="symbol", window=rs.tumbling(seconds=3), time="size")
class BySize:
    def process(self, trade: Trade, total: Total) -> None:
        pass

    def close(self, key: str, window: rs.Window, total: Total) -> Iterator[Trade]:
        return iter(())


@pytest.mark.parametrize("most", [1, 128])
def test_an_error_names_the_record_whose_time_is_too_far_off(
    most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(several, "MOST_EPOCHS", most)
    trades = [Trade(t // 2, "a", 1 if t != 155 else (1 << 62) + 4) for t in range(300)]
    with pytest.raises(OperatorError, match=r"too far off .* \(at epoch 78, record 1\)"):
        run_local(flow_of(trades, Collect(), fails=BySize()))


@rs.operator()
def whole(trades: rs.Batch[Trade]) -> rs.Batch[Trade]:
    return trades


@pytest.mark.parametrize("kind", ["two instances", "a count", "an end of epochs", "whole epochs"])
def test_what_could_tell_them_apart_is_stepped_epoch_by_epoch(kind: str) -> None:
    @rs.operator(key="symbol", window=rs.tumbling(count=5))
    class Counts:
        def process(self, trade: Trade, total: Total) -> None:
            total.size += trade.size

        def close(self, key: str, window: rs.Window, total: Total) -> Iterator[Sum]:
            yield Sum(key, total.size, [])

    class Ends(Collect):
        def end_epoch(self, epoch: int, *, more: bool) -> None:
            pass

    flow = rs.Flow("apart")
    source = flow.source(rs.io.iterable(TRADES, Trade), epochs=rs.by_time())
    operator = {"a count": Counts(), "whole epochs": whole}.get(kind, summed)
    source.through(operator, name="op").to(Ends() if kind == "an end of epochs" else Collect())
    instances = {"op": 2} if kind == "two instances" else None
    job = LocalJob(make_plan(flow, instances=instances), jumps=True)
    assert not job._several
