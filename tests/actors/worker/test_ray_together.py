"""Instances that share a process and a thread, on real Ray: killed together, and moved apart."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from raystream.testing import run_local
from tests.actors.helpers import parts
from tests.gates import Gate

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
