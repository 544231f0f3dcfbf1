"""What `status`, `top` and `story` show of a job that is made up."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner

import raystream as rs
from raystream.actors.client import watching as looking
from raystream.cli.app import app
from raystream.cli.live import size
from raystream.cli.status import bar, status_view, story_view, top_view
from raystream.controller.planning.plans import make_plan
from raystream.controller.protocol.history import MoveRecord, Recovery
from raystream.controller.protocol.journal import InstanceRecord, JournalEntry, KeeperRecord
from raystream.controller.protocol.members import Member
from raystream.controller.protocol.recovery import Place
from raystream.controller.reporting.report import Committed
from raystream.controller.reporting.status import Status, Worker, pace, status_of, together
from raystream.controller.reporting.story import story
from raystream.dataflow.plan import Clock
from raystream.dataflow.progress import Progress
from raystream.schema.types import KeyRange
from raystream.testing import Collect
from tests.controller.elastic.plant import words

NODES = {"a" * 40: "10.0.0.1", "b" * 40: "10.0.0.2"}
COMMITTED = Committed(epoch=1200, age=2.1, saved=1100)


def worker(name: str, lo: int, hi: int, t: float, cpu: float, **more: Any) -> Worker:
    """An instance that has worked for t seconds and taken 10,000 records in each of them."""
    said = Progress(
        vertex=name.partition("/")[0],
        instance=0,
        position=int(10 * t),
        records_in=int(10_000 * t),
        records_out=int(5_000 * t),
        state_rows=1_000,
        cpu=cpu * t,
        name=name,
        seconds=t,
        busy=0.6 * t,
        blocked=0.2 * t,
        waiting=250,
        state_bytes=64_000,
        **more,
    )
    return Worker(
        name=name,
        operator=said.vertex,
        keys=KeyRange(lo, hi),
        node="ab"[lo > 0] * 40,
        pid=4000 + lo,
        progress=said,
    )


STORY = story(
    [
        Recovery(
            t=30.2,
            gone=("count/0",),
            new=("count/0.1",),
            committed=250,
            seconds=0.53,
            because="count/0 died: killed",
        )
    ],
    [
        MoveRecord(
            t=65.0,
            operator="count",
            gone=("count/0.1",),
            new=("count/0.2", "count/1"),
            ranges=(KeyRange(0, 100), KeyRange(100, 256)),
            committed=600,
            mode="replay",
            tries=1,
            place=0.02,
            restore=0.31,
            replay=1.2,
            because="count/0.1 used 84% and 91% of its CPU in 2 reports, above 70%",
            nbytes=12_300_000,
        ),
        MoveRecord(
            t=95.0,
            operator="count",
            gone=("count/0", "count/1"),
            new=(),
            ranges=(),
            committed=0,
            mode="replay",
            tries=5,
            place=0.0,
            restore=0.0,
            replay=0.0,
            because="raystream scale",
            failed="no process could be had",
        ),
    ],
    [(80.0, "lines/0 used 99% of its CPU; key group 3 cannot be cut")],
)


def at(t: float, cpu: float = 0.8) -> Status:
    workers = (
        worker("lines/0", 0, 256, t, 0.2),
        worker("count/0", 0, 100, t, cpu),
        worker("count/1", 100, 256, t, 0.4),
        replace(worker("collect/0", 0, 256, t, 0.1), progress=None),
    )
    names = ("lines", "count", "collect")
    return Status(
        run="words-0a1b2c3d",
        t=t,
        operators=names,
        workers=workers,
        committed=COMMITTED,
        keepers=tuple(NODES),
        story=STORY,
        epoch_seconds=0.1,
    )


def text_of(thing: RenderableType, width: int = 150) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(thing)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_status_shows_who_runs_where_and_how_hard() -> None:
    shown = text_of(status_view(at(102.0), at(100.0), NODES))
    rows = [line.split() for line in shown.partition("last decisions")[0].splitlines()]
    lines = {row[0]: row for row in rows if row}
    assert lines["count/0"][1:6] == ["[0,", "100)", "10.0.0.1", "4000", "10,000"]
    assert lines["count/0"][6:] == (
        ["5,000", "80%", "██████▒▒··", "60%", "250", "1,000", "64", "kB", "-"]
    )
    assert lines["count"][1:5] == ["2", "20,000", "10,000", "80%"]  # the highest share
    assert lines["collect/0"][-1] == "-"  # nothing was heard of it yet
    assert "checkpoint 1,200 committed 2.1 s ago, checkpoint 1,100 saved\n" in shown
    assert "for 1 min 42 s   4 instances on 2 nodes, 2 keepers\n" in shown


def test_status_shows_that_a_job_is_to_end_and_why_it_has_not() -> None:
    committed = replace(
        COMMITTED, unsaved="checkpoint 1200 was not saved there: it is full", stopping=True
    )
    shown = text_of(status_view(replace(at(102.0), committed=committed), None, NODES), 250)
    assert (
        "(checkpoint 1200 was not saved there: it is full), to end with the next that is saved"
        in shown
    )


def test_a_job_with_a_pace_says_how_late_it_is_and_others_how_many_epochs_behind() -> None:
    late = replace(at(100.0), t=101.1)
    p = pace(late.workers[1], late, None)
    assert p is not None and p.seconds_behind == pytest.approx(1.0) and p.behind == 0
    slow = replace(late.workers[2], progress=replace(late.workers[2].progress, position=990))  # type: ignore[arg-type]
    unpaced = replace(late, workers=(*late.workers[:2], slow), epoch_seconds=None)
    p = pace(slow, unpaced, None)
    assert p is not None and p.seconds_behind is None and p.behind == 10
    assert "10 epochs" in text_of(status_view(unpaced, None, NODES))
    assert "1.0 s" in text_of(status_view(late, None, NODES))


def test_rates_are_between_two_looks_and_since_the_beginning_of_who_is_new() -> None:
    now, before = at(102.0, cpu=0.5), at(100.0)
    busier = replace(now.workers[1].progress, cpu=81.0)  # type: ignore[arg-type]
    mine = replace(now.workers[1], progress=busier)
    p = pace(mine, now, before)
    assert p is not None and p.cpu == pytest.approx((81.0 - 80.0) / 2)
    new = replace(mine, name="count/7")
    p = pace(new, now, before)
    assert p is not None and p.cpu == pytest.approx(81.0 / 102)
    assert together([None]) is None


def test_top_shows_those_that_use_most_where_there_is_little_room() -> None:
    shown = text_of(top_view(at(102.0), at(100.0), NODES, 20))
    assert "count/0" in shown and "count/1" in shown and "lines/0" not in shown
    assert "and 2 instances with less" in shown
    assert "and 1 instance with less" in text_of(top_view(at(102.0), at(100.0), NODES, 21))
    assert "lines/0" in text_of(top_view(at(102.0), at(100.0), NODES, 60))


def test_a_terminal_of_80_columns_has_the_process_of_each_instance() -> None:
    lines = text_of(status_view(at(102.0), at(100.0), NODES), 80).splitlines()
    assert "pid" in next(line for line in lines if "instance " in line)
    assert lines[1].startswith("checkpoint 1,200 committed") and max(map(len, lines)) <= 80


def test_the_story_tells_reason_outcome_and_phases_in_order() -> None:
    shown = text_of(story_view(at(100.0).story))
    lines = [line.strip() for line in shown.splitlines()]
    assert lines == [
        "30.2 s  recovery  count/0 died: killed",
        "count/0 replaced by count/0.1, which went on from epoch 250",
        "restore 530 ms",
        "1 min 5 s  scale out count/0.1 used 84% and 91% of its CPU in 2 reports, above 70%",
        "count/0.1 became count/0.2 [0, 100), count/1 [100, 256), from epoch 600 (replay)",
        "place 20 ms + restore 310 ms + replay 1.2 s = 1.5 s, 12 MB of state",
        "1 min 20 s  note      lines/0 used 99% of its CPU; key group 3 cannot be cut",
        "1 min 35 s  move      raystream scale",
        "count stays as it is: no process could be had",
    ]
    assert text_of(story_view(())) == "nothing was decided yet\n"


def test_the_controllers_knowledge_becomes_a_status() -> None:
    plan = replace(words(), clock=Clock(0.0, 2.0, 20.0))
    record = InstanceRecord(
        place=Place(1, "count", KeyRange(0, 256), 0),
        process="1.1",
        node="n",
        pid=7,
        address="grpc://",
    )
    entry = JournalEntry(
        started=50.0, instances=(record,), keepers=(KeeperRecord("n", "keeper-1"),)
    )
    status = status_of(plan, "r", entry, [Member(record, dead="killed")], None, 60.0, [(3.0, "so")])
    assert status.t == 10.0 and status.epoch_seconds == pytest.approx(0.1)
    assert status.operators == ("lines", "count", "chain", "collect")
    assert status.of("count") == (
        Worker(
            name="count/0",
            operator="count",
            keys=KeyRange(0, 256),
            node="n",
            pid=7,
            progress=None,
            dead="killed",
        ),
    )
    assert status.keepers == ("n",) and [t.what for t in status.story] == ["so"]
    assert status_of(plan, "r", JournalEntry(), [], None, 60.0).t == 0.0


class Dated(NamedTuple):
    time: datetime
    n: int


class Numbered(NamedTuple):
    time: int
    n: int


@pytest.mark.parametrize(("record", "ticks"), [(Dated, 1_000_000), (Numbered, None)])
def test_it_is_known_whether_event_times_are_dates(record: type[Any], ticks: int | None) -> None:
    flow = rs.Flow("dated", time_unit="us")
    source = flow.source(rs.io.recorded(lambda: iter(()), record), epochs=rs.by_arrival())
    source.to(Collect())
    status = status_of(make_plan(flow), "r", JournalEntry(), [], None, 60.0)
    assert status.date_ticks == ticks


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that ends after three looks."""

    def looks(job: str, address: str, seconds: float) -> Iterator[tuple[Status, dict[str, str]]]:
        assert job in ("words", "") and address == "auto"
        yield from islice(((at(t), NODES) for t in (100.0, 102.0, 104.0)), 3)

    monkeypatch.setattr(looking, "looks", looks)


@pytest.mark.usefixtures("job")
def test_the_commands_print_what_was_seen() -> None:
    run = lambda *a: CliRunner().invoke(app, list(a))  # noqa: E731
    shown = run("status", "words")
    assert shown.exit_code == 0 and "count/1" in shown.output and "last decisions" in shown.output
    assert run("top", "words").output.endswith("words has ended\n")
    shown = run("top")
    assert shown.exit_code == 0 and shown.output.endswith("the job has ended\n")
    looks = [t for t in ("1 min 40 s", "1 min 42 s", "1 min 44 s") if f"for {t}" in shown.output]
    assert len(looks) == 3  # where there is no terminal, all of them
    assert "scale out" in run("story").output
    data = json.loads(run("status", "words", "--json").stdout)
    assert data["instances"][1]["rate_in"] == 10_000 and data["instances"][1]["node"] == "10.0.0.1"
    assert [o["name"] for o in data["operators"]] == ["lines", "count", "collect"]
    assert data["committed"]["epoch"] == data["floor"]["epoch"] == 1200
    for each in data["operators"][0], data["instances"][1]:  # by its old name, too
        assert each["seconds_behind"] == each["late"] >= 0.0
    told = json.loads(run("story", "words", "--json").stdout)
    assert [t["kind"] for t in told] == ["recovery", "scale out", "note", "move"]


@pytest.mark.parametrize("width", [40, 80, 119])
def test_where_there_is_no_room_columns_are_left_out_and_numbers_are_whole(width: int) -> None:
    shown = text_of(status_view(at(102.0), at(100.0), NODES), width)
    assert "…" not in shown
    (count,) = (line.split() for line in shown.splitlines() if line.startswith(" count/0 "))
    assert {"10,000", "80%"} <= {*count} and ("4000" in count) == (width >= 80)


def test_shares_and_sizes_for_people() -> None:
    assert bar(0.6, 0.2).plain == "██████▒▒··  60%" and bar(1.4, 1.0).plain == "██████████ 140%"
    assert [size(n) for n in (7, 999, 1000, 64_000, 3.2e6, 5e12, 7e15)] == [
        "7 B", "999 B", "1.0 kB", "64 kB", "3.2 MB", "5.0 TB", "7000 TB",
    ]  # fmt: skip
