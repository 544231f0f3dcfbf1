"""The start of a job: what is measured, and what is said of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.jobs import start, start_flow
from benchmarks.jobs.start import FIRST, HEAVY, IMPORT, LATER, importing, table
from raystream.errors import JobError
from tests.gates import LIMIT_SECONDS


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.long
def test_starts_are_measured() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "start", "--repeat", "1", "--json"],
        check=False,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [t["work"] for t in told] == [FIRST, LATER, IMPORT]
    assert all(0 < t["seconds"] < t["end_seconds"] for t in told[:2])
    assert told[2]["heavy"] == []


def test_the_flow_notes_its_first_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(start.FOLDER, str(tmp_path))
    monkeypatch.setattr(start_flow, "SOURCE", start_flow.w1.Keys(50, 10, 1))
    report = start_flow.flow().run()
    noted = float((tmp_path / "first").read_text())
    assert report.started <= noted <= report.started + report.elapsed
    assert start.w1.totals(tmp_path) == start.w1.expected(start_flow.SOURCE)


def test_a_run_that_fails_is_no_result() -> None:
    with pytest.raises(JobError, match="raystream failed") as caught:
        start.run("127.0.0.1:1")
    assert "no Ray cluster" in str(caught.value)


def test_an_import_is_measured_in_a_fresh_interpreter() -> None:
    found = importing()
    assert found["seconds"] > 0 and found["heavy"] == []


def test_the_table_has_a_row_for_each_thing() -> None:
    runs = [{"seconds": s, "end_seconds": s + 1} for s in (4.0, 5.0, 9.0)]
    imports = [{"seconds": 0.02, "heavy": []}, {"seconds": 0.04, "heavy": ["numpy"]}]
    shown = table({FIRST: runs[:1], LATER: runs, IMPORT: imports})
    assert [list(c.cells)[1] for c in shown.columns] == [LATER, "5", "4", "9", "6", "3", ""]
    assert [list(c.cells)[2] for c in shown.columns][-2:] == ["2", "numpy"]
    clean = table({IMPORT: imports[:1]})
    assert list(clean.columns[-1].cells) == ["none"]
    assert all(package in str(clean.caption) for package in HEAVY)
