"""Schedules of jobs whose instances may keep next to no rows in memory: deaths, moves and restores
change no bit."""

from __future__ import annotations

from typing import Any

import pytest

from raystream.simulation.flows import FLOWS
from raystream.simulation.scenarios import Scenario
from raystream.simulation.simulator import simulate
from raystream.state.tiers.tiered_table import TieredTable


def test_schedules_with_rows_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    brought: list[int] = []
    take_in = TieredTable._take_in

    def noted(table: TieredTable, rows: Any) -> list[Any]:
        brought.append(len(rows.records))
        return take_in(table, rows)

    monkeypatch.setattr(TieredTable, "_take_in", noted)
    for seed, name in enumerate(FLOWS, 1045):
        outcome = simulate(Scenario(name, state_memory=1), seed)
        assert outcome.kind != "wrong", f"{name} {seed}: {outcome.why}"
    assert len(brought) > 100


DEATHS: dict[str, Any] = {
    "cuts": 0,
    "eases": 0,
    "moves": 0,
    "kinds": ("kill",),
    "faults": 5,
    "recovery": "state",
}
MOVES: dict[str, Any] = {"moves": 5, "faults": 0, "recovery": "state"}


@pytest.mark.parametrize(
    ("name", "seed", "others", "what"),
    [
        ("words", 41, DEATHS, "operator"),
        ("windows", 31, DEATHS, "operator"),
        ("windows", 10, MOVES, "move"),
        ("sessions", 27, {"cuts": 0}, "move"),
    ],
    ids=["words, deaths", "windows, deaths", "windows, moves", "sessions, moves"],
)
def test_successors_open_the_files_of_those_before(
    name: str, seed: int, others: dict[str, Any], what: str
) -> None:
    """Instances begin with rows that others have left on the disk of the node. Without those rows
    each of these schedules is wrong."""
    outcome = simulate(Scenario(name, state_memory=1, **others), seed)
    assert outcome.kind == "right", outcome.why
    assert outcome.faults["files opened"] and outcome.faults[what]
