"""A running job whose operator asks a server goes over to other code and back, and processes die in
between. The server answers otherwise each time."""

from __future__ import annotations

import importlib
import textwrap
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from tests.actors.control.test_ray_upgrade import EPOCH, Story
from tests.actors.jobs.test_ray_moves import LINES
from tests.actors.world.test_ray_asking import Oracle, oracle

__all__ = ["oracle"]
pytestmark = [
    pytest.mark.ray,
    pytest.mark.long,
    pytest.mark.usefixtures("on_ray"),
]

MODULE = "flow_that_asks"
FLOW = """
import asyncio
import os
from pathlib import Path
from typing import NamedTuple
import raystream as rs
from tests.actors.jobs.test_ray_moves import Held
from tests.flows import Line

class Answer(NamedTuple):
    line: str
    time: int
    number: int
    request: str
    version: str

@rs.operator(key="text", concurrency=CONCURRENCY)
async def ask(line: Line) -> Answer:
    Path("FOLDER", f"pid-{os.getpid()}").touch()
    request = rs.request_id()
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    try:
        writer.write(f"{request} VERSION\\n".encode())
        number = int(await reader.readline())
    finally:
        writer.close()
    return Answer(line.text, line.time, number, request, "VERSION")

flow = rs.Flow("versions")
lines = flow.source(Held(Path("FOLDER/gate")), epochs=rs.by_time(seconds=EPOCH), name="lines")
lines.through(ask, name="ask").to(rs.io.parquet("FOLDER/out"), name="files")
"""


def version(folder: Path, name: str, concurrency: int, port: int) -> Path:
    """A folder with one version of the flow."""
    where = folder / name
    where.mkdir()
    text = textwrap.dedent(FLOW).replace("VERSION", name).replace("CONCURRENCY", str(concurrency))
    text = text.replace("FOLDER", str(folder)).replace("EPOCH", str(EPOCH))
    (where / f"{MODULE}.py").write_text(text.replace("PORT", str(port)))
    return where


def test_each_epoch_is_asked_by_the_code_that_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, oracle: Oracle
) -> None:
    """All processes that asked die before a checkpoint of the new code is committed."""
    port = oracle.server_address[1]
    old, new = version(tmp_path, "old", 16, port), version(tmp_path, "new", 4, port)
    monkeypatch.syspath_prepend(str(old))
    flow = importlib.import_module(MODULE).flow
    story = Story(tmp_path, old, new, MODULE)
    report = flow.run(
        cluster="auto", instances={"ask": 2}, on_progress=story, checkpoint_seconds=0.5, spares=3
    )
    first, last = story.after
    assert 0 < first < last and report.recoveries
    answers = answers_in(tmp_path / "out")
    assert len({a["request"] for a in answers}) == len(answers) == 2 * LINES
    for a in answers:
        epoch = a["time"] // EPOCH + 1
        assert a["version"] == ("new" if first < epoch <= last else "old"), (epoch, story.after)
        assert a["number"] in oracle.said[f"{a['request']} {a['version']}"]


def answers_in(folder: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    tables = [pq.read_table(part.path) for part in rs.io.parts(folder)]
    return [row for table in tables for row in table.to_pylist()]
