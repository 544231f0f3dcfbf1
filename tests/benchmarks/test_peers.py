"""The comparison with other systems: its input, what it asks and believes, and what it says. The
systems themselves are not needed."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import csv
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.jobs import compare
from benchmarks.peers import catalog, inputs, ours, running
from benchmarks.peers.__main__ import app as peers_app
from benchmarks.peers.catalog import FORMS, OURS, SYSTEMS, Form
from benchmarks.peers.programs.protocol import Task, percentiles
from benchmarks.peers.running import Found
from raystream.errors import JobError
from tests.gates import until

ROWS = 1200


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> inputs.Keys:
    made = inputs.Keys(tmp_path_factory.mktemp("keys"), ROWS, distinct=100)
    made.make()
    return made


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> inputs.Lines:
    made = inputs.Lines(tmp_path_factory.mktemp("lines"), ROWS)
    made.make()
    return made


def form_of(name: str, work: str) -> Form:
    return next(f for f in FORMS if f.name == name and f.work == work)


def task_of(form: Form, given: inputs.Keys | inputs.Lines, scratch: Path, **more: Any) -> Task:
    fields = {
        "work": form.work, "form": form.form, "path": str(given.path), "rows": given.rows,
        "distinct": 100, "checkpoint_seconds": 5.0, "scratch": str(scratch), "rate": 0, "warm": 0.0,
        "line_bytes": inputs.LINE_BYTES, "words_per_line": inputs.WORDS_PER_LINE,
        "lines_per_second": inputs.LINES_PER_SECOND,
        "window_seconds": inputs.WINDOW_SECONDS,
    }  # fmt: skip
    return Task(**{**fields, **more})


# ---------------------------------------------------------------------------- the input


def test_keys_are_the_same_for_all(keys: inputs.Keys) -> None:
    told = pq.read_table(keys.parts())["key"].to_pylist()
    assert told == keys.keys.tolist() == csv.read_csv(keys.csv())["key"].to_pylist()
    assert set(told) <= set(range(100)) and len(set(told)) > 50


def test_lines_are_the_same_for_all(lines: inputs.Lines) -> None:
    text = lines.path.read_text().splitlines()
    assert lines.text(0, ROWS).to_pylist() == text
    assert {len(line.encode()) + 1 for line in text} == {inputs.LINE_BYTES}
    for told in (pq.read_table(lines.parts()).slice(0, ROWS), csv.read_csv(lines.csv())):
        assert told["text"].to_pylist() == text
        assert told["time"].to_pylist() == inputs.seconds_of(0, ROWS).tolist()


def test_the_end_comes_after_the_last_window(lines: inputs.Lines) -> None:
    end = pq.read_table(lines.parts())["time"].to_pylist()[-1]
    assert end > inputs.seconds_of(ROWS, 1)[0] + inputs.WINDOW_SECONDS


def test_words_are_counted_by_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: inputs.Lines
) -> None:
    monkeypatch.setattr(inputs, "LINES_PER_SECOND", 20)  # so that there are two windows
    monkeypatch.setattr(inputs, "BLOCK", 500)
    short = inputs.Lines(tmp_path, ROWS)
    short.make()
    counts: Counter[tuple[str, int]] = Counter()
    for i, line in enumerate(short.path.read_text().splitlines()):
        counts.update((word, i // 20 // 30 * 30) for word in line.split())
    assert {start for _, start in counts} == {0, 30}
    assert short.per_window() == {
        "rows": len(counts),
        "sum_n": 20 * ROWS,
        "checksum": sum(crc32(w.encode()) * (s + 1) * n for (w, s), n in counts.items())
        & inputs.MASK,
    }


@given(st.sets(st.integers(1, ROWS - 1)))
def test_answers_of_micro_batches(keys: inputs.Keys, cuts: set[int]) -> None:
    total: Counter[int] = Counter()
    told = []
    at = 0
    for end in [*sorted(cuts), ROWS]:
        new = keys.keys[at:end].tolist()
        total.update(new)
        told += [(k, total[k]) for k in set(new)]
        at = end
    assert keys.updates([*sorted(cuts), ROWS]) == {
        "rows": len(told),
        "sum_n": sum(n for _, n in told),
        "checksum": sum(k * n for k, n in told),
    }


def test_an_answer_for_each_record_is_a_batch_for_each(keys: inputs.Keys) -> None:
    assert keys.per_record() == keys.updates(range(1, ROWS + 1))
    assert keys.totals()["sum_n"] == ROWS


# ---------------------------------------------------------------------------- ours


@pytest.mark.parametrize("name", ["compiled", "batch", "interpreted"])
def test_ours_counts_keys(
    name: str, keys: inputs.Keys, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    form = form_of(f"{OURS}:{name}", "w1")
    ours.w1(task_of(form, keys, tmp_path), None)
    assert json.loads(capsys.readouterr().out)["answers"] == keys.per_record()


@pytest.mark.parametrize("name", ["batch", "interpreted"])
def test_ours_counts_words(
    name: str, lines: inputs.Lines, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    form = form_of(f"{OURS}:{name}", "w2")
    ours.w2(task_of(form, lines, tmp_path), None)
    assert json.loads(capsys.readouterr().out)["answers"] == lines.per_window()


def test_ours_counts_keys_at_a_pace(
    keys: inputs.Keys, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    form = form_of(f"{OURS}:compiled", "latency")
    ours.latency(task_of(form, keys, tmp_path, rate=10_000, warm=ROWS / 20_000), None)
    said = json.loads(capsys.readouterr().out)
    assert said["answers"] == keys.per_record()
    assert said["latency_ms"]["n"] == ROWS // 2
    assert 0 < said["latency_ms"]["p50"] <= said["latency_ms"]["p99"]


# ---------------------------------------------------------------------------- what is asked


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f"{f.work} {f.name}")
def test_each_form_has_a_program(
    form: Form, keys: inputs.Keys, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(catalog, "ENVIRONMENTS", tmp_path)
    if form.system in SYSTEMS:
        config = SYSTEMS[form.system].site / "pyflink" / "conf" / "config.yaml"
        config.parent.mkdir(parents=True)
        config.write_text("env:\n  java:\n    opts:\n      all: --add-opens=a/b=C --add-opens=d\n")
    arguments, more = catalog.command(form, task_of(form, keys, tmp_path))
    if "-m" in arguments:
        program = Path(catalog.ROOT, *arguments[arguments.index("-m") + 1].split("."))
        assert program.with_suffix(".py").exists()
        assert Task(**json.loads(arguments[-1])).work == form.work
    else:
        assert arguments[0] == "java" and "--add-opens=d" in arguments
        assert f"work={form.work}" in arguments and f"rows={ROWS}" in arguments
    if form.system == "flink":
        checkpoints = "execution.checkpointing.interval=5s"
        assert checkpoints in arguments or checkpoints in more["FLINK_SETTINGS"].split()


def test_a_form_of_a_work_has_one_name() -> None:
    assert len({(f.work, f.name) for f in FORMS}) == len(FORMS)
    assert {f.system for f in FORMS} == {OURS, *SYSTEMS}


def test_slow_forms_get_a_share() -> None:
    slow = form_of("pyflink:thread", "w1")
    assert running.rows_of(slow, 1_000_000, 0) == 1_000_000 * slow.share
    assert running.rows_of(form_of("flink:java", "w2"), 1_000_000, 0) == 50_000
    assert running.rows_of(form_of("flink:java", "latency"), 1, 70) == 70 * running.PACED_SECONDS


def test_what_is_installed_is_of_these_versions(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(catalog, "ENVIRONMENTS", tmp_path)
    system = SYSTEMS["bytewax"]
    assert not system.installed
    system.folder.mkdir()
    system.ready.write_text(json.dumps([*system.wanted[:1], "bytewax==0.1"]))
    assert not system.installed
    system.ready.write_text(json.dumps(system.wanted))
    assert system.installed
    listed = CliRunner().invoke(peers_app, ["list"])
    assert listed.output.count("not installed") == len(SYSTEMS) - 1
    refused = CliRunner().invoke(peers_app, ["install", "storm"])
    assert refused.exit_code == 2 and "storm" in refused.output


# ---------------------------------------------------------------------------- what is believed

PLAIN = form_of("bytewax:plain", "w1")


def answering(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let every form be this program; `task` is what it is asked."""
    program = "import json, os, sys, time; task = json.loads(sys.argv[1]); " + code

    def command(form: Form, task: Task) -> tuple[list[str], dict[str, str]]:
        return [sys.executable, "-c", program, json.dumps(task._asdict())], {}

    monkeypatch.setattr(running, "command", command)


def run(tmp_path: Path, limit: float = 60.0) -> Found:
    return running.run(PLAIN, records=5000, data=tmp_path, limit=limit)


def test_right_answers_are_believed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = inputs.Keys(tmp_path, 1000)
    given.make()
    said = {"seconds": 0.5, "answers": given.per_record(), "latency_ms": None}
    answering(monkeypatch, f"print('words'); print(json.dumps({said})); print('bye')")
    found = run(tmp_path)
    assert (found.units, found.per_second) == (1000, 2000.0)


def test_wrong_answers_are_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said = {"seconds": 0.5, "answers": {"rows": 1000, "sum_n": 1, "checksum": 1}}
    answering(monkeypatch, f"print(json.dumps({said}))")
    with pytest.raises(JobError, match=r"Bytewax: wrong answers: .*'sum_n': 1,"):
        run(tmp_path)


def test_a_failure_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answering(monkeypatch, "sys.exit('no such thing as ' + task['form'])")
    with pytest.raises(JobError, match=r"Bytewax ended with 1:\nno such thing as plain"):
        run(tmp_path)
    answering(monkeypatch, "print('done')")
    with pytest.raises(JobError, match="Bytewax ended with 0"):
        run(tmp_path)


def test_who_takes_too_long_is_ended_with_its_children(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tmp_path / "pids"
    answering(
        monkeypatch,
        f"child = os.fork(); open({str(told)!r}, 'a').write(f'{{os.getpid()}} '); time.sleep(600)",
    )
    limit, pids = 1.0, list[int]()
    while len(pids) < 2:  # this machine was too slow for it to begin in time
        limit *= 3
        with pytest.raises(JobError, match=f"not done after {limit:g} s"):
            run(tmp_path, limit=limit)
        pids = [int(pid) for pid in told.read_text().split()] if told.exists() else []
    until(lambda: not any(map(running_still, pids)))  # who was killed may take a moment to be gone


def running_still(pid: int) -> bool:
    """Whether a process runs; who only waits to be buried does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_what_a_program_said_is_its_last_line_of_the_kind() -> None:
    text = 'starting\n{"seconds": 1, "answers": {}}\n{"other": 2}\nclosed\n'
    assert running.last_json(text) == {"seconds": 1, "answers": {}}
    assert running.last_json("nothing") is None


def test_percentiles_are_milliseconds() -> None:
    assert percentiles([i / 1000 for i in range(100, 0, -1)]) == {"p50": 51, "p99": 100, "n": 100}
    assert percentiles([]) is None


# ---------------------------------------------------------------------------- what is said

JAVA = form_of("flink:java", "w1")
MINE = form_of(f"{OURS}:compiled", "w1")
PACED = form_of("flink:java", "latency")


def found_of(form: Form, seconds: float, rate: int = 0, p99: float = 0.0) -> Found:
    late = {"p50": 0.5, "p99": p99, "n": 9} if rate else None
    return Found(form, 1_000_000, seconds, late, rate)


def test_the_table_has_medians_and_ratios_of_what_ran() -> None:
    results = {
        compare.Case(JAVA): [found_of(JAVA, s) for s in (0.5, 0.25, 1.0)],
        compare.Case(MINE): [found_of(MINE, 0.1)],
        compare.Case(PLAIN): [],
        compare.Case(PACED, 100): [found_of(PACED, 1.0, 100, p) for p in (2.0, 4.0, 3.0)],
    }
    text = compare.report(results, {compare.Case(PLAIN): "too slow\nby far"}, 7_000_000, "here")
    assert text.startswith("here; raystream ") and "apache-flink 2.3.0" in text
    assert "bytewax 0" not in text and "windowed word count" not in text
    assert "7,000,000 records" in text
    assert "| Flink, JVM | 2 | 1 to 4 | 5 times | each record | 1,000,000 | 3 |" in text
    assert "| raystream, compiled | 10 | 10 to 10 |  | each record | 1,000,000 | 1 |" in text
    assert "| 100 | 0.5 | 3 | 2 to 4 | each record | 3 |" in text
    assert "Failed: w1 Bytewax: too slow" in text and "by far" not in text


def test_who_is_not_installed_is_skipped_and_the_others_take_turns(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(catalog, "ENVIRONMENTS", tmp_path)
    turns = []

    def run(form: Form, **given: Any) -> Found:
        turns.append((form.name, given["rate"]))
        if form.form == "batch":
            raise JobError("it fell over")
        return found_of(form, 1.0, given["rate"], 1.0)

    monkeypatch.setattr(compare, "run", run)
    result = CliRunner().invoke(app, ["compare", "--runs", "2", "--rates", "9", "--json"])
    assert result.exit_code == 1 and "it fell over" in result.output
    for name in SYSTEMS:
        assert (
            f"{name} is not installed: python -m benchmarks.peers install {name}" in result.output
        )
    assert {name.partition(":")[0] for name, _ in turns} == {OURS}
    for form in ("compiled", "together", "arrival"):
        assert Counter(turns)[f"{OURS}:{form}", 9] == 2
    assert Counter(turns)[f"{OURS}:batch", 0] == 2  # of two works, not again after it failed
    assert sum(line.startswith('{"work"') for line in result.output.splitlines()) == 12


@pytest.mark.parametrize("line", ["--works w3", "--peers storm", "--forms raystream:magic"])
def test_what_is_unknown_is_refused(line: str) -> None:
    result = CliRunner().invoke(app, ["compare", *line.split()])
    assert result.exit_code == 2 and line.split()[1] in result.output


@pytest.mark.ray
@pytest.mark.long
def test_ours_is_compared_with_nobody(tmp_path: Path) -> None:
    line = "compare --peers none --records 20000 --works w2 --forms raystream:batch --runs 1 --data"
    result = CliRunner().invoke(app, [*line.split(), str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "| raystream, batch, combined |" in result.output
