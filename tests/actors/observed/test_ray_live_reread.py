"""A fork compares functions that run inside a source: it reads the source again, and no further
than the job is."""

from __future__ import annotations

import importlib
import shlex
import textwrap
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from raystream.cli.app import app

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.usefixtures("on_ray")]

MODULE = "flow_that_is_read_again"
LAST = 399
"""The last epoch before the gate: the job comes so far by itself, and no checkpoint is after it."""
FLOW = """
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
import raystream as rs
from tests.flows import Line

@dataclass(frozen=True)
class Gated:
    '''Can be read again. What comes after the gate is not there before the gate is.'''
    record: type = Line

    def splits(self) -> list[rs.Split]:
        return [rs.Split(name) for name in "ab"]

    def read(self, split: rs.Split, position: int) -> Iterator[tuple[int, rs.Batch[Line]]]:
        for i in range(position, 3000):
            while i >= 2000 and not Path("FOLDER/gate").exists():
                time.sleep(0.01)
            time.sleep(0.002)
            yield i + 1, rs.Batch(Line, {"time": [i], "text": [f"{split.name}{i % 7}"]})

class Count(rs.State):
    n: int = 0

class Seen(NamedTuple):
    text: str
    n: int

@rs.operator
def short(line: Line) -> Iterator[Line]:
    if line.time % 3:
        yield SHOWN

@rs.operator(key="text")
def count(line: Line, row: Count) -> Iterator[Seen]:
    row.n += 1
    yield Seen(line.text, row.n)

flow = rs.Flow("rereads")
lines = flow.source(Gated(), epochs=rs.by_time(seconds=5), name="lines")
lines.through(short, name="short").through(count, name="count").to(
    rs.io.parquet("FOLDER/out"), name="sums"
)
"""


class Forking:
    """Forks the job while it runs, then lets it end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.codes: list[int] = []

    def __call__(self, sample: Any) -> None:
        if self.said or not sample.committed.epoch:
            return
        for version in ("same", "other"):
            command = (
                f"fork {MODULE}:flow --as trial --live --code {MODULE}:flow --code-folder"
                f" {self.folder / version} --to {LAST} --differences 2"
            )
            done = CliRunner().invoke(app, shlex.split(command))
            self.codes.append(done.exit_code)
            self.said.append(done.output)
        (self.folder / "gate").touch()


def test_a_changed_function_inside_a_source_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upper = "line._replace(text=line.text.upper()) if line.time % 11 == 0 else line"
    for name, shown in (("old", "line"), ("same", "line"), ("other", upper)):
        (tmp_path / name).mkdir()
        text = textwrap.dedent(FLOW).replace("SHOWN", shown).replace("FOLDER", str(tmp_path))
        (tmp_path / name / f"{MODULE}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "old"))
    flow = importlib.import_module(MODULE).flow
    forking = Forking(tmp_path)
    flow.run(cluster="auto", on_progress=forking, checkpoint_seconds=0.5, instances={"lines": 2})
    same, other = forking.said
    assert "lines is read again, so that short can be compared, too" in same, forking.said
    assert "no record differs" in same, forking.said
    assert "they differ in" in other and "+ Seen(text='" in other, forking.said
    assert forking.codes == [0, 1]
