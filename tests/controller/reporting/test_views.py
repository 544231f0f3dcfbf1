"""What the page shows of jobs that are made up: of one instance, and of 500."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from raystream.controller.protocol.totals import Histogram, Totals
from raystream.controller.reporting.report import Committed
from raystream.controller.reporting.status import Pace, Status, Worker
from raystream.controller.reporting.story import Told
from raystream.controller.reporting.views import (
    CELLS_MAX,
    LISTED_MAX,
    POINTS_MAX,
    TOLD_MAX,
    History,
    layout,
    mood,
    view,
)
from raystream.dataflow.progress import Progress
from raystream.native.memory import MemoryUse
from raystream.page import drawings
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange
from raystream.state.tables.backend import OnDisk

EDGES = (("lines", "count"), ("count", "files"), ("count", "top"), ("top", "files"))
OPERATORS = ("lines", "count", "top", "files")
KINDS = {"lines": "source", "count": "operator", "top": "operator", "files": "sink"}


def job(instances: int = 1, t: float = 10.0, **changes: Any) -> Status:
    """A job of which `count` has so many instances, the first with most of the load."""
    cuts = np.linspace(0, 1024, instances + 1).astype(int)
    workers = [
        worker("count", i, KeyRange(int(lo), int(hi)), t, 3 if i == 0 else 1)
        for i, (lo, hi) in enumerate(pairwise(cuts))
    ]
    workers += [worker(o, 0, KeyRange(0, 1024), t, 1) for o in OPERATORS if o != "count"]
    status = Status(
        run="words-1234abcd",
        t=t,
        operators=OPERATORS,
        kinds=KINDS,
        edges=EDGES,
        workers=tuple(workers),
        committed=Committed(epoch=7, age=1.5, saved=5),
        keepers=("n0",),
        story=(),
        epoch_seconds=None,
    )
    return replace(status, **changes)


def worker(operator: str, i: int, keys: KeyRange, t: float, times: int) -> Worker:
    load = np.full(len(keys), int(times * t), np.int64)
    said = Progress(
        vertex=operator,
        instance=i,
        name=f"{operator}/{i}",
        position=int(t),
        seconds=t,
        records_in=int(load.sum()),
        records_out=int(load.sum()),
        busy=0.32 * times * t,
        cpu=0.32 * times * t,
        load=load.tobytes(),
        state_rows=10,
        state_bytes=1000,
        memory=MemoryUse(50_000_000, 1, 2),
        by_port={"count.FailedRecord": 2} if operator == "count" else {},
    )
    node = f"n{i % 2}"
    return Worker(
        name=said.name, operator=operator, keys=keys, node=node, pid=i, progress=said, dead=""
    )


def test_the_graph_flows_from_left_to_right() -> None:
    places = layout(OPERATORS, EDGES)
    assert all(places[a][0] < places[b][0] for a, b in EDGES)
    assert len(set(places.values())) == len(OPERATORS)


def test_an_operator_with_one_hot_range() -> None:
    shown = view(job(4, 20.0), job(4, 10.0), {"n0": "10.0.0.1"})
    count = shown.operators[1]
    assert (count.name, count.instances, count.kind) == ("count", 4, "operator")
    assert count.mood == "hot" and [c.mood for c in count.served] == ["hot", "busy", "busy", "busy"]
    assert count.skew == pytest.approx(2.0) and count.failed == 8
    assert count.pace is not None and count.pace.rate_in == pytest.approx(1024 * 1.5)
    assert len(count.load) == CELLS_MAX and count.load[0].share == pytest.approx(2.0)
    assert count.load[-1].share == pytest.approx(2 / 3) and count.load[-1].hi == 1024
    assert [n.name for n in shown.nodes] == ["10.0.0.1", "n1"]
    assert [n.keeper for n in shown.nodes] == [True, False] and shown.nodes[0].memory == 0.5


def test_what_others_had_counted_before_a_move_is_no_rate() -> None:
    """An instance goes on with the counts of its checkpoint, which another one had made."""
    before, now = job(1, 10.0), job(2, 11.0)
    begun = tuple(
        replace(w, name=f"{w.name}.1", progress=replace(w.progress, seconds=0.5))
        if w.operator == "count" and w.progress
        else w
        for w in now.workers
    )
    now = replace(now, workers=begun)
    history = History()
    history.add(before, None)
    history.add(now, before)
    assert history.of("records/s")["count"] == [0.0, 0.0]
    count = view(now, before, {}).operators[1]
    assert count.pace is not None and count.pace.rate_in == count.pace.rate_out == 0.0
    assert count.pace.busy > 0.0 and count.mood == "hot"


def test_each_box_of_the_graph_says_how_many_instances_there_are() -> None:
    drawn = drawings.graph(view(job(3, 11.0), job(3, 10.0), {}))
    assert [drawn.count(f">×{n}<") for n in (1, 3)] == [3, 1]


@pytest.mark.parametrize(
    ("seconds", "unit", "shown"),
    [(0.0, "s", 0.0), (179.0, "s", 179.0), (180.0, "min", 3.0), (10_800.0, "h", 3.0)],
)
def test_the_time_of_graphs_is_in_a_unit_that_is_easily_read(
    seconds: float, unit: str, shown: float
) -> None:
    name, length = drawings.unit_of(seconds)
    assert (name, seconds / length) == (unit, shown)


@pytest.mark.parametrize("instances", [1, 500])
def test_a_view_is_bounded(instances: int) -> None:
    told = tuple(Told(t=float(i), kind="note", what=f"note {i}") for i in range(100))
    shown = view(job(instances, 20.0, story=told), job(instances, 10.0), {})
    assert len(shown.listed) + shown.more == instances + 3 and len(shown.listed) <= LISTED_MAX
    assert all(len(o.load) <= CELLS_MAX and len(o.served) <= CELLS_MAX for o in shown.operators)
    assert len(shown.story) == TOLD_MAX and shown.story[0].t == 99.0
    drawn = [drawings.operator(o) for o in shown.operators]
    drawn += [drawings.graph(shown), drawings.facts(shown), drawings.instances(shown)]
    drawn += [drawings.story(shown), drawings.nodes(shown)]
    assert sum(map(len, drawn)) < 200_000


@pytest.mark.parametrize(
    ("ticks", "watermark", "said"),
    [
        (None, 1_764_547_200, "1,764,547,200"),
        (1, 1_764_547_200, "2025-12-01 00:00:00 UTC"),
        (1000, 1_764_547_200_999, "2025-12-01 00:00:00 UTC"),
        (1, -1, "1969-12-31 23:59:59 UTC"),
        (1, 1 << 60, f"{1 << 60:,}"),  # no date of a calendar
        (1000, NEVER, ""),
        (None, BEFORE_ALL, ""),
    ],
)
def test_a_watermark_is_a_date_where_times_are_dates(
    ticks: int | None, watermark: int, said: str
) -> None:
    now = job(date_ticks=ticks)
    workers = tuple(
        replace(w, progress=replace(w.progress, watermark=watermark)) if w.progress else w
        for w in now.workers
    )
    shown = view(replace(now, workers=workers), None, {}).operators[1]
    assert shown.watermark == said
    assert f"watermark <b>{said}</b>" in drawings.operator(shown) or not said


def test_moods() -> None:
    def paced(busy: float, blocked: float = 0.0) -> Pace:
        return Pace(
            rate_in=0.0,
            rate_out=0.0,
            cpu=0.0,
            busy=busy,
            blocked=blocked,
            waiting=0,
            state_rows=0,
            state_bytes=0,
            behind=0,
            seconds_behind=None,
        )

    assert mood(None) == mood(paced(0.0)) == "idle"
    assert [mood(paced(0.5)), mood(paced(0.95)), mood(paced(0.4, 0.6))] == [
        "busy",
        "hot",
        "blocked",
    ]
    assert mood(paced(0.5), dead="killed") == "dead"


def test_what_is_wrong_is_said_and_how_it_ended() -> None:
    now = job(committed=Committed(epoch=1, age=0.0, under_replicated=2, unsaved="no room"))
    dead = replace(now.workers[0], dead="killed")
    shown = view(replace(now, workers=(dead, *now.workers[1:])), None, {}, ended="it failed")
    assert shown.warnings[0] == "count/0 is dead: killed" and "no room" in shown.warnings
    assert shown.ended == "it failed" and "it failed" in drawings.facts(shown)
    assert not shown.can_save and view(job(), None, {}).can_save


@pytest.mark.parametrize(("full", "said"), [(0.79, False), (0.83, True)])
def test_a_disk_with_rows_that_fills_up_is_said(full: float, said: bool) -> None:
    now = job()
    first = now.workers[0]
    assert first.progress is not None
    told = replace(first.progress, on_disk=OnDisk(rows=5, full=full))
    now = replace(now, workers=(replace(first, progress=told), *now.workers[1:]))
    warning = f"{first.name}: the disk with its rows is 83% full; the job ends at 90 %"
    assert (warning in view(now, None, {}).warnings) == said


def test_a_history_is_bounded_and_latencies_are_of_the_time_between() -> None:
    history, before = History(), None
    slow, quick = Histogram().plus(20.0, 100), Histogram().plus(20.0, 100).plus(0.02, 100)
    for i in range(3 * POINTS_MAX):
        latency = {"files": slow if i < 10 else quick}
        now = job(1, float(i), totals=Totals(latency=latency))
        history.add(now, before)
        before = now
    assert len(history.t) <= POINTS_MAX and history.t == sorted(history.t) and history.t[0] > 0
    assert all(len(column) == len(history.t) for column in history.series.values())
    assert {*history.of("records/s")} == {*OPERATORS}
    (last,) = {c[-1] for c in history.of("p99").values()}
    assert last is not None and last < 0.1


def test_texts_of_users_are_not_html() -> None:
    evil = "<script>alert(1)</script>"
    told = (Told(t=1.0, kind="note", what=evil, because=evil),)
    shown = view(job(run=evil, story=told), None, {"n0": evil}, ended=evil)
    drawn = drawings.facts(shown) + drawings.story(shown) + drawings.nodes(shown)
    assert "<script" not in drawn and "&lt;script" in drawn
