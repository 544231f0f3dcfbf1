"""A project of `raystream new`, taken to a Ray that `ray start` has begun, as its README says."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from raystream.cli.errors import REFUSED
from raystream.cli.project import make_project
from tests.actors.helpers.heads import BIN, Head, environment, short_folder, started_head, token
from tests.gates import LIMIT_SECONDS

pytestmark = [pytest.mark.ray, pytest.mark.slow]


class Place(NamedTuple):
    """A project, and a Ray on the same machine of a user who has a token. env: that user's
    variables. None of them says that there is a token."""

    project: Path
    head: Head
    env: dict[str, str]

    def done(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """What a command says that a user types in the project."""
        return subprocess.run(
            [BIN / words[0], *words[1:]],
            cwd=self.project,
            env={**self.env, **env},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )

    def submitted(self, *words: str) -> subprocess.CompletedProcess[str]:
        """What a submission says, with the variables that the README has for it."""
        return self.done(*words, RAY_ADDRESS=self.head.url, RAY_AUTH_MODE="token")

    def rows(self, out: Path) -> int:
        """How many answers lie in a folder."""
        files = (out / "Mean").glob("*.csv")
        return sum(len(f.read_text(encoding="utf-8").splitlines()) - 1 for f in files)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with short_folder() as folder, token() as shown, started_head(env=shown) as head:
        make_project(folder / "sensors")
        (folder / "ray").symlink_to(head.folder)  # where commands look for what `ray start` notes
        env = environment(**shown, RAY_TMPDIR=str(folder), OUT=str(folder / "live"))
        del env["RAY_AUTH_MODE"]
        yield Place(folder / "sensors", head, env)


def submission(project: Path) -> list[str]:
    """The words of the submission in the README."""
    text = (project / "README.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^    (ray job submit .*)$", text, re.MULTILINE)
    return shlex.split(line)


def test_a_project_is_submitted_as_its_readme_says(place: Place, tmp_path: Path) -> None:
    words = submission(place.project)
    at = words.index("OUT=s3://bucket/means")
    live = words.index("sensors.flow:live")
    words[at], words[live] = f"OUT={tmp_path}", "sensors.flow:flow"
    done = place.submitted(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sensors: ended after" in done.stdout and "on Ray" in done.stdout
    assert place.rows(tmp_path) == 240


def test_a_project_is_watched_scaled_and_stopped_on_that_ray(place: Place) -> None:
    run = ("env", f"OUT={place.env['OUT']}", "raystream", "run", "sensors.flow:live")
    begin = ("ray", "job", "submit", "--no-wait", "--working-dir", ".", "--", *run)
    assert place.submitted(*begin).returncode == 0
    deadline = time.monotonic() + LIMIT_SECONDS
    while "Means/0" not in (seen := place.done("raystream", "status", "sensors")).stdout:
        assert time.monotonic() < deadline, seen.stdout + seen.stderr
    assert "WARNING" not in seen.stderr, "Ray's, of its token"
    scaled = place.done("raystream", "scale", "sensors", "Means=2")
    assert scaled.returncode == 0 and "took over from Means/0" in scaled.stdout, scaled.stderr
    again = place.done("raystream", "run", "sensors.flow:flow")
    assert again.returncode == REFUSED and "sensors is running already" in again.stderr
    stopped = place.done("raystream", "stop", "sensors")
    assert stopped.returncode == 0 and "was stopped" in stopped.stdout, stopped.stderr


def test_a_token_that_is_not_shown_is_told_at_once(place: Place) -> None:
    told = place.done(
        "raystream", "jobs", "--address", place.head.address, RAY_AUTH_MODE="disabled"
    )
    assert told.returncode == REFUSED and "is not open to this process" in told.stderr
    assert told.stderr.count("InvalidAuthToken") <= 2, "Ray tries twenty times"
