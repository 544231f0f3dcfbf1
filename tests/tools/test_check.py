"""What `make test` says at its end of tests that came to none, and how it is ended early."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.gates import LIMIT_SECONDS, until

TOOLS = Path(__file__).resolve().parents[2] / "tools"

HANGS = """
import threading
def helper():
    threading.Event().wait(60)
def test_that_waits():
    helper()
"""


@pytest.fixture
def check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """tools/check.py, whose project is in a folder of the test."""
    monkeypatch.syspath_prepend(str(TOOLS))
    module = importlib.import_module("check")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def ended(check: ModuleType, folder: Path, *options: str) -> str:
    """The summary of a run of the folder's tests, which fails."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options, str(folder)]
    part = check.Running(command, folder / "said")
    part.start()
    try:
        part.show()
        assert part.failed
        return str(part.summary())
    finally:
        part.end()


def test_a_test_that_hung_is_named(check: ModuleType, tmp_path: Path) -> None:
    file = tmp_path / "test_hangs.py"
    file.write_text(HANGS)
    limit = ("-o", "faulthandler_timeout=1", "-o", "faulthandler_exit_on_timeout=true")
    _, _, where = ended(check, tmp_path, *limit).partition("in our files:\n")
    assert where.splitlines() == [
        f'  File "{file}", line 4 in helper',
        f'  File "{file}", line 6 in test_that_waits',
    ]


def test_of_others_there_is_pytests_summary(check: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "test_fails.py").write_text("def test_that_fails():\n    assert 0\n")
    said = ended(check, tmp_path)
    assert "short test summary" in said.splitlines()[0]
    assert "test_that_fails" in said and "in our files" not in said


def test_what_waits_runs_one_after_the_other_and_no_more_once_it_is_ended(
    check: ModuleType, tmp_path: Path
) -> None:
    def part(name: str, seconds: float) -> Any:
        code = f"import pathlib, time; pathlib.Path('{name}').touch(); time.sleep({seconds})"
        return check.Running([sys.executable, "-c", code], tmp_path / f"said by {name}")

    parts = [part("first", 0), part("second", 60), part("third", 0)]
    lane = threading.Thread(target=check.one_by_one, args=(deque(parts),))
    lane.start()
    until((tmp_path / "second").exists)
    assert parts[0].code == 0 and not parts[2].ended.is_set()
    for each in reversed(parts):
        each.end()
    lane.join(LIMIT_SECONDS)
    assert not lane.is_alive() and not (tmp_path / "third").exists()
    assert [each.failed for each in parts] == [False, True, True]


def test_each_folder_of_tests_belongs_to_one_part(check: ModuleType) -> None:
    (name, rest), *known = check.others([]).items()
    folders = [each for _, where in known for each in where]
    assert name == "other tests" and rest == [f"--ignore={each}" for each in folders]
    assert len(set(folders)) == len(folders)
    assert all((TOOLS.parent / each).is_dir() for each in folders)


STARTS = """
import os, pathlib, threading
def test_that_starts_something():
    try:
        pathlib.Path("pid").write_text(str(os.getpid()))
        threading.Event().wait(60)
    finally:
        pathlib.Path("ended").touch()
"""
MAIN = """
import sys, check
from pathlib import Path
check.ROOT, check.CHECKS = Path.cwd(), {}
check.command_of = lambda command: [sys.executable, "-m", "pytest", "test_starts.py"]
sys.exit(check.main(["--tests", "test_starts.py"]))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_tests_end_what_they_started_when_it_is_ended(
    tmp_path: Path, number: signal.Signals
) -> None:
    (tmp_path / "test_starts.py").write_text(STARTS)
    env = {**os.environ, "PYTHONPATH": str(TOOLS)}
    quiet = subprocess.DEVNULL
    command = [sys.executable, "-c", MAIN]
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=quiet, stderr=quiet) as process:
        until((tmp_path / "pid").exists)
        process.send_signal(number)
        assert process.wait(LIMIT_SECONDS) in {128 + number, -number}
    assert (tmp_path / "ended").exists()
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
