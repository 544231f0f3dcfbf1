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
from raystream.durable.saves import Saves
from raystream.durable.store import open_store
from tests.actors.helpers.heads import GONE_SECONDS, ROOT, end, environment, short_folder
from tests.flows import Running
from tests.gates import LIMIT_SECONDS, Gate, Slow
from tests.processes import family_of, kill_each

pytestmark = [pytest.mark.ray, pytest.mark.slow]
LINES = 1500
URL = "s3://bucket/some/jobs"

FLOW = """
from pathlib import Path
from tests.actors.helpers.parts import slow
from tests.gates import Gate
flow = slow(Path({out!r}), lines={lines}, gate=Gate(Path({gate!r})))
"""


def expected(gate: Gate) -> Counter[Running]:
    words = Counter(Slow(LINES, gate).words())
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
    family = family_of(process.pid)
    kill_each(family, signal.SIGSTOP)  # nobody sees another one die
    kill_each(family)
    process.communicate()
    _, alive = psutil.wait_procs(family[1:], timeout=GONE_SECONDS)
    assert not alive and process.returncode == -signal.SIGKILL


@pytest.mark.long
@pytest.mark.usefixtures("s3")
def test_a_job_goes_on_from_a_bucket_after_everything_was_killed(tmp_path: Path) -> None:
    saves, gate = Saves(open_store(URL), "slow"), Gate(tmp_path / "gate")
    with short_folder() as folder:
        flow = FLOW.format(out=str(tmp_path / "out"), lines=LINES, gate=str(gate.folder))
        (folder / "counts.py").write_text(flow)
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
            <= saved.checkpoint
        )
        gate.open()
        second = started(folder, "--resume", "--instances", "count=3,files=2")
        try:
            said, _ = second.communicate(timeout=LIMIT_SECONDS)
        finally:
            if second.poll() is None:
                end(second, signal.SIGKILL)
    assert second.returncode == 0, said
    assert f"goes on from checkpoint {saved.checkpoint} of run 1 of slow" in said
    assert written(tmp_path / "out") == expected(gate) and shown < expected(gate)


def _said(process: subprocess.Popen[str]) -> Any:
    return process.poll() is not None and process.stdout and process.stdout.read()
