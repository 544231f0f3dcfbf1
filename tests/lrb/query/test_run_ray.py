"""The same runs on Ray: the same answers, bit for bit, and nothing left behind."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import raystream as rs
from lrb.oracle.answers import KINDS
from lrb.query.run import run
from lrb.query.source import look_through
from lrb.reporting.elastic import decisions_of
from raystream.errors import InputError
from spark_ingest.layout import row_files, split
from tests.gates import LIMIT_SECONDS
from tests.lrb import plain_rules, running
from tests.lrb.random_traffic import random_traffic
from tests.lrb.rows import report
from tests.lrb.running import (
    SLICES,
    THREE,
    answer,
    assert_as_expected,
    expected_of,
    prepare,
    read_csv,
)

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("runtime")]


def test_a_slice_is_answered_as_by_the_original_validator(slices: Path, tmp_path: Path) -> None:
    name, speed = "t0-419", 100.0
    rows, expected = read_csv(slices / SLICES[name]), expected_of(slices, name)
    ran = answer(prepare(tmp_path, rows), cluster="auto", speed=speed)
    assert_as_expected(ran, expected, rows)
    assert ran.record["cluster"] == "ray"
    assert ran.record["elapsed"] >= (rows[-1][1] - rows[0][1]) / speed
    assert ran.record["latency"]["p99"] > 0


@dataclass(frozen=True)
class Halves:
    """Has vehicles served by two instances, whatever they measured."""

    interval: float = 0.5

    def decide(self, loads: Sequence[rs.Load]) -> list[rs.Target]:
        halves = (rs.KeyRange(0, 128), rs.KeyRange(128, 256))
        return [rs.Target(x.operator, halves, "so told") for x in loads if x.operator == "vehicles"]


@pytest.mark.long
def test_a_policy_changes_a_run_and_not_its_answers(tmp_path: Path) -> None:
    rows, history = random_traffic(seed=7, roads=1, cars=60)
    data, out = prepare(tmp_path, rows, history), tmp_path / "out"
    record = run(
        look_through(data), out, cluster="auto", speed=75.0, policy=Halves(), interpreted=True
    )
    assert running.read_answers(out) == plain_rules.answers(rows, history)
    (decision,) = decisions_of(record)
    assert str(decision) == "vehicles 1 to 2" and decision.why == "so told"
    assert decision.at_work > decision.t and not decision.failed
    counts = [point["operators"]["vehicles"]["instances"] for point in record["series"]]
    assert (counts[0], counts[-1]) == (1, 2)


def test_random_traffic_is_answered_alike_on_ray_and_in_one_process(tmp_path: Path) -> None:
    rows, history = random_traffic(seed=7, roads=2, cars=150)
    data = prepare(tmp_path, rows, history)
    there, here = answer(data, cluster="auto", instances=THREE), answer(data)
    assert there.answers == plain_rules.answers(rows, history)
    assert there.record["checksum"] == here.record["checksum"]
    first, second = tmp_path.glob("answers-*")
    for kind in KINDS:
        assert (first / kind.file).read_bytes() == (second / kind.file).read_bytes()


def test_a_file_that_vanishes_during_the_run_ends_it_and_leaves_no_actor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = prepare(tmp_path, [report(t, 17, 3) for t in range(0, 300, 30)])
    prepared = look_through(folder)
    gone = row_files(folder, split(17))[0]
    gone.unlink()
    monkeypatch.setattr(running, "look_through", lambda _: prepared)
    with pytest.raises(InputError, match=f"{gone} is gone"):
        answer(folder, cluster="auto")
    assert psutil.wait_procs(actors(), timeout=LIMIT_SECONDS)[1] == []


def actors() -> list[psutil.Process]:
    """Processes below this one in which an actor of a job lives."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if " ".join(process.cmdline()).startswith(("ray::InstanceActor", "ray::Controller")):
                found.append(process)
    return found
