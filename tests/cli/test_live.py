"""The live table and lines: rates between samples, totals."""

from __future__ import annotations

import io
from contextlib import suppress
from dataclasses import replace

from rich.console import Console

from raystream.cli.live import Screen, rates_line, rates_table, totals_table
from raystream.controller.protocol.history import MoveRecord, Recovery
from raystream.controller.reporting.report import JobReport, OperatorReport, Sample
from raystream.errors import Stopped
from raystream.schema.types import KeyRange


def operator(name: str, records: int, cpu: float = 0.0, late: int = 0) -> OperatorReport:
    return OperatorReport(
        name=name,
        instances=2,
        position=7,
        records_in=records,
        records_out=records // 2,
        late=late,
        state_rows=3,
        cpu=cpu,
        by_port={},
    )


def sample(t: float, records: int, **more: float) -> Sample:
    return Sample(t, {"count": operator("count", records, **more)})  # type: ignore[arg-type]


def text_of(thing: object) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(thing)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_rates_are_between_two_samples() -> None:
    table = text_of(rates_table("job", sample(3.0, 5000, cpu=2.5), sample(1.0, 1000, cpu=0.5)))
    row = next(line for line in table.splitlines() if "count" in line)
    assert row.split() == [
        "count",
        "2",
        "2,000",
        "1,000",
        "1.00",
        "3",
        "0",
        "7",
    ]


def test_the_first_sample_has_no_rates() -> None:
    """A job that goes on from a saved cut has counted what was done before."""
    assert rates_line(sample(2.0, 1000), None) == "   2.0 s  epoch 7"


def test_what_is_done_again_after_a_recovery_is_no_negative_rate() -> None:
    assert rates_line(sample(2.0, 700), sample(1.0, 1000)).endswith("count 0/s")


def test_the_epoch_of_a_job_is_not_that_of_a_source_that_has_ended() -> None:
    over = replace(operator("few", 10), position=3, ended=True)
    going = {"few": over, "count": operator("count", 900)}
    assert "epoch 7" in rates_line(Sample(9.0, going), None)
    assert "epoch 3" in rates_line(Sample(9.0, {"few": over}), None)


def test_late_records_are_told() -> None:
    assert rates_line(sample(2.0, 1000, late=4), None).endswith("late 4")


def test_totals() -> None:
    report = JobReport(
        job="job",
        cluster="ray",
        started=0.0,
        elapsed=12.34,
        operators=(operator("count", 5000, cpu=1.5),),
    )
    table = text_of(totals_table(report))
    assert "job: ended after 12.3 s on Ray" in table
    assert "5,000" in table and "1.50" in table


def test_recoveries_are_told() -> None:
    recovery = Recovery(
        t=3.25,
        gone=("count/0",),
        new=("count/0.1",),
        committed=1200,
        seconds=0.53,
        because="count/0 died",
    )
    report = JobReport(
        job="job",
        cluster="ray",
        started=0.0,
        elapsed=12.34,
        operators=(operator("count", 5000),),
        samples=(),
        recoveries=(recovery,),
    )
    console = Console(file=io.StringIO(), width=120)
    Screen("job", console).totals(report)
    last = console.file.getvalue().splitlines()[-1]  # type: ignore[attr-defined]
    assert last == "   3.2 s  count/0 died; count/0.1 went on from epoch 1,200 after 0.5 s"


def test_what_happened_is_told_in_order_of_time() -> None:
    died, moved = (
        Recovery(
            t=67.5, gone=("a/1",), new=("a/1.1",), committed=264, seconds=0.1, because="a/1 died"
        ),
        MoveRecord(
            t=48.7,
            operator="a",
            gone=("a/0",),
            new=("a/1",),
            ranges=(KeyRange(0, 256),),
            committed=192,
            mode="replay",
            tries=1,
            place=1.1,
            restore=0.8,
            replay=0.6,
            because="asked for",
        ),
    )
    report = JobReport(
        job="job",
        cluster="ray",
        started=0.0,
        elapsed=170.0,
        operators=(operator("a", 5000),),
        recoveries=(died,),
        moved=(moved,),
    )
    console = Console(file=io.StringIO(), width=120)
    Screen("job", console).totals(report)
    told = console.file.getvalue().splitlines()[-2:]  # type: ignore[attr-defined]
    assert [line.split()[0] for line in told] == ["48.7", "67.5"]
    assert repr(report) == "<JobReport of job: 170.0 s; a 5,000 in 2,500 out>"


def test_a_job_that_was_stopped_has_totals() -> None:
    console = Console(file=io.StringIO(), width=120)
    with suppress(Stopped), Screen("job", console) as screen:
        screen.update(sample(1.0, 1234))
        raise Stopped("enough")
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "job: stopped after 1.0 s" in shown and "1,234" in shown


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    console = Console(file=io.StringIO(), width=120)
    with Screen("job", console) as screen:
        for t in range(1, 12):
            screen.update(sample(float(t), 100 * t))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert lines[0] == "job: starting"
    assert [line.split()[0] for line in lines[1:]] == ["1.0", "6.0", "11.0"]


def test_on_a_terminal_the_table_updates_itself_and_goes() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    with Screen("job", console) as screen:
        screen.update(sample(1.0, 100))
        screen.update(sample(2.0, 700))
        screen._live.refresh()  # type: ignore[union-attr]
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert "600" in written and "\x1b[2K" in written


def test_a_terminal_that_only_appends_has_lines() -> None:
    """As of an editor: a table cannot update itself there, and would never be seen."""
    console = Console(file=io.StringIO(), width=120, force_terminal=True, _environ={"TERM": "dumb"})
    with Screen("job", console) as screen:
        screen.update(sample(1.0, 100))
    assert "job: starting\n   1.0 s" in console.file.getvalue()  # type: ignore[attr-defined]
