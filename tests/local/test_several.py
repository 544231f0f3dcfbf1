"""Several epochs in one step give what each of them gives by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.controller.planning.plans import make_plan
from raystream.controller.reporting.report import totals
from raystream.dataflow.plan import Plan
from raystream.errors import OperatorError
from raystream.local import several
from raystream.local.job import LocalJob, run_local
from raystream.testing import Collect
from tests.examples import examples
from tests.local.forms import (
    FORMS,
    WINDOWS,
    Plain,
    Total,
    Trade,
    flow_of,
    formed,
    summed,
)


def found(make: Callable[[list[Any]], rs.Flow], most: int, every: int) -> tuple[Any, ...]:
    """What a run gives, what is stored at its end, and how many steps the sink has taken.

    Args:
        make: makes the flow, of a sink and another for what is late or has failed.
        most: epochs of a step.
    """
    steps: list[int] = []

    class Steps(Collect):
        def commit(self, epoch: int) -> None:
            steps.append(epoch)

    sinks = [Steps(), Collect()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(several, "MOST_EPOCHS", most)
        job = LocalJob(make_plan(make(sinks), checkpoint_every=every), jumps=True)
        job.run()
    counts = [(r.name, r.records_in, r.records_out, r.late) for r in totals(job.progress())]
    stored = {
        name: [image.encode() for chain in chains for image in chain]
        for name, chains in job.checkpoint(job.machines[0].position).items()
    }
    return [sink.by_epoch() for sink in sinks], counts, stored, steps


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

    def make(sinks: list[Any]) -> rs.Flow:
        return flow_of(trades, sinks[0])

    assert found(make, 128, every) == found(make, 1, every)


def disordered(drawn: list[tuple[int, int]]) -> list[Trade]:
    trades, time = [], 0
    for gap, size in drawn * 3:
        time += gap
        trades.append(Trade(max(0, time - size % 11), "abc"[size % 3], size))
    return trades


@examples(60)
@given(gaps, st.sampled_from([1, 7, 100]), st.sampled_from(sorted(WINDOWS)), st.integers(0, 4))
def test_several_epochs_of_windows_give_what_each_gives_alone(
    drawn: list[tuple[int, int]], every: int, window: str, disorder: int
) -> None:
    trades = disordered(drawn)

    def make(sinks: list[Any]) -> rs.Flow:
        return flow_of(trades, sinks[0], window=window, disorder=disorder, late=sinks[1])

    assert found(make, 128, every) == found(make, 1, every)


@pytest.mark.parametrize("form", sorted(FORMS))
@examples(15)
@given(gaps, st.sampled_from([1, 7, 100]), st.integers(0, 4))
def test_several_epochs_of_any_form_give_what_each_gives_alone(
    form: str, drawn: list[tuple[int, int]], every: int, disorder: int
) -> None:
    trades = disordered(drawn)

    def make(sinks: list[Any]) -> rs.Flow:
        return formed(trades, form, disorder, sinks)

    assert LocalJob(make_plan(make([Collect(), Collect()])), jumps=True)._several
    assert found(make, 128, every) == found(make, 1, every)


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


@pytest.mark.parametrize(
    "form", ["", "long", "sliding", "sessions", "timers", "counts", "ever on, by time"]
)
def test_a_job_goes_on_from_a_checkpoint_among_them(form: str) -> None:
    def plan(sink: Collect) -> Plan:
        if form in FORMS:
            return make_plan(formed(TRADES, form, 0, [sink, Collect()]), checkpoint_every=50)
        return make_plan(flow_of(TRADES, sink, window=form), checkpoint_every=50)

    whole, rest = Collect(), Collect()
    LocalJob(plan(whole), jumps=True).run()
    job = LocalJob(plan(Collect()), jumps=True)
    while job.committed < 100:
        job.turn()
    LocalJob(plan(rest), resume=job.checkpoint(100), jumps=True).run()
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


@rs.operator(key="symbol", window=rs.tumbling(count=1))
class RefusesToCount(RefusesToClose):
    def close(self, key: str, window: rs.Window, total: Total) -> Iterator[Trade]:
        assert window.end < 77
        yield Trade(window.start, key, 0)


@rs.operator(key="symbol", window=rs.tumbling(seconds=3, lateness=1))
class RefusesToCorrect(RefusesToClose):
    def close(  # type: ignore[override]
        self, key: str, window: rs.Window, total: Total, correction: bool
    ) -> Iterator[Trade]:
        yield from super().close(key, window, total)


class Due(rs.State):
    due: rs.Timer = rs.NEVER


@rs.operator(key="symbol")
class Rings:
    upto = 77

    def process(self, trade: Trade, due: Due) -> Iterator[Trade]:
        assert trade.time < self.upto
        due.due = trade.time + 1
        yield trade

    def timer(self, key: str, time: int, due: Due) -> Iterator[Trade]:
        yield Trade(time, key, 0)


@rs.operator(key="symbol")
class RefusesToRing(Rings):
    upto = 1000

    def timer(self, key: str, time: int, due: Due) -> Iterator[Trade]:
        assert time < 78
        yield Trade(time, key, 0)


@rs.operator(key="symbol")
class RingsWithAMisfit(RefusesToRing):
    def timer(self, key: str, time: int, due: Due) -> Iterator[Trade]:
        yield Trade(time, key, 0 if time < 78 else 1 << 70)


@rs.operator()
def refuses_columns(trades: rs.Batch[Trade]) -> rs.Batch[Trade]:
    if trades["time"].max() > 76:
        raise ValueError
    return trades


@rs.operator(key="symbol")
def refuses_rows(trades: rs.Batch[Trade], rows: rs.Rows[Plain]) -> rs.Batch[Trade]:
    if trades["time"].max() > 76:
        raise ValueError
    return trades


FAILING = [
    *(refuses, refuses_later, misfits, strange, refuses_columns, refuses_rows),
    *(RefusesInWindow(), RefusesToClose(), ClosesWithAMisfit()),
    *(RefusesToCount(), RefusesToCorrect(), Rings(), RefusesToRing(), RingsWithAMisfit()),
]


@pytest.mark.parametrize("fails", FAILING)
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
    assert "epoch 78" in str(messages[0]) and "OperatorError" not in str(messages[0])


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


@pytest.mark.parametrize("kind", ["two instances", "two sources", "an end of epochs"])
def test_what_could_tell_them_apart_is_stepped_epoch_by_epoch(kind: str) -> None:
    class Ends(Collect):
        def end_epoch(self, epoch: int, *, more: bool) -> None:
            pass

    flow = rs.Flow("apart")
    source = flow.source(rs.io.iterable(TRADES, Trade), epochs=rs.by_time())
    if kind == "two sources":
        source |= flow.source(rs.io.iterable(TRADES, Trade), epochs=rs.by_time())
    source.through(summed, name="op").to(Ends() if kind == "an end of epochs" else Collect())
    instances = {"op": 2} if kind == "two instances" else None
    job = LocalJob(make_plan(flow, instances=instances), jumps=True)
    assert not job._several
