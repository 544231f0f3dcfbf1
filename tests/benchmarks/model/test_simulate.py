"""The queueing model, and what is fitted to measurements."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from benchmarks.model.queueing import Model, Operator, Outcome, Pool, World
from benchmarks.model.simulate import (
    PRODUCERS,
    TIMES,
    app,
    best_fixed,
    dynamic,
    least_squares,
    read,
    sized,
    table,
)
from raystream.controller.elastic.policy import CpuThreshold

CALM = World(jitter=0.0, skew=0.0, groups=64, cores=1.0, epoch=0.5)
ONE = Operator("vehicles", ("rows",), 1e-4, 0.0, 1.0, 0.01)
NEXT = Operator("segments", ("vehicles",), 5e-5, 0.0, 1.0, 0.0)


def test_who_has_room_is_never_behind_and_takes_all_that_comes() -> None:
    model = Model([ONE, NEXT], CALM, 1.0, None)
    outcome = model.run(2000)
    assert outcome.latency.max() < 0.5 and outcome.late(5.0) == 0
    crew = model.crews["vehicles"]
    assert crew.records.sum() == pytest.approx(model.total[1999], rel=0.01)
    assert crew.cpu.sum() == pytest.approx(1e-4 * model.total[1999], rel=0.01)
    assert set(outcome.instances) == {2.0} and outcome.moves == 0


def test_who_has_not_falls_behind_and_holds_back_who_feeds_it() -> None:
    slow = NEXT._replace(per_record=1 / 300)
    model = Model([ONE, slow], CALM, 1.0, None)
    outcome = model.run(2000)
    assert outcome.latency[-1] > 100  # 300 tuples a second, and up to 580 come
    assert model.crews["vehicles"].blocked.sum() > 100
    ahead = model.crews["vehicles"].least - model.crews["segments"].least
    assert 0 < ahead <= 8 * CALM.epoch + CALM.tick + 1e-6


@pytest.mark.parametrize("pool", [0, 4])
def test_the_policy_follows_the_load_and_a_pool_makes_it_quicker(pool: int) -> None:
    world = replace(CALM, pool=pool, start=60.0)
    operators = [ONE._replace(per_record=1 / 400), NEXT]
    fixed = Model(operators, world, 1.0, None).run(3000)
    model = Model(operators, world, 1.0, CpuThreshold())
    moving = model.run(3000)
    assert fixed.late(5.0) > 0.5
    assert moving.moves >= 2 and len(model.crews["vehicles"].ranges) >= 3
    assert model.crews["vehicles"].ranges[0].lo == 0
    assert moving.percentile(100) < 5 if pool else moving.percentile(100) > 0
    assert moving.given_up == 0
    assert moving.instances[0] == 2 and moving.instances.max() <= 12


def test_a_pool_is_filled_after_nodes_have_started_and_shrinks_when_idle() -> None:
    pool = Pool(World(pool=2, start=10.0, idle=5.0), spare=0)
    for now in range(9):
        pool.turn(float(now), 1)
        assert pool.spare == 0 and len(pool.coming) == 3
    pool.turn(10.0, 1)
    assert pool.spare == 3
    for now in range(11, 20):
        pool.turn(float(now), 0)
    assert pool.spare == 2


@given(st.lists(st.floats(0, 1), min_size=3, max_size=3), st.integers(0, 1 << 32))
def test_costs_that_were_planted_are_found(costs: list[float], seed: int) -> None:
    lines = np.random.default_rng(seed).uniform(1, 100, (3, 3)) * [1e6, 1e3, 1.0]
    x = np.array(costs) / [1e6, 1e3, 1.0]
    found = least_squares(lines, lines @ x)
    assert (found >= 0).all()
    assert np.abs(lines @ (found - x)).max() <= 1e-4 * (1 + np.abs(lines @ x).max())


def test_percentiles_are_by_tuples() -> None:
    outcome = Outcome(np.ones(3), np.array([9.0, 1.0, 2.0]), np.array([1.0, 98.0, 1.0]), 0, 0)
    assert [outcome.percentile(q) for q in (50, 99, 100)] == [1.0, 2.0, 9.0]
    assert outcome.late(5.0) == 0.01


def test_an_expert_needs_fewer_where_instances_may_be_busier() -> None:
    operators = read(TIMES)
    assert [o.name for o in operators] == list(PRODUCERS)
    totals = [sum(sized(operators, World(), 350, use).values()) for use in (0.5, 0.8, 1.0)]
    assert totals[0] > totals[1] > totals[2] > len(PRODUCERS)


def test_runs_become_a_table_and_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Model.run
    monkeypatch.setattr(Model, "run", lambda self: run(self, 60))
    operators = read(TIMES)
    results = [best_fixed(operators, World(), 2.0), dynamic(operators, World(), 2.0, 0.7)]
    assert [r["form"] for r in results] == ["fixed, the best", "above 70%"]
    assert table(results).row_count == 2
    pytest.importorskip("matplotlib")
    from benchmarks.model.simulate_plot import draw

    assert draw(results).startswith(b"\x89PNG")


def test_the_command_prints_what_programs_can_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = Model.run
    monkeypatch.setattr(Model, "run", lambda self: run(self, 60))
    line = "--xways 2 --threshold 50 --processes 1 --json"
    done = CliRunner().invoke(app, line.split())
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert [r["threshold"] for r in found["results"]] == [None, 0.5]
    assert found["world"]["pool"] == World().pool
