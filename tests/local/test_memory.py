"""The end of memory in a run of one process: the operator, its rows, and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raystream.errors import StateError
from raystream.local import run
from raystream.native.memory import MemoryUse
from tests.ever_more_keys import BLOCK, filled

ROOT = Path(__file__).resolve().parents[2]
LIMITED = """
import resource
from pathlib import Path

from raystream.errors import StateError
from tests.ever_more_keys import filled

filled(1000).run()  # all code is loaded
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (300 << 20), -1))
try:
    filled(100_000_000).run()
except StateError as error:
    print(error)
"""


def test_a_system_that_gives_no_more_memory() -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED], env=env, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr
    message, where, hint = done.stdout.splitlines()
    assert message.startswith("fill has no memory left: fill/0 keeps "), done.stderr
    assert "rows of state in " in message and ", and its process takes " in message
    assert "ever_more_keys.py:" in where and "rs.forget" in hint


def test_a_node_that_is_almost_full(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([MemoryUse(5, 8, 10), MemoryUse(5, 11, 10), MemoryUse(6, 11, 10)])
    monkeypatch.setattr(run, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(run, "memory_use", lambda: next(looks))
    with pytest.raises(StateError, match=r"fill/0 keeps 600,000 rows of state in .* MB"):
        filled(100 * BLOCK).run()
