"""Who goes first. Each in a process of its own: a thread cannot always become nicer and back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys, threading
from raystream.state.priority import go_first

threads, over = [], threading.Event()

def nice(): return [os.getpriority(os.PRIO_PROCESS, t) for t in threads]

def begin():
    begun = threading.Event()
    def run():
        threads.append(threading.get_native_id())
        begun.set()
        over.wait()
    threading.Thread(target=run, daemon=True).start()
    begun.wait()

os.nice(15 - os.nice(0))
threads.append(threading.get_native_id())
begin()
if "other" in sys.argv:
    os.setuid(65534)
go_first()
begin()
print(*nice())
"""


def nice(*arguments: str) -> list[int]:
    """Of the main thread, one that was there before and one that came later."""
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    return [int(n) for n in found.stdout.split()]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs to be root")
def test_all_threads_of_a_process_go_first() -> None:
    assert nice() == [5, 5, 5]


def test_nothing_happens_where_it_is_not_allowed() -> None:
    if os.geteuid() == 0:
        assert nice("other") == [15, 15, 15]
    else:
        assert len(set(nice())) == 1
