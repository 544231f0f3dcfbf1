"""All that a job runs on is killed, the cluster too; what is in a bucket is enough to go on."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest

import raystream as rs
from raystream.io.saves import Saves
from raystream.io.store import open_store
from tests.actors.heads import GONE_SECONDS, ROOT, end, environment, short_folder
from tests.flows import Running

pytestmark = [pytest.mark.ray, pytest.mark.slow]
LINES = 1500
LIMIT_SECONDS = 240.0
URL = "s3://bucket/some/jobs"

FLOW = """
from pathlib import Path
from tests.actors.parts import slow
flow = slow(Path({out!r}), lines={lines})
"""


def expected() -> Counter[Running]:
    words = Counter(w for i in range(LINES) for s in "ab" for w in (f"{s}{i % 7}", f"w{i % 5}"))
    return Counter(Running(word, n + 1) for word, count in words.items() for n in range(count))


def written(folder: Path, *, partial: bool = False) -> Counter[Running]:
    batches = rs.io.read_parts(folder, Running, partial=partial)
    return Counter(r for b in batches for r in b.records())


def started(folder: Path, *options: str) -> subprocess.Popen[str]:
    """`raystream run` with a Ray of its own, whose files are in a folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "raystream", "run", "counts:flow"]
        + ["--durable", URL, "--checkpoint-seconds", "0.5", "--spares", "0", *options],
        cwd=folder,
        env=environment(PYTHONPATH=str(ROOT), RAY_TMPDIR=str(folder), TMPDIR=str(folder)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def kill_all(process: subprocess.Popen[str]) -> None:
    """Kill a process and all that it started, at once."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for each in family:
        each.send_signal(signal.SIGSTOP)  # nobody sees another one die
    for each in family:
        each.send_signal(signal.SIGKILL)
    process.communicate()
    _, alive = psutil.wait_procs(family[1:], timeout=GONE_SECONDS)
    assert not alive and process.returncode == -signal.SIGKILL


@pytest.mark.usefixtures("s3")
def test_a_job_goes_on_from_a_bucket_after_everything_was_killed(tmp_path: Path) -> None:
    saves = Saves(open_store(URL), "slow")
    with short_folder() as folder:
        (folder / "counts.py").write_text(FLOW.format(out=str(tmp_path / "out"), lines=LINES))
        first = started(folder, "--instances", "count=2,lines=2")
        deadline = time.monotonic() + LIMIT_SECONDS
        while saves.newest(checksums=False).saved is None:
            assert first.poll() is None and time.monotonic() < deadline, _said(first)
            time.sleep(0.05)
        kill_all(first)
        saved = saves.newest().saved
        assert saved is not None
        shown = written(tmp_path / "out", partial=True)
        assert (
            max((p.upto for p in rs.io.parts(tmp_path / "out", partial=True)), default=0)
            <= saved.cut
        )
        second = started(folder, "--resume", "--instances", "count=3,files=2")
        try:
            said, _ = second.communicate(timeout=LIMIT_SECONDS)
        finally:
            if second.poll() is None:
                end(second, signal.SIGKILL)
    assert second.returncode == 0, said
    assert f"goes on from cut {saved.cut} of run 1 of slow" in said
    assert written(tmp_path / "out") == expected() and shown < expected()


def _said(process: subprocess.Popen[str]) -> Any:
    return process.poll() is not None and process.stdout and process.stdout.read()
