"""A running job goes over to other code and back, and processes die in between."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import signal
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from raystream.cli.app import app
from raystream.dataflow.assignment import FOREVER
from raystream.durable.saves import Saves
from raystream.durable.store import open_store
from tests.actors.conftest import job_processes
from tests.actors.jobs.test_ray_moves import LINES, parts_of
from tests.processes import kill_each

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]

EPOCH = 10
HEARD_SAMPLES = 5
"""After so many reports the submitter has asked which code the job runs."""
MODULE = "flow_with_versions"
FLOW = """
import os
from collections.abc import Iterator
from pathlib import Path
import raystream as rs
from tests.actors.jobs.test_ray_moves import Held
from tests.flows import Running, Word, split

class Tally(rs.State):
    FIELDS

    @classmethod
    def upgrade(cls, old):
        return cls(n=old["n"])

@rs.operator(key="word")
def count(word: Word, tally: Tally) -> Iterator[Running]:
    Path("FOLDER", f"pid-{os.getpid()}").touch()
    tally.n += 1
    yield Running(word.word, SIGN tally.n)

flow = rs.Flow("versions")
lines = flow.source(Held(Path("FOLDER/gate")), epochs=rs.by_time(seconds=EPOCH), name="lines")
counted = lines.through(split).through(count, name="count")
counted.to(rs.io.parquet("FOLDER/out"), name="files")
"""


def version(folder: Path, name: str, fields: str, sign: str) -> Path:
    """A folder with one version of the flow."""
    where = folder / name
    where.mkdir()
    text = textwrap.dedent(FLOW).replace("FIELDS", fields).replace("SIGN", sign)
    text = text.replace("FOLDER", str(folder)).replace("EPOCH", str(EPOCH))
    (where / f"{MODULE}.py").write_text(text)
    return where


class Story:
    """Goes on by one step with each progress report, once a checkpoint is committed."""

    def __init__(self, folder: Path, old: Path, new: Path, module: str = MODULE) -> None:
        self.folder, self.module = folder, module
        self.after: list[int] = []
        self.committed = 0
        self._steps: Iterator[None] = self._told(old, new)

    def __call__(self, sample: Any) -> None:
        self.committed = sample.committed.epoch
        if self.committed:
            next(self._steps, None)

    def _told(self, old: Path, new: Path) -> Iterator[None]:
        self._upgrade(new)
        yield
        for pid in [int(p.name.removeprefix("pid-")) for p in self.folder.glob("pid-*")]:
            os.kill(pid, signal.SIGKILL)
            yield
        while self.committed <= self.after[0] + 1:  # until then a successor begins before it
            yield
        self._upgrade(old)
        yield
        (self.folder / "gate").touch()

    def _upgrade(self, to: Path) -> None:
        command = f"upgrade versions {self.module}:flow --code-folder {to}"
        done = CliRunner().invoke(app, shlex.split(command))
        found = re.search(r"after epoch ([\d,]+) ", done.output)
        assert done.exit_code == 0 and found, done.output
        self.after.append(int(found[1].replace(",", "")))


class Losing(Story):
    """All processes of the job die when a checkpoint of the new code is saved."""

    def _told(self, old: Path, new: Path) -> Iterator[None]:
        self._upgrade(new)
        saves = Saves(open_store(self.folder / "cuts"), "versions")
        while not any(saved.version for saved in saves.kept()):
            yield
        for _ in range(HEARD_SAMPLES):
            yield
        kill_each(job_processes())
        yield
        (self.folder / "gate").touch()


def test_each_epoch_is_made_by_one_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = version(tmp_path, "old", "n: int = 0", "")
    new = version(tmp_path, "new", "n: int = 0; seen: float = 0.0", "-")
    monkeypatch.syspath_prepend(str(old))
    flow = importlib.import_module(MODULE).flow
    story = Story(tmp_path, old, new)
    report = flow.run(
        cluster="auto", instances={"count": 2}, on_progress=story, checkpoint_seconds=0.5, spares=3
    )
    first, last = story.after
    assert 0 < first < last
    assert len(report.recoveries) >= 1
    assert counted(tmp_path) == expected(first, last)


@pytest.mark.long
def test_when_all_is_lost_a_job_goes_on_with_the_code_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = version(tmp_path, "old", "n: int = 0", "")
    new = version(tmp_path, "new", "n: int = 0; seen: float = 0.0", "-")
    monkeypatch.syspath_prepend(str(old))
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    flow = importlib.import_module(MODULE).flow
    story = Losing(tmp_path, old, new)
    report = flow.run(
        cluster="auto", durable=tmp_path / "cuts", on_progress=story, checkpoint_seconds=0.5
    )
    (note,) = report.notes
    assert "is lost" in note and "goes on from checkpoint" in note
    assert counted(tmp_path) == expected(*story.after)


def counted(folder: Path) -> list[tuple[str, int]]:
    return sorted(row for row in parts_of(folder / "out") if row[0][0] in "ab")


def expected(first: int, last: int = FOREVER) -> list[tuple[str, int]]:
    times: dict[str, list[int]] = {}
    for split in "ab":
        for i in range(LINES):
            times.setdefault(f"{split}{i % 7}", []).append(i)
    return sorted(
        (word, -n if first < i // EPOCH + 1 <= last else n)
        for word, at in times.items()
        for n, i in enumerate(at, 1)
    )
