"""Law L1 on Linear Road: the same answers, however its operators are cut and stepped."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from lrb.query.flow import build
from lrb.query.source import Prepared, look_through
from raystream.controller.planning.plans import make_plan
from raystream.dataflow.plan import Plan
from raystream.local.job import LocalJob
from raystream.testing import Collect
from tests.dataflow.random_ranges import random_ranges
from tests.dataflow.test_l1 import written
from tests.lrb.random_traffic import random_traffic
from tests.lrb.rows import write_prepared


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    rows, history = random_traffic(seed=1, roads=2, cars=100)
    return look_through(write_prepared(tmp_path_factory.mktemp("l1") / "data", rows, history))


def planned(
    prepared: Prepared, sink: Collect, rng: random.Random | None, seconds: float = 20
) -> Plan:
    plan = make_plan(build(prepared, sink, speed=None, epoch=seconds))
    for vertex in plan.ranges if rng is not None else ():
        plan.ranges[vertex] = random_ranges(rng, plan.groups)
    return plan


def answers(prepared: Prepared, *, seconds: float, seed: int | None) -> dict[Any, list[str]]:
    sink = Collect()
    rng = None if seed is None else random.Random(seed)
    LocalJob(planned(prepared, sink, rng, seconds), rng=rng).run()
    return written(sink)


@pytest.fixture(scope="module")
def sequential(prepared: Prepared) -> dict[Any, list[str]]:
    found = answers(prepared, seconds=20, seed=None)
    assert {name for _, name in found} == {"Toll", "Alert", "Balance", "Spent"}
    return found


@pytest.mark.parametrize("seed", range(2))
def test_the_same_bits(prepared: Prepared, sequential: Any, seed: int) -> None:
    assert answers(prepared, seconds=20, seed=seed) == sequential


@pytest.mark.parametrize("seconds", [5, 17, 2000])
def test_the_same_answers_with_other_epochs(
    prepared: Prepared, sequential: Any, seconds: float
) -> None:
    def multiset(found: dict[Any, list[str]]) -> Counter[tuple[str, str]]:
        return Counter((name, row) for (_, name), rows in found.items() for row in rows)

    assert multiset(answers(prepared, seconds=seconds, seed=1)) == multiset(sequential)


@pytest.mark.parametrize("seed", range(2))
def test_going_on_from_images(prepared: Prepared, sequential: Any, seed: int) -> None:
    rng, sink = random.Random(seed), Collect()
    job = LocalJob(planned(prepared, sink, rng))
    checkpoint = 0
    for _ in range(2):
        for _ in range(rng.randrange(1, 20)):
            checkpoint += 1
            job.turn()
        job = LocalJob(planned(prepared, sink, rng), resume=job.checkpoint(checkpoint))
    job.run()
    assert written(sink) == sequential


@pytest.mark.parametrize("seed", range(2))
def test_checking_mode_finds_nothing(prepared: Prepared, sequential: Any, seed: int) -> None:
    rng, sink = random.Random(seed), Collect()
    plan = planned(prepared, sink, rng)
    plan.check, plan.checkpoint_every = True, 5
    LocalJob(plan, rng=rng if seed else None).run()
    assert written(sink) == sequential
