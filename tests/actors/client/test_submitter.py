"""Who submitted a job dies: the job goes on, is seen, and is ended by somebody else. Who is told to
end ends the job first."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import ray

from raystream.actors.client.jobs import jobs
from raystream.actors.client.stopping import stop
from raystream.actors.client.watching import looks
from raystream.errors import ConfigError
from tests.actors.conftest import job_processes
from tests.actors.helpers import parts
from tests.actors.helpers.heads import ROOT, environment
from tests.gates import LIMIT_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]
SUBMITTER = """
import sys
from pathlib import Path
from tests.actors.helpers.parts import endless
endless(Path(sys.argv[1])).run(cluster=sys.argv[2], spares=0)
"""


def until(condition: Callable[[], bool], submitter: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it took too long"
        assert submitter.poll() in (None, -signal.SIGKILL), "the submitter failed"
        time.sleep(0.1)


def position() -> int:
    """How far the job is; 0 before it is seen."""
    if not jobs("auto"):
        return 0
    for status, _ in looks("endless", "auto", 0.0):
        return min((w.progress.position if w.progress else 0 for w in status.workers), default=0)
    return 0


def submitted(folder: Path) -> subprocess.Popen[bytes]:
    address = ray.get_runtime_context().gcs_address
    return subprocess.Popen(
        [sys.executable, "-c", SUBMITTER, str(folder), address],
        env=environment(PYTHONPATH=str(ROOT)),
        stderr=subprocess.PIPE,
    )


@pytest.mark.long
def test_a_job_ends_with_its_submitter_that_gets_sigterm(tmp_path: Path) -> None:
    submitter = submitted(tmp_path)
    try:
        until(lambda: position() > 10, submitter)
        submitter.terminate()
        _, told = submitter.communicate(timeout=LIMIT_SECONDS)
    finally:
        submitter.kill()
    assert (submitter.returncode, told) == (128 + signal.SIGTERM, b"")
    assert jobs("auto") == [] and not job_processes()


def test_a_job_goes_on_when_its_submitter_is_killed_and_is_stopped_by_another(
    tmp_path: Path,
) -> None:
    submitter = submitted(tmp_path)
    try:
        until(lambda: position() > 10, submitter)
    finally:
        submitter.kill()
        submitter.communicate()
    before = position()
    until(lambda: position() > before + 50, submitter)
    (run,) = jobs("auto")
    with pytest.raises(ConfigError, match=f"endless is running already, as {run}") as refused:
        parts.endless(tmp_path).run(cluster="auto")
    assert "raystream stop endless" in refused.value.hint
    assert job_processes(), "and that did it no harm"
    assert stop("endless", "auto", save=False) == f"{run}: the job was stopped"
    assert jobs("auto") == []
