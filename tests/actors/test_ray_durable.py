"""The durable tier on real Ray: stopped and resumed, or all of it killed, the output is exact."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pytest

import raystream as rs
from raystream.actors.looking import looks
from raystream.actors.stopping import jobs, stop
from raystream.controller.status import pace
from raystream.errors import ConfigError, OvertakenError, Stopped
from raystream.io.saves import Saves
from raystream.io.store import open_store
from tests.actors import parts
from tests.actors.conftest import job_processes
from tests.flows import Running

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]
LINES = 1500
SAVED_SECONDS = 240.0


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
        self.join(SAVED_SECONDS)
        assert not self.is_alive()
        return self.outcome


def wait_for_cut(store: Path, submitted: Submitted) -> None:
    """Wait until a cut is saved."""
    saves = Saves(open_store(store), "slow")
    deadline = time.monotonic() + SAVED_SECONDS
    while saves.newest(checksums=False).saved is None:
        assert time.monotonic() < deadline and submitted.is_alive(), submitted.outcome
        time.sleep(0.1)


def expected() -> Counter[Running]:
    words = Counter(w for i in range(LINES) for s in "ab" for w in (f"{s}{i % 7}", f"w{i % 5}"))
    return Counter(Running(word, n + 1) for word, count in words.items() for n in range(count))


def written(folder: Path) -> Counter[Running]:
    return Counter(r for b in rs.io.read_parts(folder, Running) for r in b.records())


def test_stopped_with_a_saved_cut_and_resumed_as_another_version(tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    first = parts.slow(out, lines=LINES, paced=200.0)
    run = Submitted(first, durable=store, cut_every=5, instances={"count": 2, "lines": 2}, spares=0)
    wait_for_cut(store, run)
    (name,) = jobs("auto")
    assert name.startswith("slow-")
    (status, nodes), *_ = islice(looks("slow", "auto", 0.0), 1)
    assert status.run == name and [len(status.of(o)) for o in status.operators[:2]] == [2, 2]
    assert status.floor is not None and status.floor.epoch > 0 and {*status.keepers} == {*nodes}
    for worker in status.workers:
        assert psutil.pid_exists(worker.pid) and worker.node in nodes
        assert (p := pace(worker, status, None)) is not None and 0 < p.busy <= 1 and p.cpu > 0
    said = stop("slow", "auto", save=True)
    assert said.startswith(f"{name}: the job was stopped: cut "), said
    error = run.ended()
    assert isinstance(error, Stopped) and f"is saved in {store}" in error.message
    assert jobs("auto") == []
    with pytest.raises(ConfigError, match="holds cuts of an earlier run"):
        parts.slow(out, lines=LINES).run(cluster="auto", durable=store)
    after = parts.slow(out, parts.grown, lines=LINES, paced=None)
    report = after.run(cluster="auto", durable=store, resume=True, instances={"count": 3}, spares=0)
    (note,) = report.notes
    assert note.startswith("goes on from cut ") and "of run 1 of slow" in note
    assert report.saved > 0 and not report.unsaved
    assert written(out) == expected()


def test_all_processes_killed_at_once_and_it_goes_on_from_the_durable_tier(tmp_path: Path) -> None:
    store, out = tmp_path / "store", tmp_path / "out"
    run = Submitted(parts.slow(out, lines=LINES), durable=store, cut_every=20, copies=1)
    wait_for_cut(store, run)
    for process in job_processes():
        process.send_signal(signal.SIGKILL)
    report = run.ended()
    assert not isinstance(report, Exception), report
    (note,) = report.notes
    assert "is lost" in note and "goes on from cut" in note
    assert written(out) == expected()


def test_a_run_that_another_has_overtaken_ends(tmp_path: Path) -> None:
    store = tmp_path / "store"
    run = Submitted(
        parts.slow(tmp_path / "out", lines=LINES, paced=200.0), durable=store, cut_every=5, spares=0
    )
    wait_for_cut(store, run)
    Saves(open_store(store), "slow").claim("another")
    error = run.ended()
    assert isinstance(error, OvertakenError), error
    assert "run 2 has begun, so run 1 is over" in error.message and jobs("auto") == []
