"""Flows whose code is in `__main__`, as in the cells of a notebook, run in other processes."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.actors.helpers.cells import ANSWERS
from tests.gates import LIMIT_SECONDS

ROOT = Path(__file__).resolve().parents[3]


def cells(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.actors.helpers.cells", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def answers(folder: Path) -> list[tuple[int, int, int]]:
    rows = [
        row
        for file in (folder / "out" / "Word").glob("*.csv")
        for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines())
    ]
    return sorted((int(row["time"]), int(row["shop"]), int(row["n"])) for row in rows)


def test_a_plan_of_cells_runs_where_there_are_no_cells(tmp_path: Path) -> None:
    """Annotations that are texts, functions that a function calls, timers, compiled code; errors
    have the line."""
    cells(tmp_path, "carry", "plans")
    assert not (tmp_path / "out").exists()
    said = cells(tmp_path, "run", "plans")
    assert answers(tmp_path) == ANSWERS
    assert said.splitlines()[0] == "all is well"
    assert_line_is_named(said)


@pytest.mark.ray
@pytest.mark.usefixtures("on_ray")
def test_the_cells_of_a_notebook_run_on_ray(tmp_path: Path) -> None:
    import ray

    said = cells(tmp_path, "ray", ray.get_runtime_context().gcs_address)
    assert answers(tmp_path) == ANSWERS
    assert said.splitlines()[0] == "6"
    assert_line_is_named(said)


def assert_line_is_named(said: str) -> None:
    assert "broken raised ZeroDivisionError" in said
    assert re.search(r"<cell e>:5 +yield Word\(word.time, word.shop, 1 // ", said), said
