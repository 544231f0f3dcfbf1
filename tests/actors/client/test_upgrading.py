"""The code of an upgrade runs in processes that have the modules of before, and only these."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from raystream.actors.client.upgrading import request_of
from raystream.actors.control.answers import RunningCode
from raystream.cli.load import load_flow
from raystream.controller.planning.plans import make_plan
from raystream.controller.planning.upgrading import outline_of
from raystream.errors import GraphError
from tests.gates import LIMIT_SECONDS

ROOT = Path(__file__).resolve().parents[3]
SHOP = """
from __future__ import annotations
from collections.abc import Iterator
from typing import NamedTuple
import raystream as rs
import shop_helps
MORE

class Word(NamedTuple):
    time: int
    word: int

class Out(NamedTuple):
    word: int
    n: int

class Tally(rs.State):
    n: Number = 0

class Passed(rs.State):
    n: int = 0

def plus(n: int) -> int:
    return n + PLUS

@rs.operator(key="word", compiled=True)
def count(word: Word, tally: Tally) -> Iterator[Out]:
    tally.n += 1
    yield Out(word.word, plus(tally.n))

@rs.operator()
def known(word: Word) -> Iterator[Word]:
    if isinstance(word, Word):  # of this version
        yield word

@rs.operator(key="word")
def passed(out: Out, tally: Passed) -> Iterator[Out]:
    tally.n += 1
    yield out

@rs.operator()
def helped(out: Out) -> Iterator[Out]:
    yield Out(out.word, shop_helps.times(out.n))

flow = rs.Flow("shop")
words = [Word(t, t % 2) for t in range(12)]
source = flow.source(rs.io.iterable(words, Word), epochs=rs.by_time(seconds=2))
source.through(known).through(count).through(passed).through(helped).to(rs.io.console(), name="out")
"""
HELPS = """
KEPT = None
def times(n: int) -> int:
    return n * TIMES
"""
ASK = """
import sys
from pathlib import Path
from raystream.actors.client.upgrading import request_of
from raystream.actors.control.answers import RunningCode
from raystream.cli.load import load_flow
from raystream.controller.planning.upgrading import outline_of_flow
flow = load_flow("shop:flow")
code = RunningCode(outline_of_flow(flow)[0], 0, (), False)
Path(sys.argv[1]).write_bytes(request_of(code, flow).code)
"""
GO_OVER = """
import linecache
import sys
from pathlib import Path
from raystream.actors.worker.warmup import CodeLoader
from raystream.cli.load import load_flow
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.local.job import LocalJob
from raystream.testing import Collect
def failed(error):
    raise error
plan = make_plan(load_flow("shop:flow"))
plan.vertices[-1].sink = Collect()
job = LocalJob(plan)
code = Path(sys.argv[1]).read_bytes()
for machine in job.machines:
    loader = CodeLoader(machine, begun=lambda: False, loaded=lambda: None, failed=failed)
    loader.get((CodeVersion(number=1, after=3, code=code, settled=True),))
while not job.ended:
    for source in job.sources:
        source.machine.ready()
    job.turn()
print([row.n for row in job.machines[-1].sink.records()])
print([line.strip() for line in linecache.getlines(sys.argv[2]) if "return n + " in line])
"""


def folder(where: Path, shop: str, helps: str) -> Path:
    """A folder with one version of the modules."""
    where.mkdir()
    (where / "shop.py").write_text(shop)
    (where / "shop_helps.py").write_text(helps)
    return where


def versions(path: Path, kept: str = "None") -> tuple[Path, Path]:
    shop, helps = SHOP.replace("PLUS", "0"), HELPS.replace("TIMES", "1")
    old = folder(path / "old", shop.replace("MORE", "Number = int"), helps)
    more = "Count = int\nNumber = Count"  # and so all functions begin a line later
    shop, helps = SHOP.replace("PLUS", "100"), HELPS.replace("TIMES", "10")
    return old, folder(path / "new", shop.replace("MORE", more), helps.replace("None", kept))


def run(program: str, where: Path, *arguments: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=where,
        env={"PYTHONPATH": str(ROOT), "HOME": str(where)},
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_compiled_code_text_annotations_and_imported_modules_are_the_new_ones(
    tmp_path: Path,
) -> None:
    old, new = versions(tmp_path)
    run(ASK, new, tmp_path / "code")
    shutil.rmtree(new)  # the nodes of a job do not have it
    answers, lines = run(GO_OVER, old, tmp_path / "code", new / "shop.py").splitlines()
    before = [n for n in (1, 2, 3) for _ in "ab"]
    after = [(n + 100) * 10 for n in (4, 5, 6) for _ in "ab"]
    assert answers == str([*before, *after])
    assert lines == str(["return n + 100"])  # errors show it


def test_a_module_that_cannot_be_carried_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = versions(tmp_path, kept="__import__('threading').Lock()")
    monkeypatch.chdir(tmp_path)
    running = RunningCode(outline_of(make_plan(load_flow("shop:flow", str(old)))), 0, (), False)
    flow = load_flow("shop:flow", str(new))
    with pytest.raises(GraphError, match=r"helped cannot be carried .* shop_helps") as told:
        request_of(running, flow)
    assert told.value.where is not None
