"""A fork takes what the sources of a running job emit: they are not read again, and the world is
not asked again."""

from __future__ import annotations

import importlib
import os
import shlex
import signal
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import raystream as rs
from raystream.cli.app import app

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.usefixtures("on_ray")]

MODULE = "flow_that_is_forked"
FLOW = """
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
import raystream as rs
from tests.flows import Line

LINES = 3000

@dataclass(frozen=True)
class Once:
    '''Cannot be read twice: who reads it is noted.'''
    record: type = Line
    recorded = True

    def splits(self) -> list[rs.Split]:
        return [rs.Split("a")]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        Path("FOLDER", f"reads-{os.getpid()}").touch()
        for i in range(position, LINES):
            while not Path("FOLDER/gate").exists():
                time.sleep(0.01)
                if i < LINES - 100:
                    break
            yield i + 1, rs.Batch(Line, {"time": [i], "text": [f"w{i % 7}"]})

class Priced(NamedTuple):
    text: str
    price: int

class Sum(NamedTuple):
    text: str
    n: int
    total: int

class Total(rs.State):
    n: int = 0
    total: int = 0

@rs.operator(key="text", recorded=True)
def price(line: Line) -> Priced:
    with open("FOLDER/asked", "a") as file:
        file.write("VERSION ")
    return Priced(line.text, int(rs.random() * 1000))

@rs.operator(key="text")
def total(priced: Priced, row: Total) -> Iterator[Sum]:
    Path("FOLDER", f"VERSION-{os.getpid()}").touch()
    row.n += 1
    row.total += priced.price
    yield Sum(priced.text, row.n, SHOWN)

flow = rs.Flow("forked")
lines = flow.source(Once(), epochs=rs.by_arrival(seconds=0.05), name="lines")
lines.through(price, name="price").through(total, name="total").to(
    rs.io.parquet("FOLDER/out"), name="sums"
)
"""


def version(folder: Path, name: str, shown: str) -> Path:
    """A folder with one version of the flow."""
    where = folder / name
    where.mkdir()
    text = textwrap.dedent(FLOW).replace("VERSION", name).replace("SHOWN", shown)
    (where / f"{MODULE}.py").write_text(text.replace("FOLDER", str(folder)))
    return where


class Forking:
    """Forks the job in between. The second time an instance dies while the fork runs."""

    def __init__(self, folder: Path, same: Path, other: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.codes: list[int] = []
        self._steps: Iterator[None] = self._told(same, other)

    def __call__(self, sample: Any) -> None:
        if sample.committed.epoch:
            next(self._steps, None)

    def _told(self, same: Path, other: Path) -> Iterator[None]:
        self._fork(same, "")
        yield
        for pid in {int(p.name.split("-")[1]) for p in self.folder.glob("*-[0-9]*")}:
            if pid != os.getpid():
                os.kill(pid, signal.SIGKILL)
        self._fork(other, f"--out {self.folder}")
        yield
        self._fork(same, "--ask")
        (self.folder / "gate").touch()

    def _fork(self, to: Path, more: str) -> None:
        command = (
            f"fork {MODULE}:flow --as trial --live --code {MODULE}:flow --code-folder {to}"
            f" --to {self._now() + 50} --differences 2 {more}"
        )
        done = CliRunner().invoke(app, shlex.split(command))
        self.codes.append(done.exit_code)
        self.said.append(done.output)

    def _now(self) -> int:
        """About the epoch of the job: each has about four lines, and each line is asked."""
        return (self.folder / "asked").read_text().count("old") // 4


def test_it_sees_the_same_epochs_and_answers_as_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = version(tmp_path, "old", "row.total")
    same = version(tmp_path, "same", "row.total + 0")
    other = version(tmp_path, "other", "-row.total if row.n % 7 == 0 else row.total")
    monkeypatch.syspath_prepend(str(old))
    flow = importlib.import_module(MODULE).flow
    forking = Forking(tmp_path, same, other)
    report = flow.run(cluster="auto", on_progress=forking, checkpoint_seconds=1, spares=2)
    first, second, third = forking.said
    assert "no record differs" in first, forking.said
    assert "they differ in" in second and "+ Sum(" in second, forking.said
    assert "they differ in" in third, forking.said
    assert forking.codes == [0, 1, 1]
    assert not (tmp_path / f"reads-{os.getpid()}").exists()
    assert [*rs.io.parts(tmp_path / "trial" / "sums", partial=True)]
    asked = (tmp_path / "asked").read_text().split()
    assert "other" not in asked and "same" in asked
    assert report.recoveries
