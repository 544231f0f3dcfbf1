"""`ray job submit`, and the command against a Ray of its own, as a user would type them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError

import psutil
import pytest

from raystream.cli.errors import REFUSED
from tests.actors.conftest import GONE_SECONDS, job_processes
from tests.actors.helpers.heads import (
    BIN,
    ROOT,
    Head,
    end,
    environment,
    short_folder,
    started_head,
    token,
)
from tests.cli.test_values import SECRET, write_flows
from tests.ec2.conftest import head_options
from tests.gates import LIMIT_SECONDS
from tests.lrb import plain_rules
from tests.lrb.random_traffic import random_traffic
from tests.lrb.running import prepare, read_answers
from tests.processes import kill_each

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.fixture
def folder() -> Iterator[Path]:
    with short_folder() as made:
        yield made


@pytest.fixture(scope="module", name="token")
def made_token() -> Iterator[dict[str, str]]:
    with token() as made:
        yield made


@pytest.fixture(scope="module")
def head(token: dict[str, str]) -> Iterator[Head]:
    """A cluster of one node, where jobs are submitted; as `cluster.yaml` has it started."""
    with started_head(*head_options(), env=token) as started:
        yield started


def asked(head: Head, token: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """What `ray job submit` does with these arguments."""
    return subprocess.run(
        [BIN / "ray", "job", "submit", "--address", head.url, *arguments],
        cwd=ROOT,
        env=environment(**token),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def submit(head: Head, token: dict[str, str], *arguments: str) -> str:
    """What a job prints that ends well; it leaves no process."""
    done = asked(head, token, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    _, alive = psutil.wait_procs(job_processes(head.process), timeout=GONE_SECONDS)
    assert not alive
    return done.stdout


def test_nobody_gets_in_without_the_token(head: Head) -> None:
    with pytest.raises(HTTPError, match="401") as refused:
        urllib.request.urlopen(f"{head.url}/api/jobs/", timeout=LIMIT_SECONDS)
    refused.value.close()


def test_a_submitted_job(head: Head, token: dict[str, str]) -> None:
    run = ("raystream", "run", "examples.word_count:flow", "--instances", "CountWords=2")
    printed = submit(head, token, "--working-dir", ".", "--", "python", "-m", *run)
    assert "word-count: ended after" in printed
    assert "on Ray" in printed
    (row,) = (line for line in printed.splitlines() if line.split()[:1] == ["CountWords"])
    assert row.split()[1:4] == ["2", "13", "4"]


def test_linear_road_as_a_submitted_job(head: Head, token: dict[str, str], tmp_path: Path) -> None:
    rows, history = random_traffic(seed=11, roads=1, cars=120)
    data, out = prepare(tmp_path, rows, history), tmp_path / "answers"
    paths = ("--input", str(data), "--out", str(out))
    # It is installed on a cluster's nodes, so that there is nothing to send.
    run = ("lrb", "run", *paths, "--instances", "vehicles=2,segments=2")
    printed = submit(head, token, "--", "python", "-m", *run)
    assert f"Answering {len(rows):,} rows on Ray" in printed
    assert read_answers(out) == plain_rules.answers(rows, history)


def test_a_submitted_job_that_fails_logs_its_instance_and_no_values(
    head: Head, token: dict[str, str], tmp_path: Path
) -> None:
    write_flows(tmp_path)
    run = ("--", sys.executable, "-m", "raystream", "run", "told_flows:operator")
    done = asked(head, token, "--working-dir", str(tmp_path), *run)
    assert done.returncode != 0
    assert "fails raised ValueError, at epoch" in done.stdout, done.stdout + done.stderr
    logs = [f for f in (head.folder / "session_latest" / "logs").rglob("*") if f.is_file()]
    assert any(b"WARNING [told fails" in f.read_bytes() for f in logs)
    assert not [f.name for f in logs if SECRET.encode() in f.read_bytes()]
    assert SECRET not in done.stdout + done.stderr


FLOW = """
from pathlib import Path
from tests.actors.helpers.parts import endless
flow = endless(Path({folder!r}))
"""


@pytest.mark.parametrize(
    ("told", "code", "said"),
    [
        (signal.SIGINT, 130, "interrupted: the job was ended"),
        pytest.param(signal.SIGTERM, 128 + signal.SIGTERM, "", marks=pytest.mark.long),
    ],
)
def test_the_command_starts_a_ray_of_its_own_which_others_see_and_ends_it_when_it_is_told(
    folder: Path, tmp_path: Path, told: signal.Signals, code: int, said: str
) -> None:
    """By a signal to its group, as from a terminal or `timeout`."""
    (folder / "forever.py").write_text(FLOW.format(folder=str(tmp_path)))
    env = environment(PYTHONPATH=str(ROOT), RAY_TMPDIR=str(folder), TMPDIR=str(folder))
    del env["RAY_AUTH_MODE"]
    # As in a terminal: what a shell begins in the background ignores it, and so does all below.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(
        [sys.executable, "-m", "raystream", "run", "forever:flow", "--address", "auto"],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    signal.signal(signal.SIGINT, before)
    family = []
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "endless: starting\n"
        started = process.stdout.readline()
        assert started.startswith("endless: started a Ray for this run, at ")
        line = process.stdout.readline()
        assert "rows" not in line and "  epoch " in line
        family = psutil.Process(process.pid).children(recursive=True)
        look = [sys.executable, "-m", "raystream", "status"]  # the only job
        seen = subprocess.run(look, env=env, capture_output=True, text=True, check=False)
        assert seen.returncode == 0 and "Named" in seen.stdout, seen.stdout + seen.stderr
        again = [sys.executable, "-m", "raystream", "run", "forever:flow"]
        refused = subprocess.run(
            again, cwd=folder, env=env, capture_output=True, text=True, check=False
        )
        assert refused.returncode == REFUSED, refused.stdout + refused.stderr
        assert "endless is running already, as endless-" in refused.stderr
        assert "on a Ray of its own at" in refused.stderr
        *_, address = started.split()
        ask = [sys.executable, "-m", "ray.scripts.scripts", "status", "--address", address]
        other = subprocess.run(ask, env=env, capture_output=True, text=True, check=False)
        assert other.returncode and "InvalidAuthToken" in other.stdout + other.stderr
        os.killpg(process.pid, told)
        _, errors = process.communicate(timeout=LIMIT_SECONDS)
        assert (process.returncode, errors.strip()) == (code, said)
        _, alive = psutil.wait_procs(family, timeout=GONE_SECONDS)
        assert not alive
        assert not list(folder.glob("raystream-*"))
    finally:
        if process.poll() is None:
            end(process, signal.SIGKILL)
        kill_each(family)
