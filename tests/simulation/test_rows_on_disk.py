"""Schedules of jobs whose instances may keep next to no rows in memory: deaths, moves and restores
change no bit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from raystream.controller.planning.plans import make_plan
from raystream.simulation import references
from raystream.simulation.flows import FLOWS
from raystream.simulation.scenarios import Scenario
from raystream.simulation.simulator import simulate
from raystream.state.tiers.tiered_table import TieredTable


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Plans with one byte of memory for rows. Gets an entry each time rows come from disk."""
    times: list[int] = []
    take_in = TieredTable._take_in

    def noted(table: TieredTable, rows: Any) -> list[Any]:
        times.append(len(rows.records))
        return take_in(table, rows)

    def small(*args: Any, **kwargs: Any) -> Any:
        plan = make_plan(*args, **kwargs)
        plan.state_memory = 1
        return plan

    for name in FLOWS:
        references.totals_of_flow(name)  # those of rows in memory
    references.plan_of.cache_clear()
    monkeypatch.setattr(TieredTable, "_take_in", noted)
    monkeypatch.setattr(references, "make_plan", small)
    yield times
    references.plan_of.cache_clear()


def test_schedules_with_rows_on_disk(brought: list[int]) -> None:
    for seed, name in enumerate(FLOWS, 1045):
        outcome = simulate(Scenario(name), seed)
        assert outcome.kind != "wrong", f"{name} {seed}: {outcome.why}"
    assert len(brought) > 100
