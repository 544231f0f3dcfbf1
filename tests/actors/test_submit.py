"""`ray job submit`, and the command against a Ray of its own, as a user would type them."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.actors.conftest import GONE_SECONDS, job_processes

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
START_SECONDS = 180
JOB_SECONDS = 240

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def environment(**more: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    path = f"{BIN}{os.pathsep}{env['PATH']}"
    return {
        **env,
        "PATH": path,
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        **more,
    }


def free_ports(n: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def end(process: subprocess.Popen[str], how: signal.Signals = signal.SIGTERM) -> None:
    """End a process and all that it started."""
    family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    process.send_signal(how)
    _, alive = psutil.wait_procs(family, timeout=GONE_SECONDS)
    for left in alive:
        with suppress(psutil.NoSuchProcess):
            left.kill()
    process.wait(GONE_SECONDS)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name, because Ray makes sockets in it."""
    made = Path(tempfile.mkdtemp(prefix="rs-"))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def dashboard(folder: Path) -> Iterator[tuple[str, psutil.Process]]:
    """A cluster of one node: where jobs are submitted, and its process."""
    port, board, agent, metrics, client = free_ports(5)
    command = [
        *(BIN / "ray", "start", "--head", "--block", "--num-cpus=2", "--disable-usage-stats"),
        *("--node-ip-address=127.0.0.1", f"--port={port}", f"--temp-dir={folder}"),
        *("--dashboard-host=127.0.0.1", f"--dashboard-port={board}"),
        *(f"--dashboard-agent-listen-port={agent}", f"--metrics-export-port={metrics}"),
        *(f"--ray-client-server-port={client}", f"--object-store-memory={100 << 20}"),
    ]
    with open(folder / "head.log", "w") as log:
        head = subprocess.Popen(command, env=environment(), stdout=log, stderr=log, text=True)
    url = f"http://127.0.0.1:{board}"
    try:
        assert answers(f"{url}/api/version", head), (folder / "head.log").read_text()
        yield url, psutil.Process(head.pid)
    finally:
        end(head)


def answers(url: str, process: subprocess.Popen[str]) -> bool:
    """Wait until a server answers; False when its process has ended or it takes too long."""
    for _ in range(START_SECONDS * 4):
        with suppress(OSError), urllib.request.urlopen(url, timeout=5):
            return True
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.25)
            return False
    return False


def test_a_submitted_job(dashboard: tuple[str, psutil.Process]) -> None:
    url, head = dashboard
    submit = [BIN / "ray", "job", "submit", "--address", url, "--working-dir", ".", "--"]
    flow = ["python", "-m", "raystream", "run", "examples.word_count:flow"]
    done = subprocess.run(
        [*submit, *flow, "--instances", "CountWords=2"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "word-count: ended after" in done.stdout
    assert "on Ray" in done.stdout
    (row,) = (line for line in done.stdout.splitlines() if line.split()[:1] == ["CountWords"])
    assert row.split()[1:4] == ["2", "13", "4"]
    _, alive = psutil.wait_procs(job_processes(head), timeout=GONE_SECONDS)
    assert not alive


FLOW = """
from pathlib import Path
from tests.actors.parts import endless
flow = endless(Path({folder!r}))
"""


def test_the_command_starts_a_ray_of_its_own_and_ends_it_on_ctrl_c(
    folder: Path, tmp_path: Path
) -> None:
    (folder / "forever.py").write_text(FLOW.format(folder=str(tmp_path)))
    process = subprocess.Popen(
        [sys.executable, "-m", "raystream", "run", "forever:flow", "--address", "auto"],
        cwd=folder,
        env=environment(PYTHONPATH=str(ROOT), RAY_TMPDIR=str(folder), TMPDIR=str(folder)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    family = []
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "endless: starting\n"
        line = process.stdout.readline()
        assert "rows" not in line and "Named" in line, process.stderr and process.stderr.read()
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=JOB_SECONDS)
        assert process.returncode == 130, errors
        assert errors.strip() == "interrupted: the job was ended"
        _, alive = psutil.wait_procs(family, timeout=GONE_SECONDS)
        assert not alive
        assert not list(folder.glob("raystream-*"))
    finally:
        if process.poll() is None:
            end(process, signal.SIGKILL)
        for left in family:
            with suppress(psutil.NoSuchProcess):
                left.kill()
