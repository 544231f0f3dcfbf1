"""Shells that die and are replaced, without Ray: the same bits as when nothing happens."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest

import raystream as rs
from raystream.actors.worker import shell
from raystream.state.tables.backend import WHOLE
from raystream.testing import Collect, run_local
from tests.actors.helpers.shells import Shells, shells_of
from tests.flows import CountWords, SessionCount, ledger_flow, running, running_batch, word_flow

FLOWS: dict[str, Any] = {
    "running": lambda sink: word_flow(sink, running),
    "batch": lambda sink: word_flow(sink, running_batch),
    "windows": lambda sink: word_flow(sink, CountWords()),
    "sessions": lambda sink: word_flow(sink, SessionCount()),
    "timers": lambda sink: ledger_flow(sink),
}
KILLS = 4


class Killer:
    """Kills shells by a seed while a job runs: one, or two together. Nothing is committed before it
    has killed one that had begun."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.left = KILLS
        self.killed: list[str] = []

    def __call__(self, shells: Shells) -> None:
        if not self.killed:
            shells.until(lambda: any(s.machine.position for s in shells.shells))
        if self.left and (not self.killed or self.rng.random() < 0.3):
            self.left -= 1
            for each in self.rng.sample(shells.shells, self.rng.choice([1, 1, 2])):
                if not (each.machine.ended and each.machine.position <= shells.committed):
                    self.killed.append(each.role.name)
                    shells.kill(each)


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("seed", range(3))
def test_killed_shells_change_no_bit(name: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the parts are in which images are shipped."""
    monkeypatch.setattr(shell, "PART_BYTES", (1, 500, WHOLE)[seed])
    expected = Collect()
    run_local(FLOWS[name](expected))
    got = Collect()
    flow: rs.Flow = FLOWS[name](got)
    instances = {n.name: 1 + seed for n in flow.nodes if n.name not in ("split", "collect")}
    killer = Killer(seed)
    with shells_of(flow, checkpoint_every=7, instances=instances) as shells:
        shells.start(time.time())
        shells.watch(killer)
    assert got.by_epoch() == expected.by_epoch()
    assert killer.killed


def test_killed_shells_whose_rows_are_on_disk_go_on_from_the_files(tmp_path: Path) -> None:
    """With room for two rows in memory. The shell that takes a place opens what is there."""
    opened = 0
    for seed, name in enumerate(("batch", "windows", "sessions"), 1):
        expected, got = Collect(), Collect()
        run_local(FLOWS[name](expected))
        flow: rs.Flow = FLOWS[name](got)
        where = tmp_path / name
        killer = Killer(seed)
        with shells_of(flow, checkpoint_every=3, rows=where) as shells:
            shells.start(time.time())
            shells.watch(killer)
            opened += shells.opened
        assert got.by_epoch() == expected.by_epoch()
        assert killer.killed
    assert opened > 0
