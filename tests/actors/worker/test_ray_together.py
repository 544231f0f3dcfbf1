"""Instances that share a process and a thread, on real Ray: killed, moved apart, and back."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from raystream.testing import run_local
from tests.actors.helpers import parts
from tests.flows import Line, Rows, Running, Tally, Word, split
from tests.gates import Cycle, Gate

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("on_ray")]


class Seen(parts.Killer):
    """Kills, and notes which instances have which process."""

    def __init__(self, gate: Gate, *victims: str) -> None:
        super().__init__(gate, *victims)
        self.shared: dict[int, set[str]] = defaultdict(set)

    def __call__(self, sample: Any) -> None:
        for name, pid in sample.processes.items():
            if "/" in name and not name.startswith("keeper/"):
                self.shared[pid].add(name)
        super().__call__(sample)


def test_who_shares_a_process_dies_with_it_and_nothing_is_lost(tmp_path: Path) -> None:
    expected, found = tmp_path / "expected", tmp_path / "found"
    expected.mkdir(), found.mkdir()
    gate = Gate(tmp_path / "gate")
    seen = Seen(gate, "ledger/0")
    flow = parts.many(found, speed=20.0, gate=gate)
    report = flow.run(
        cluster="auto",
        together=True,
        instances={"ledger": 2},
        checkpoint_every=10,
        spares=1,
        on_progress=seen,
    )
    assert not seen.victims
    run_local(parts.many(expected, gate=gate))
    assert parts.records(found) == parts.records(expected) != []
    (killed,) = seen.killed
    dead = seen.shared[killed]
    assert {"lines/0", "orders/0", "payments/0", "sessions/0", "ledger/0", "files/0"} <= dead
    (recovery,) = report.recoveries
    assert set(recovery.gone) == dead
    later = [names for pid, names in seen.shared.items() if pid != killed]
    assert {f"{name}.1" for name in dead} in later and {"ledger/1"} in later


@rs.operator(key="word")
def slowly(word: Word, tally: Tally) -> Iterator[Running]:
    time.sleep(0.004)
    tally.n += 1
    yield Running(word.word, tally.n)


def slow_flow(folder: Path, gate: Gate, speed: float | None, operator: Any = slowly) -> rs.Flow:
    """160 words a second at a speed of 20, so that their thread is busy for two thirds of the
    time."""
    rows = Rows(Line, (tuple(Line(t, f"w{n}") for t in range(10) for n in range(8)),))
    flow = rs.Flow("slow")
    source = flow.source(
        Cycle(rows, 10, gate), epochs=rs.by_time(seconds=1, speed=speed), name="lines"
    )
    source.through(split).through(operator, name="slowly").to(parts.Files(folder), name="files")
    return flow


class Apart:
    """Opens a gate once the instance of an operator has a process of its own, and all is stored."""

    def __init__(self, gate: Gate, operator: str) -> None:
        self.gate, self.operator = gate, operator
        self.began: set[str] = set()
        """The instances that had a process in common at first."""

    def __call__(self, sample: Any) -> None:
        shared = defaultdict(set)
        for name, pid in sample.processes.items():
            shared[pid].add(name)
        (mine, *others) = [names for names in shared.values() if self._has(names)]
        self.began = self.began or mine
        if not others and not sample.committed.under_replicated:
            self.found(mine)

    def found(self, mine: set[str]) -> None:
        """Called while one process has the operator. mine: the instances in it."""
        if len(mine) == 1:
            self.gate.open()

    def _has(self, names: set[str]) -> bool:
        return any(name.startswith(f"{self.operator}/") for name in names)


@pytest.mark.long
def test_where_a_thread_has_no_time_left_an_instance_is_moved_out_of_its_process(
    tmp_path: Path,
) -> None:
    expected, found = tmp_path / "expected", tmp_path / "found"
    expected.mkdir(), found.mkdir()
    gate = Gate(tmp_path / "gate")
    apart = Apart(gate, "slowly")
    report = slow_flow(found, gate, speed=20.0).run(
        cluster="auto", together=True, checkpoint_every=10, spares=1, on_progress=apart
    )
    assert apart.began == {"lines/0", "slowly/0", "files/0"}
    (move,) = report.moved
    assert move.operator == "slowly" and not move.failed
    assert "the thread that it shares is busy for" in move.because
    assert not report.recoveries
    run_local(slow_flow(expected, gate, speed=None))
    assert parts.records(found) == parts.records(expected) != []


@rs.operator(key="word")
@dataclass(frozen=True)
class SlowlyWhile:
    """Slow as long as a file is there."""

    path: str

    def process(self, word: Word, tally: Tally) -> Iterator[Running]:
        if Path(self.path).exists():
            time.sleep(0.004)
        tally.n += 1
        yield Running(word.word, tally.n)


class AndBack(Apart):
    """Ends the work of an operator once it has a process of its own, and opens a gate once it has
    come back."""

    def __init__(self, gate: Gate, operator: str, busy: Path) -> None:
        super().__init__(gate, operator)
        self.busy = busy
        self.back: set[str] = set()

    def found(self, mine: set[str]) -> None:
        if len(mine) == 1:
            self.busy.unlink(missing_ok=True)
        elif mine != self.began:
            self.back = mine
            self.gate.open()


@pytest.mark.long
def test_an_instance_comes_back_to_its_thread_when_that_has_time_again(tmp_path: Path) -> None:
    expected, found, busy = tmp_path / "expected", tmp_path / "found", tmp_path / "busy"
    expected.mkdir(), found.mkdir(), busy.touch()
    gate = Gate(tmp_path / "gate")
    seen = AndBack(gate, "slowly", busy)
    report = slow_flow(found, gate, 20.0, SlowlyWhile(str(busy))).run(
        cluster="auto", together=True, checkpoint_every=10, spares=1, on_progress=seen
    )
    assert seen.began == {"lines/0", "slowly/0", "files/0"}
    assert seen.back == {"lines/0", "slowly/2", "files/0"}
    left, back = report.moved
    assert not left.failed and not back.failed
    assert "the thread that it shares is busy for" in left.because
    assert "the thread that it has left would have been busy with it for less" in back.because
    assert not report.recoveries
    run_local(slow_flow(expected, gate, None, SlowlyWhile(str(busy))))
    assert parts.records(found) == parts.records(expected) != []
