"""Where a process has rows on disk, what it finds there, and what is removed of the dead."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from raystream.actors.keepers.left_rows import OLD_SECONDS, sweep_rows
from raystream.actors.worker.row_files import row_folder
from raystream.controller.protocol.recovery import Place
from raystream.dataflow.snapshot import note_rows
from raystream.dataflow.upgrading.versions import CodeVersion
from raystream.schema.types import KeyRange
from raystream.state.tiers.row_folder import folder_name
from tests.dataflow.test_rows_left import History


def test_a_process_finds_what_was_left_and_may_try_again(tmp_path: Path) -> None:
    history = History("ledger", 3, tmp_path)
    for _ in range(12):
        history.turn()
    plan, machine = history.plan, history.tiers()[0]
    plan.run, plan.state_folder = "run", str(tmp_path)
    place = Place(machine.vertex.id, machine.vertex.name, machine.keys, 0)
    files = row_folder(plan, place, history.job.committed)
    assert files is not None and files.left is not None and files.left.segments
    again = row_folder(plan, place, history.job.committed)
    assert again is not None and again.left is not None and again.path == files.path
    first = row_folder(plan, place, 0)
    assert first is not None and first.left is None
    missing = row_folder(plan, place, history.job.committed + 1)
    assert missing is not None and missing.left is None
    source = next(v for v in plan.vertices if v.kind == "source")
    assert row_folder(plan, Place(source.id, source.name, KeyRange(0, 1), 0), 0) is None
    plan.state_memory = None
    assert row_folder(plan, place, history.job.committed) is None


def test_rows_that_other_code_has_left_are_not_opened(tmp_path: Path) -> None:
    """An instance that was replaced, and did not know it, goes on with the code of before."""
    history = History("ledger", 3, tmp_path)
    for _ in range(12):
        history.turn()
    plan, machine = history.plan, history.tiers()[0]
    plan.run, plan.state_folder = "run", str(tmp_path)
    place = Place(machine.vertex.id, machine.vertex.name, machine.keys, 0)
    shapes = {v.name: "" for v in plan.vertices} | {place.operator: machine.table.shape.fingerprint}
    version = CodeVersion(number=2, after=1, code=b"", settled=True, shapes=shapes)
    old = row_folder(plan, place, history.job.committed, version=version)
    assert old is not None and old.left is None
    for each in history.tiers():  # they go over to that version
        each.table._folder.goes_over(2)
        note_rows(each)
    new = row_folder(plan, place, history.job.committed, version=version)
    assert new is not None and new.left is not None and new.code == 2


def test_a_folder_that_cannot_be_made_is_no_folder(tmp_path: Path) -> None:
    history = History("ledger", 3, tmp_path)
    plan, machine = history.plan, history.tiers()[0]
    file = tmp_path / "file"
    file.write_text("")
    plan.run, plan.state_folder = "run", str(file)
    place = Place(machine.vertex.id, machine.vertex.name, machine.keys, 0)
    assert row_folder(plan, place, 0) is None


def test_what_the_dead_have_left_is_removed(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    gone = [tmp_path / folder_name(run, str(dead.pid)) for run in ("ended-1", "other-1", "old-1")]
    ended, other, old = gone
    mine = tmp_path / folder_name("ended-1", str(os.getpid()))
    for path in (ended, other, old, mine):
        path.mkdir()
    long_ago = old.stat().st_mtime - OLD_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    sweep_rows(str(tmp_path), ended="ended-1")
    assert [p.exists() for p in (ended, other, old, mine)] == [False, True, False, True]
