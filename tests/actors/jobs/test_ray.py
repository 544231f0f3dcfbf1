"""Jobs on real Ray: the same bits, clear errors, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from raystream.actors.client.submitting import run_on_ray
from raystream.actors.worker.seat import SPILL_PREFIX, spill_folder
from raystream.controller.planning.plans import make_plan
from raystream.errors import InputError, JobError, OperatorError, notes
from raystream.state.keeping.files import PREFIX
from raystream.state.tiers.row_folder import PREFIX as ROWS
from raystream.testing import run_local
from tests.actors.conftest import job_processes
from tests.actors.helpers import parts
from tests.flows import Line, Order, Rows, lines, running, split
from tests.gates import Gate
from tests.unsound import by_chance

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]


def folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


# ---------------------------------------------------------------------------- law L1


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What a run in one loop gives."""
    path = tmp_path_factory.mktemp("expected")
    run_local(parts.many(path))
    return parts.records(path)


def test_any_number_of_instances_gives_the_same_bits(expected: list[Any], tmp_path: Path) -> None:
    instances = {"sessions": 2, "ledger": 3}
    report = parts.many(tmp_path).run(
        cluster="auto", instances=instances, checkpoint_every=20, spares=0
    )
    assert parts.records(tmp_path) == expected
    assert {kind for _, kind, _ in expected} == {"Counted", "Word", "Owed", "Missed"}
    ledger = report.operator("ledger")
    assert ledger.instances == 3
    assert ledger.records_in == 240
    assert [s.t for s in report.samples] == sorted(s.t for s in report.samples)
    assert (tmp_path / "closed").exists()
    assert 0 < ledger.cpu < 60


def test_arrival_sources_are_cut_by_the_register(tmp_path: Path) -> None:
    flow = rs.Flow("arrival")
    source = flow.source(Rows(Line, lines(3)), epochs=rs.by_arrival(seconds=0.01), name="lines")
    source.through(split).through(running).to(parts.Files(tmp_path))
    report = flow.run(cluster="auto", instances={"lines": 2}, spares=0)
    words = sorted(w for part in lines(3) for line in part for w in line.text.split())
    assert sorted(r[0] for _, _, r in parts.records(tmp_path)) == words
    assert report.operator("lines").records_in == sum(map(len, lines(3)))


def test_a_paced_run_tells_sinks_when_it_began(tmp_path: Path) -> None:
    flow = rs.Flow("paced")
    orders = (tuple(Order(t, 1, 1) for t in range(30)),)
    flow.source(Rows(Order, orders), epochs=rs.by_time(seconds=1, speed=50)).to(
        parts.Files(tmp_path)
    )
    report = flow.run(cluster="auto", spares=0)
    context = json.loads((tmp_path / "opened-0").read_text())
    assert context[3] == report.started
    assert context[4:12] == [0.0, 50, 0, "", False, 1, 0, "paced"]
    assert report.elapsed >= 29 / 50  # the last record is due then
    for epoch, _, _ in parts.records(tmp_path):
        written = (tmp_path / f"{epoch:08d}.Order.000").stat().st_mtime
        assert written >= report.started + (epoch - 1) / 50 - 0.01  # clocks of files are coarser


# ---------------------------------------------------------------------------- errors


def test_an_operator_that_raises_stops_the_job(tmp_path: Path) -> None:
    with pytest.raises(OperatorError) as caught:
        parts.small(tmp_path, parts.parses).run(cluster="auto", instances={"parses": 2}, spares=0)
    error = caught.value
    assert error.message.startswith("parses raised ValueError: invalid literal for int()")
    assert error.where is not None
    assert (error.where.file, error.where.text) == (
        parts.__file__,
        "tally.n += int(word.word)  # not a number",
    )
    assert error.hint.startswith("at key '") and "epoch 1, record" in error.hint
    (note,) = notes(error)
    assert note.splitlines()[-1].startswith("ValueError") and "ray" not in note.replace(
        "raystream", ""
    )
    assert str(error).splitlines()[0] == error.message


def test_a_source_file_that_vanishes(tmp_path: Path) -> None:
    shelf = folder(tmp_path / "shelf")
    for name in ("a", "b"):
        (shelf / name).write_text("to be\nor not\n")
    flow = rs.Flow("shelf")
    source = flow.source(parts.Shelf(shelf), epochs=rs.by_time(seconds=1))
    source.through(split).to(parts.Files(folder(tmp_path / "out")))
    plan = make_plan(flow)
    (shelf / "b").unlink()
    with pytest.raises(InputError, match=r"shelf: cannot read b: .*No such file"):
        run_on_ray(plan, address="auto")


def test_a_sink_that_raises(tmp_path: Path) -> None:
    flow = rs.Flow("full")
    flow.source(Rows(Line, lines(1)), epochs=rs.by_time(seconds=30)).to(parts.Full())
    with pytest.raises(JobError) as caught:
        flow.run(cluster="auto", spares=0)
    assert (
        caught.value.message
        == "sink full could not write: OSError: [Errno 28] No space left on device"
    )
    assert "the sink's line" in notes(caught.value)[0]


def test_a_module_that_the_cluster_does_not_have(tmp_path: Path) -> None:
    module = types.ModuleType("only_here")
    exec(
        "import raystream as rs\nfrom tests.flows import *\n"
        "@rs.operator(key='word')\n"
        "def op(word: Word) -> Iterator[Word]:\n    yield word\n",
        module.__dict__,
    )
    sys.modules["only_here"] = module
    try:
        with pytest.raises(JobError, match="No module named 'only_here'"):
            parts.small(tmp_path, module.op).run(cluster="auto")
    finally:
        del sys.modules["only_here"]


# ---------------------------------------------------------------------------- deaths


def spill_folder_in(where: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(where))
    return spill_folder()


def test_processes_that_are_killed_are_replaced(
    tmp_path: Path, ray_runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind of process is killed under load; the answers are what they would have been. There
    is one byte of memory for checkpoints and one for rows: they are in files."""
    gate, out, alone = Gate(tmp_path / "gate"), folder(tmp_path / "out"), folder(tmp_path / "alone")
    kill = parts.Killer(
        gate, "keeper/0", "files/0", "orders/0", "sessions/0", "ledger/0", "controller"
    )
    flow = parts.many(out, speed=10, gate=gate)
    kept = folder(tmp_path / "kept")
    report = flow.run(
        cluster="auto",
        on_progress=kill,
        checkpoint_every=5,
        checkpoint_memory=1,
        state_memory=1,
        state_folder=kept,
    )
    assert not kill.victims
    assert report.operator("ledger").rows_brought
    assert any(s.committed.in_files for s in report.samples if s.committed is not None)
    left = [p.name.removeprefix(PREFIX).partition("-")[0] for p in kept.glob(f"{PREFIX}*")]
    assert {*left} <= {str(pid) for pid in kill.killed}, "who is killed cannot remove its files"
    assert not [*kept.glob(f"{ROWS}*")], "the keeper removes rows of its run"
    run_local(parts.many(alone, gate=gate))
    assert parts.records(out) == parts.records(alone) != []
    gone = [name for recovery in report.recoveries for name in recovery.gone]
    assert sorted(gone) == ["files/0", "ledger/0", "orders/0", "sessions/0"]
    # They could not remove their folders any more: the next instance on this machine does.
    mine = spill_folder_in(ray_runtime, monkeypatch)
    assert not [p for pid in kill.killed for p in ray_runtime.glob(f"{SPILL_PREFIX}{pid}-*")]
    mine.rmdir()


@pytest.mark.long
def test_who_has_ended_and_is_killed_is_replaced_while_others_go_on(tmp_path: Path) -> None:
    """Its end is in every cut, and its range may have to move."""
    gate = Gate(tmp_path / "gate")
    kill = parts.Killer(gate, "short_lines/0", "short_count/0", "short_files/0", after=15)
    flow = parts.unequal(folder(tmp_path / "ray"), gate, speed=20)
    report = flow.run(cluster="auto", on_progress=kill, checkpoint_every=5)
    assert not kill.victims
    run_local(parts.unequal(folder(tmp_path / "alone"), gate))
    gone = [name for recovery in report.recoveries for name in recovery.gone]
    assert sorted(gone) == ["short_count/0", "short_files/0", "short_lines/0"]
    for branch in ("short", "long"):
        found = parts.records(tmp_path / "ray" / branch)
        assert found == parts.records(tmp_path / "alone" / branch) != []
        assert (tmp_path / "ray" / branch / "closed").exists()


def test_checking_mode_names_who_emits_something_else_the_second_time(tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(sample: Any) -> None:
        if not killed and sample.operators["by_chance"].records_out:
            killed.append(sample.processes["by_chance/0"])
            os.kill(killed[0], signal.SIGKILL)

    with pytest.raises(JobError) as caught:
        parts.endless(tmp_path, by_chance).run(
            cluster="auto", on_progress=kill, check=True, spares=1
        )
    assert caught.value.message.startswith("by_chance is not deterministic: key groups [0, 256)")


@pytest.mark.long
def test_a_process_that_dies_again_and_again_ends_the_job(
    tmp_path: Path, ray_runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = parts.endless(tmp_path, parts.Suicidal())
    with pytest.raises(JobError, match=r"Suicidal \[0, 256\) died 11 times without getting past"):
        flow.run(cluster="auto")
    mine = spill_folder_in(ray_runtime, monkeypatch)
    mine.rmdir()


def test_ctrl_c_ends_the_job(tmp_path: Path) -> None:
    def interrupt(sample: Any) -> None:
        assert len(job_processes()) > 3  # or what looks for them finds none for a wrong reason
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        parts.endless(tmp_path).run(cluster="auto", on_progress=interrupt, spares=0)
