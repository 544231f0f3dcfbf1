"""The benchmarks at a tiny size: what they run is right, and what they say of it."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from collections import Counter
from functools import partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.chaos import soak as chaos
from benchmarks.chaos.faults import Strike
from benchmarks.chaos.soak import Job, tally
from benchmarks.chaos.works import differences
from benchmarks.jobs import linear_road
from benchmarks.jobs.checkpoint_latency import Seen, Tenths, check, lateness
from benchmarks.parts import compiled
from benchmarks.recovery import kills as recovery
from benchmarks.recovery.kills import (
    TICKS,
    WINDOW,
    Case,
    Pooled,
    first_arrivals,
    flow_of,
    medians,
    times_back,
)
from benchmarks.recovery.plot import draw
from benchmarks.recovery.table import (
    COLUMNS,
    Axis,
    axes_of,
    jobs_of,
    missing,
    sorted_by_case,
    table,
)
from benchmarks.shared import words
from lrb.oracle.expected import expected
from raystream.errors import JobError
from raystream.testing import Collect, run_local
from tests.gates import LIMIT_SECONDS
from tests.lrb.rows import balance, report
from tests.lrb.running import prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    "line",
    [
        "query --rows 200 --queries 3 --runs 1",
        "w1 --rows 2000 --distinct 10 --form interpreted --epoch-rows 300 --local --repeat 1",
        "epoch --epochs 20 --local --repeat 1 --json",
        "kernels --rows 500 --distinct 100 --repeat 1",
        "tables --rows 3000 --each 100 --changed 50 --repeat 1",
        "touch --megabytes 4 --pauses 0,0.01",
        "small-epochs --epochs 100",
        "small-epochs --epochs 100 --interpreted --rows 3",
        "paced-epochs --epochs 600 --milliseconds 2",
        "restore --megabytes 0.1 --repeat 1",
        "restore --megabytes 0.1 --repeat 1 --parts 2 --chain 5",
        "checkpoints sizes --largest 100 --repeat 1",
        "checkpoints throughput --keys 1000 --seconds 0.01 --cuts 1 --records 100",
        "checkpoints latency --keys 1000 --seconds 0.05 --cuts 1 --records 100 --pace 0.01",
    ],
)
def test_commands_run(line: str) -> None:
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 0, result.output
    assert any(c.isdigit() for c in result.output)


@pytest.mark.ray
def test_claims_are_timed() -> None:
    """It has a Ray of its own, so it runs in a process of its own."""
    line = [sys.executable, "-m", "benchmarks", "claims", "--turns", "2"]
    told = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True)
    assert "100 of each" in told.stdout
    for what in ("a claim over a socket", "a call through Ray"):
        median, late = re.findall(rf"{what} +│ +([\d,]+) µs +│ +([\d,]+) µs", told.stdout)[0]
        assert 0 < int(median.replace(",", "")) <= int(late.replace(",", ""))


@pytest.mark.ray
def test_looks_of_the_page_are_measured() -> None:
    line = [sys.executable, "-m", "benchmarks", "page", "--instances", "3", "--looks", "2"]
    told = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True)
    assert "a look at 3 instances" in told.stdout
    for when in ("without looks", "with a look a second"):
        assert re.search(rf"CPU {when} +│ [\d.]+% of a core", told.stdout)
    assert re.search(r"CPU to draw it +│ [\d.]+ ms", told.stdout)


@pytest.mark.long
def test_linear_road_runs(tmp_path: Path) -> None:
    data = prepare(tmp_path, [report(0, 1, 3), report(30, 1, 4), balance(30, 1, 7)])
    result = CliRunner().invoke(app, ["lrb", "--data", str(data), "--local", "--repeat", "2"])
    assert result.exit_code == 0, result.output
    assert "Linear Road" in result.output


@pytest.mark.spark
def test_linear_road_is_judged(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linear_road, "oracle", partial(expected, spark))
    data = prepare(tmp_path, [report(0, 1, 3), report(30, 1, 4), balance(30, 1, 7)])
    line = ["lrb", "--data", str(data), "--local", "--repeat", "1", "--judge"]
    result = CliRunner().invoke(app, line)
    assert result.exit_code == 0, result.output
    assert "all answers are those of the oracle" in result.output
    monkeypatch.setattr(linear_road, "right", lambda data: "another")
    wrong = CliRunner().invoke(app, line)
    assert wrong.exit_code == 1 and "wrong answers" in wrong.output


@pytest.mark.long
def test_compiled_operators_are_measured_and_right(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "compiled --records 2000 --keys 10 --epoch 500 --repeat 1"
    monkeypatch.setattr("sys.argv", line.split())
    compiled.main()
    told = capsys.readouterr().out.splitlines()
    assert [t.split("  ")[0] for t in told] == ["count", "windows", "flat map"]


@pytest.mark.ray
@pytest.mark.long
def test_recovery_is_measured(runtime: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "WARM_SECONDS", 4.0)
    monkeypatch.setattr(recovery, "BETWEEN_SECONDS", 2.0)
    one = "--form auto --modes state --into 1 --together 1"
    line = f"recovery --rates 40 --cuts 1 --kills 1 --json {one}"
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 0, result.output
    (told,) = [json.loads(t) for t in result.stdout.splitlines()]
    assert told["kills"] == 1 and len(told["replace_ms"]) == 1


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.long
def test_chaos_finds_every_answer_right() -> None:
    line = "benchmarks.chaos --seconds 10 --rate 40 --kinds kill --every 2 --moves 20"
    done = subprocess.run(
        [sys.executable, "-m", *line.split()],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]
    assert re.search(r"faults and \d+ moves in 1 jobs: 1 right", done.stdout)


@pytest.mark.parametrize(
    "line", ["recovery --modes none", "recovery --form none", "restore --form none"]
)
def test_what_is_unknown_is_refused(line: str) -> None:
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 2 and "none" in result.output


# ---------------------------------------------------------------------------- the work


def test_lines_that_arrive_are_numbered_exactly(tmp_path: Path) -> None:
    lines = words.Lines(20, 6)
    words.arriving(tmp_path, lines, wait=0.001).run()
    got = words.answers(tmp_path)
    assert got == words.numbered(lines)
    assert len(got) == 20 * 6 * 5


def test_the_batch_form_counts_words_by_window() -> None:
    sink, ticks = Collect(), WINDOW + 3
    run_local(flow_of(sink, 20 * TICKS, ticks, speed=None, batch=True))
    expected: Counter[tuple[str, int]] = Counter()
    for t, batch in Pooled(20, ticks).read(Pooled(1, 1).splits()[0], WINDOW):
        assert t > WINDOW
        expected.update((w, WINDOW) for text in batch["text"].to_pylist() for w in text.split())
    last = {(r.word, r.start): r.n for r in sink.records()}
    assert {at: n for at, n in last.items() if at[1] == WINDOW} == expected
    assert {start for _, start in last} == {0, WINDOW}


# ---------------------------------------------------------------------------- what is said


def test_time_back_is_until_latency_is_small_for_a_while() -> None:
    latency = dict.fromkeys(range(1, 1001), 0.01)
    for e in range(400, 420):
        latency[e] = 1.0 - (e - 400) * 0.05  # from 1 s down to 0.05 s: the last is still late
    first = {e: e / TICKS + late for e, late in latency.items()}
    usual, (back,) = times_back(first, latency, [399.9 / TICKS], 0.0)
    assert usual == pytest.approx(0.01)
    assert back == pytest.approx(first[420] - 399.9 / TICKS)
    blip = {e: 0.5 if e == 600 else late for e, late in latency.items()}
    assert times_back(first, blip, [399.9 / TICKS], 0.0)[1] == [back]
    slow = {e: 5.0 if e > 400 else late for e, late in latency.items()}
    assert times_back({e: e / TICKS + s for e, s in slow.items()}, slow, [20.0], 0.0)[1] == [
        math.inf
    ]


def test_an_epoch_arrives_when_it_came_first() -> None:
    import numpy as np

    assert first_arrivals(np.array([[1, 5.0], [2, 6.0], [1, 7.0]])) == {1: 5.0, 2: 6.0}


def result(back: list[float]) -> dict[str, object]:
    same = {"usual_p99_ms": 9.0, "detect_ms": [1.0], "replace_ms": [2.0]}
    return {"recovered_ms": back, **same}


def test_medians_are_over_all_kills() -> None:
    runs = [result([100.0, 900.0]), result([200.0])]
    assert medians(runs)["recovered_ms"] == 200 and medians(runs)["recovered_most_ms"] == 900
    assert medians(runs)["kills"] == 3


def test_one_thing_differs_at_a_time() -> None:
    middle, axes = axes_of(
        [10, 60_000], ["auto", "batch"], [5.0], ["state", "source"], [1, 4], [1, 2]
    )
    assert middle == Case(10, "interpreted")
    assert {a.title: list(a.cases) for a in axes} == {
        "lines/s": ["10", "60,000"],
        "form": ["interpreted", "batch"],
        "mode": ["state", "source"],
        "restored by": ["1", "4"],
        "die at once": ["1 of 2", "2 of 2"],
    }
    rates, forms, modes, into, deaths = [list(a.cases.values()) for a in axes]
    assert rates == [middle, middle._replace(rate=60_000, form="batch")]
    assert forms == [middle, middle._replace(form="batch")]
    assert modes == [middle, middle._replace(mode="source")]
    assert into == [middle, middle._replace(into=4)]
    assert deaths == [middle._replace(together=n, instances=2) for n in (1, 2)]
    assert [jobs_of(c, 3) for c in into] == [[3], [1, 1, 1]]
    assert axes_of([10], ["batch"], [5.0], ["state"], [1], [2]) == (
        (alone := Case(10, "batch", together=2, instances=2)),
        [Axis("", {"": alone})],
    )


def test_runs_that_are_kept_are_not_run_again() -> None:
    one, two, other = Case(10), Case(10, into=2), Case(20)
    assert missing(sorted_by_case([one, two], []), 2, 1) == [(one, 2), (two, 1), (two, 1)]
    kept = [{**case._asdict(), "at": i} for i, case in enumerate([one, two, other])]
    runs = sorted_by_case([one, two], json.loads(json.dumps(kept)))
    assert {case: [r["at"] for r in rs] for case, rs in runs.items()} == {one: [0], two: [1]}
    assert missing(runs, 2, 1) == [(two, 1)]
    assert missing(runs, 2, 2) == [(two, 1), (one, 2), (two, 1), (two, 1)]


def test_what_is_not_run_yet_is_said(tmp_path: Path) -> None:
    plot = tmp_path / "recovery.png"
    line = f"recovery --rates 10,20 --jobs 0 --kept {tmp_path / 'runs'} --plot {plot}"
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 0 and "not run" in result.output and not plot.exists()


@pytest.mark.parametrize("modes", [["state"], ["state", "source"]])
def test_the_table_and_the_picture_show_every_case(modes: list[str]) -> None:
    middle, axes = axes_of([10], ["auto"], [5.0], modes, [1], [1])
    results = {middle: [result([123.0])], middle._replace(mode="source"): [result([math.inf])]}
    console = Console(width=120, record=True, file=StringIO())
    console.print(table(middle, axes, results))
    shown = console.export_text()
    assert ("source" in shown) == ("inf" in shown) == (len(modes) == 2)
    assert shown.count("123") == 2 and "10 lines/s interpreted" in shown
    panels = {a.title: {n: results[c] for n, c in a.cases.items()} for a in axes}
    assert draw(panels).startswith(b"\x89PNG")


def test_a_terminal_of_80_columns_shows_the_whole_table() -> None:
    asked = [10_000, 100_000], ["auto", "batch"], [5.0, 30.0], ["state", "upstream"], [1, 2], [1, 2]
    middle, axes = axes_of(*asked)
    cases = [case for axis in axes for case in axis.cases.values()]
    console = Console(width=80, record=True, file=StringIO())
    console.print(table(middle, axes, {case: [result([99_999.0])] for case in cases}))
    shown = console.export_text()
    assert "…" not in shown and shown.count("99,999") == 2 * len(cases)
    labels = [label for axis in axes for label in (axis.title, *axis.cases)]
    assert all(words in shown for words in [*labels, *COLUMNS.values()])


def test_all_keys_come_and_then_a_tenth_between_two_cuts() -> None:
    import numpy as np

    source = Tenths(100, each=50, ticks=40, loading=7, between=5)
    first = np.concatenate([source.block(t) for t in range(7)])
    assert first.tolist() == list(range(100))
    for tick in range(7, 40):
        tenths = set((source.block(tick) // 10).tolist())
        assert tenths == {tick // 5 % 10}
    counts: Counter[int] = Counter()
    rows = []
    for tick in range(40):
        answers = []
        for key in source.block(tick).tolist():
            counts[key] += 1
            answers.append(counts[key])
        rows.append([0, tick + 1, 0.0, len(answers), sum(answers)])
    check(source, np.array(rows))
    with pytest.raises(JobError, match="answers and their sum"):
        check(source, np.array(rows[1:]))


def test_epochs_are_told_apart_by_the_cut_they_fall_into() -> None:
    late = {e: e / 1000 for e in range(1, 31)}
    seen = Seen(late, [(5, 6), (10, 12), (20, 20)], [10, 100, 20])
    found = {name: (v * 1000).round().tolist() for name, v in lateness(seen, 5).items()}
    assert found["full image"] == [10, 11, 12] and found["delta"] == [20]
    assert found["otherwise"] == [7, 8, 9, *range(13, 20), *range(21, 31)]


def test_answers_are_compared_as_often_as_they_are_given() -> None:
    assert differences(["a", "b"], ["b", "a"]) == 0
    assert differences(["a", "b"], ["a", "a", "c"]) == 3


def test_the_table_counts_faults_and_whom_they_cost() -> None:
    strikes = [Strike("pair", ("lines/0", "count/0"), 1.0), Strike("stop count", ("count/1",), 2.0)]
    recoveries = [(1.1, 0.2, ("lines/0", "count/0")), (5.0, 0.4, ("counts/0",))]
    jobs = [
        Job(strikes, "right", 5, "", recoveries),
        Job([Strike("pair", ("lines/0", "count/1"), 1.0)], "wrong"),
    ]
    rows = {r.kind: r for r in tally(["pair", "stop count", "node"], jobs)}
    assert rows["pair"][1:] == (2, 2, [200.0], {"right": 1, "wrong": 1})
    assert rows["stop count"][1:] == (1, 0, [], {"right": 1})
    assert rows["node"][1:] == (0, 0, [], {})
    assert rows[chaos.NOT_STRUCK].replaced == 1


def test_a_job_has_room_for_its_faults() -> None:
    assert chaos.length(10, 3.0) > 10 * 3.0 + 4
