"""The durable tier on real Ray: stopped and resumed, or all of it killed, the output is exact."""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest

import raystream as rs
from raystream.actors.client.jobs import jobs
from raystream.actors.client.stopping import stop
from raystream.actors.client.watching import looks
from raystream.controller.reporting.status import pace
from raystream.durable.saves import Saves
from raystream.durable.store import open_store
from raystream.errors import ConfigError, OvertakenError, StateError, Stopped
from tests.actors.conftest import job_processes
from tests.actors.helpers import parts
from tests.flows import Running
from tests.gates import LIMIT_SECONDS, Gate, Slow
from tests.processes import kill_each

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]
LINES = 1500


class Submitted(threading.Thread):
    """A run in a thread of its own. outcome: its report, or what it raised."""

    def __init__(self, flow: rs.Flow, **options: Any) -> None:
        super().__init__(daemon=True)
        self.flow, self.options = flow, options
        self.outcome: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self.flow.run(cluster="auto", **self.options)
        except Exception as error:
            self.outcome = error

    def ended(self) -> Any:
        self.join(LIMIT_SECONDS)
        assert not self.is_alive()
        return self.outcome


def wait_for_checkpoint(store: Path, submitted: Submitted) -> None:
    """Wait until a checkpoint is saved."""
    saves = Saves(open_store(store), "slow")
    deadline = time.monotonic() + LIMIT_SECONDS
    while saves.newest(checksums=False).saved is None:
        assert time.monotonic() < deadline and submitted.is_alive(), submitted.outcome
        time.sleep(0.1)


def expected(gate: Gate) -> Counter[Running]:
    words = Counter(Slow(LINES, gate).words())
    return Counter(Running(word, n + 1) for word, count in words.items() for n in range(count))


def written(folder: Path) -> Counter[Running]:
    return Counter(r for b in rs.io.read_parts(folder, Running) for r in b.records())


def test_stopped_with_a_saved_cut_and_resumed_as_another_version(tmp_path: Path) -> None:
    store, out, gate = tmp_path / "store", tmp_path / "out", Gate(tmp_path / "gate")
    first = parts.slow(out, lines=LINES, paced=200.0, gate=gate)
    run = Submitted(
        first, durable=store, checkpoint_every=5, instances={"count": 2, "lines": 2}, spares=0
    )
    wait_for_checkpoint(store, run)
    (name,) = jobs("auto")
    assert name.startswith("slow-")
    (status, nodes), *_ = islice(looks("slow", "auto", 0.0), 1)
    assert status.run == name and [len(status.of(o)) for o in status.operators[:2]] == [2, 2]
    assert (
        status.committed is not None
        and status.committed.epoch > 0
        and {*status.keepers} == {*nodes}
    )
    for worker in status.workers:
        assert psutil.pid_exists(worker.pid) and worker.node in nodes
        assert (p := pace(worker, status, None)) is not None and 0 < p.busy <= 1 and p.cpu > 0
    said = stop("slow", "auto", save=True)
    assert said.startswith(f"{name}: the job was stopped: checkpoint "), said
    error = run.ended()
    assert isinstance(error, Stopped) and f"is saved in {store}" in error.message
    assert jobs("auto") == []
    with pytest.raises(ConfigError, match="holds checkpoints of an earlier run"):
        parts.slow(out, lines=LINES).run(cluster="auto", durable=store)
    gate.open()
    after = parts.slow(out, parts.grown, lines=LINES, paced=None, gate=gate)
    report = after.run(cluster="auto", durable=store, resume=True, instances={"count": 3}, spares=0)
    (note,) = report.notes
    assert note.startswith("goes on from checkpoint ") and "of run 1 of slow" in note
    assert report.saved > 0 and not report.unsaved
    assert written(out) == expected(gate)


@pytest.mark.long
def test_a_flow_that_has_changed_goes_on_with_what_it_had(tmp_path: Path) -> None:
    """One operator has another name and another state class, and there is a new sink."""
    store, out, gate = tmp_path / "store", tmp_path / "out", Gate(tmp_path / "gate")
    first = parts.slow(out, lines=LINES, paced=200.0, gate=gate)
    run = Submitted(
        first, durable=store, checkpoint_every=5, instances={"count": 2, "lines": 2}, spares=0
    )
    wait_for_checkpoint(store, run)
    stop("slow", "auto", save=True)
    assert isinstance(run.ended(), Stopped)
    gate.open()
    after = parts.changed(out, tmp_path / "copy", lines=LINES, gate=gate)
    with pytest.raises(StateError, match=r"has count, which(.|\n)*--rename count=tally"):
        after.run(cluster="auto", durable=store, resume=True)
    report = after.run(
        cluster="auto",
        durable=store,
        resume=True,
        rename={"count": "tally"},
        instances={"tally": 3, "copy": 2},
        spares=0,
    )
    assert "tally was called count" in report.notes
    assert written(out) == expected(gate)
    copied = written(tmp_path / "copy")
    assert copied and copied < expected(gate)


def test_all_processes_killed_at_once_and_it_goes_on_from_the_durable_tier(tmp_path: Path) -> None:
    store, out, gate = tmp_path / "store", tmp_path / "out", Gate(tmp_path / "gate")
    flow = parts.slow(out, lines=LINES, gate=gate)
    run = Submitted(flow, durable=store, checkpoint_every=20, copies=1)
    wait_for_checkpoint(store, run)
    kill_each(job_processes())
    gate.open()
    report = run.ended()
    assert not isinstance(report, Exception), report
    (note,) = report.notes
    assert "is lost" in note and "goes on from checkpoint" in note
    assert written(out) == expected(gate)


def test_a_run_that_another_has_overtaken_ends(tmp_path: Path) -> None:
    store = tmp_path / "store"
    run = Submitted(
        parts.slow(tmp_path / "out", paced=200.0, gate=Gate(tmp_path / "gate")),
        durable=store,
        checkpoint_every=5,
        spares=0,
    )
    wait_for_checkpoint(store, run)
    Saves(open_store(store), "slow").claim("another")
    error = run.ended()
    assert isinstance(error, OvertakenError), error
    assert "run 2 has begun, so run 1 is over" in error.message and jobs("auto") == []
