"""The head of a cluster is killed: `raystream run` says so and ends, whatever comes after it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from raystream.actors.client.head_watch import RAY_WAITS
from tests.actors.helpers.heads import ROOT, end, environment, short_folder, started_head
from tests.gates import LIMIT_SECONDS
from tests.processes import family_of, kill_each

pytestmark = [pytest.mark.ray, pytest.mark.slow]

FLOW = """
from pathlib import Path
from tests.actors.helpers.parts import slow
flow = slow(Path({out!r}), lines=1_000_000)
"""


@pytest.mark.parametrize("again", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_run_ends_when_the_head_has(tmp_path: Path, again: bool) -> None:
    out = tmp_path / "out"
    waits = {} if again else {RAY_WAITS: "30"}
    with short_folder() as folder, ExitStack() as heads:
        (folder / "counts.py").write_text(FLOW.format(out=str(out)))
        head = heads.enter_context(started_head())
        run = subprocess.Popen(
            [sys.executable, "-m", "raystream", "run", "counts:flow"]
            + ["--address", head.address, "--durable", str(tmp_path / "saved")]
            + ["--checkpoint-seconds", "0.5", "--spares", "0"],
            cwd=folder,
            env=environment(PYTHONPATH=str(ROOT), TMPDIR=str(folder), **waits),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            deadline = time.monotonic() + LIMIT_SECONDS
            while not any(out.glob("**/*.parquet")):
                assert run.poll() is None and time.monotonic() < deadline, run.poll()
                time.sleep(0.1)
            kill_each(family_of(head.process.pid))
            if again:
                heads.enter_context(started_head(at=head.address))
            said, _ = run.communicate(timeout=LIMIT_SECONDS)
        finally:
            if run.poll() is None:
                end(run, signal.SIGKILL)
            assert run.stdout is not None
            run.stdout.close()
    why = "another one has begun" if again else "its head has not answered for"
    assert f"the Ray cluster that the job ran on is gone: {why}" in said
    assert "Go on from the newest saved checkpoint: `raystream run --resume`" in said
    assert run.returncode == 1 and "Traceback" not in said, said
