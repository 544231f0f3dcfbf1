"""A job in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.dataflow import warming
from raystream.dataflow.plan import Plan
from raystream.state.objects import ObjectTable
from raystream.testing import Collect, run_local
from raystream.testing.local import LocalJob
from tests.flows import Rows


class Seen(NamedTuple):
    time: int
    place: int


class Tally(rs.State):
    n: int = 0


class Count:
    def process(self, seen: Seen, tally: Tally) -> None:
        tally.n += 1

    def close(self, place: int, window: rs.Window, tally: Tally) -> Iterator[Seen]:
        yield Seen(window.start, place)


def run_here(flow: rs.Flow) -> None:
    flow.run(cut_every=5)


def run_in_a_test(flow: rs.Flow) -> None:
    run_local(flow, cut_every=5)


@pytest.mark.parametrize("run", [run_here, run_in_a_test])
@pytest.mark.parametrize("compiled", [False, True])
def test_what_went_is_not_remembered_for_deltas_that_nobody_takes(
    run: Callable[[rs.Flow], None], compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned = noted(monkeypatch, "turn")
    flow, rows = rs.Flow("places"), (tuple(Seen(t, t % 3) for t in range(600)),)
    count = rs.operator(key="place", window=rs.tumbling(seconds=2), compiled=compiled)(Count)
    seen = flow.source(Rows(Seen, rows), epochs=rs.by_time(seconds=1))
    seen.through(count()).to(Collect())
    run(flow)
    assert 0 < max(remembered for _, remembered in turned) < 20
    assert all(len(machine.cuts._taken) < 5 for machine in turned[-1][0].machines)


@pytest.mark.parametrize("check", [False, True])
def test_where_epochs_ended_is_forgotten_when_they_are_committed(
    check: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = noted(monkeypatch, "finish")
    flow = rs.Flow("places")
    rows = Rows(Seen, (tuple(Seen(t, 0) for t in range(200)),), batch=1)
    flow.source(rows, epochs=rs.by_arrival()).to(Collect())
    flow.run(cut_every=5, check=check)
    assert len(ended[0][0].boundaries) < 20


@pytest.mark.parametrize("speed", [1e6, None])
def test_the_clock_of_a_paced_run_starts_when_all_is_compiled(
    speed: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed: list[float] = []
    original = warming.warm

    def warm(plan: Plan) -> Iterator[None]:
        yield from original(plan)
        warmed.append(time.time())

    monkeypatch.setattr(warming, "warm", warm)
    flow = rs.Flow("places")
    seen = flow.source(
        Rows(Seen, (tuple(Seen(t, t % 3) for t in range(9)),)),
        epochs=rs.by_time(seconds=1, speed=speed),
    )
    count = rs.operator(key="place", window=rs.tumbling(seconds=2))(Count)
    seen.through(count()).to(Collect())
    report = flow.run()
    assert len(warmed) == (speed is not None)
    assert all(at <= report.started for at in warmed)


def noted(monkeypatch: pytest.MonkeyPatch, method: str) -> list[tuple[LocalJob, int]]:
    """Jobs, before each call of a method of theirs, with what their first operator remembers."""
    calls: list[tuple[LocalJob, int]] = []
    original = getattr(LocalJob, method)

    def call(job: LocalJob) -> None:
        calls.append((job, remembered(job.instances[0].logic)))
        original(job)

    monkeypatch.setattr(LocalJob, method, call)
    return calls


def remembered(logic: Any) -> int:
    """How many rows that went it would name in a delta; 0 of what has no table."""
    table = getattr(logic, "table", None)
    if isinstance(table, ObjectTable):
        return len(table.removed)
    return 0 if table is None else int(table.meta[table._kernels.GONE])
