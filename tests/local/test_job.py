"""A job in one process."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import raystream as rs
from raystream.dataflow import warming
from raystream.dataflow.plan import Plan
from raystream.errors import ConfigError
from raystream.local.job import LocalJob
from raystream.schema.types import KeyRange
from raystream.state.tables.object_table import ObjectTable
from raystream.testing import Collect, run_local
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
    flow.run(checkpoint_every=5)


def run_in_a_test(flow: rs.Flow) -> None:
    run_local(flow, checkpoint_every=5)


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
    assert all(len(machine.checkpoints._taken) < 5 for machine in turned[-1][0].machines)


@pytest.mark.parametrize("check", [False, True])
def test_where_epochs_ended_is_forgotten_when_they_are_committed(
    check: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = noted(monkeypatch, "finish")
    flow = rs.Flow("places")
    rows = Rows(Seen, (tuple(Seen(t, 0) for t in range(200)),), batch=1)
    flow.source(rows, epochs=rs.by_arrival()).to(Collect())
    flow.run(checkpoint_every=5, check=check)
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


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"checkpoint_every": 0}, "checkpoint_every=0"),
        ({"checkpoint_seconds": -1.0}, "checkpoint_seconds=-1"),
        ({"checkpoint_seconds": float("inf")}, "checkpoint_seconds=inf"),
    ],
)
def test_cuts_are_some_way_apart(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        places().run(**options)


def test_so_they_are_in_a_test() -> None:
    with pytest.raises(ConfigError, match="checkpoint_every=0"):
        run_local(places(), checkpoint_every=0)


@pytest.mark.parametrize(
    ("name", "ranges", "told"),
    [
        ("cuont", [(0, 256)], "no operator 'cuont'"),
        ("collect", [], "collect has none"),
        ("collect", [(0, 200)], r"collect has \[0, 200\)"),
        ("collect", [(0, 100), (101, 256)], "all key groups, 0 to 256"),
        ("collect", [(0, 256), (256, 256)], "all key groups, 0 to 256"),
    ],
)
def test_ranges_are_all_key_groups(name: str, ranges: list[tuple[int, int]], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        run_local(places(), ranges={name: [KeyRange(*r) for r in ranges]})


def test_a_second_run_is_collected_alone() -> None:
    sink, other = Collect(), Collect()
    for times, instances in ((9, 3), (4, 2)):
        flow = rs.Flow("places")
        rows = Rows(Seen, (tuple(Seen(t, t) for t in range(times)),))
        flow.source(rows, epochs=rs.by_time(seconds=1)).to(sink, name="sink")
        run_local(flow, instances={"sink": instances})
    flow.nodes[-1].sink = other  # type: ignore[attr-defined]
    run_local(flow)
    assert sink.records() == other.records()


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("collects", [False, True])
def test_a_run_leaves_the_collector_as_the_program_has_set_it(frozen: bool, collects: bool) -> None:
    before = gc.isenabled()
    try:
        if not collects:
            gc.disable()
        gc.unfreeze()
        if frozen:
            gc.freeze()
        places().run()
        assert gc.isenabled() is collects
        assert (gc.get_freeze_count() > 0) is frozen
    finally:
        gc.unfreeze()
        if before:
            gc.enable()


def places() -> rs.Flow:
    flow = rs.Flow("places")
    flow.source(rs.io.iterable([Seen(0, 0)], Seen)).to(Collect())
    return flow


def noted(monkeypatch: pytest.MonkeyPatch, method: str) -> list[tuple[LocalJob, int]]:
    """Jobs, before each call of a method of theirs, with what their first operator remembers."""
    calls: list[tuple[LocalJob, int]] = []
    original = getattr(LocalJob, method)

    def call(job: LocalJob) -> None:
        calls.append((job, remembered(job.instances[0])))
        original(job)

    monkeypatch.setattr(LocalJob, method, call)
    return calls


def remembered(instance: Any) -> int:
    """How many rows that went it would name in a delta; 0 of what has no table."""
    table = instance.table
    if isinstance(table, ObjectTable):
        return len(table.removed)
    return 0 if table is None else int(table.store.meta[table.store.kernels.GONE])
