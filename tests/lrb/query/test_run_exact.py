"""Every answer of a run is right: official slices, small worlds, traffic that no road has seen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lrb.oracle.validate import validate
from lrb.query.flow import build
from lrb.query.source import look_through
from raystream.controller.planning.plans import make_plan
from raystream.errors import OperatorError
from raystream.local.job import LocalJob
from raystream.testing import Collect
from tests.lrb import plain_rules
from tests.lrb.edges import EDGES
from tests.lrb.micro import OFFICIAL, Outcome, t7_empty_window
from tests.lrb.random_traffic import random_traffic
from tests.lrb.rows import Row, balance, report, travel_time
from tests.lrb.running import (
    ONE,
    PARALLEL,
    SLICES,
    THREE,
    TWO,
    answer,
    assert_as_expected,
    expected_of,
    outcomes,
    prepare,
    read_csv,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORLDS = {name: make() for name, make in {**OFFICIAL, **EDGES, "T7b": t7_empty_window}.items()}

# ---- official slices --------------------------------------------------------------------------


@pytest.mark.parametrize("name", SLICES)
def test_slices_are_answered_as_by_the_original_validator(
    name: str, slices: Path, tmp_path: Path
) -> None:
    rows, expected = read_csv(slices / SLICES[name]), expected_of(slices, name)
    data = prepare(tmp_path, rows)
    runs = [
        answer(data, instances=ONE),  # epochs as at full speed
        answer(data, instances=TWO, epoch=1),
        answer(data, instances=THREE, epoch=7),
        answer(data, instances=ONE, epoch=100_000),  # all in one
    ]
    for ran in runs:
        assert_as_expected(ran, expected, rows)
    assert len({ran.record["checksum"] for ran in runs}) == 1


def test_a_slice_is_answered_alike_in_epochs_of_a_twentieth_of_a_second(
    slices: Path, tmp_path: Path
) -> None:
    name = "t5179-5299"
    rows, expected = read_csv(slices / SLICES[name]), expected_of(slices, name)
    assert_as_expected(answer(prepare(tmp_path, rows), epoch=0.05), expected, rows)


# ---- small worlds -----------------------------------------------------------------------------


@pytest.fixture(scope="module", params=[("one", 60), ("two", 2), ("three", 7)], ids=str)
def micro(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Outcome]:
    parallelism, epoch = request.param
    rows = {name: world.rows for name, world in WORLDS.items()}
    return outcomes(
        tmp_path_factory.mktemp("micro"), rows, instances=PARALLEL[parallelism], epoch=epoch
    )


@pytest.mark.parametrize("name", WORLDS)
def test_small_worlds_are_answered_as_the_rules_say(name: str, micro: dict[str, Outcome]) -> None:
    WORLDS[name].check(micro[name])


def test_the_original_small_worlds_are_answered_alike(slices: Path, tmp_path: Path) -> None:
    files = {name: read_csv(slices / "micro" / f"{name}.dat") for name in OFFICIAL}
    for name, outcome in outcomes(tmp_path, files).items():
        WORLDS[name].check(outcome)


# ---- against a second reading of the rules ----------------------------------------------------


@pytest.mark.parametrize("seed", [0, 3])
def test_random_traffic_is_answered_as_by_the_plain_rules(seed: int, tmp_path: Path) -> None:
    rows, history = random_traffic(seed, roads=1 + seed, cars=150)
    plain = plain_rules.answers(rows, history)
    data = prepare(tmp_path, rows, history)
    runs = [
        answer(data, instances=ONE, epoch=0.6 + seed),
        answer(data, instances=TWO, epoch=13),
        answer(data, instances=THREE),
    ]
    for ran in runs:
        for kind, answers in ran.answers.items():
            assert answers == plain[kind], kind
        assert ran.record["rows_out"] == {kind: sum(n.values()) for kind, n in plain.items()}
        assert ran.record["positive_tolls"] == sum(
            n for (_, _, _, toll), n in plain["toll"].items() if toll > 0
        )
    assert len({ran.record["checksum"] for ran in runs}) == 1


@pytest.mark.spark
def test_a_run_is_found_right_by_the_oracle(tmp_path: Path, spark: SparkSession) -> None:
    rows, history = random_traffic(seed=21, roads=4, cars=300)
    data = prepare(tmp_path, rows, history)
    answer(data, instances=TWO, epoch=5)
    (out,) = tmp_path.glob("answers-*")
    verdict = validate(data, out, spark=spark)
    assert verdict.ok, [str(example) for kind in verdict.kinds for example in kind.examples]
    assert verdict.checked > 5000


def burst(vid: int, time: int, size: int, first_qid: int) -> list[Row]:
    """Requests of one car in one second, of two kinds by turns."""
    asks = (balance, travel_time)
    return [asks[i % 2](time, vid, first_qid + i) for i in range(size)]


def test_a_burst_of_requests_sees_the_movement_of_its_second(tmp_path: Path) -> None:
    rows = [report(0, 1, 3), report(30, 1, 4), *burst(1, 30, 2000, 0), *burst(2, 30, 500, 5000)]
    found = answer(prepare(tmp_path, rows), instances=TWO, epoch=0.05)
    assert found.answers["balance"] == plain_rules.answers(rows)["balance"]
    assert set(found.record["rows_in"].items()) == {("0", 2), ("2", 1250), ("3", 0), ("4", 1250)}


def test_many_reports_of_a_car_in_a_minute_count_it_once(tmp_path: Path) -> None:
    """From four segments by turns, ten times from each: still one car in each, at its own mean."""
    busy = [report(t, vid, 10 + t % 4, spd=t + vid % 7) for vid in range(10, 70) for t in range(40)]
    rows = [*busy, *(report(61, seg, seg) for seg in range(10, 14))]
    found = answer(prepare(tmp_path, rows)).answers["toll"]
    assert found == plain_rules.answers(rows)["toll"]
    assert {toll for _, time, _, toll in found if time == 61} == {200}


def test_a_car_that_is_everywhere_is_refused(tmp_path: Path) -> None:
    data = prepare(tmp_path, [report(t, 1, 10 + t) for t in range(9)])
    with pytest.raises(OperatorError, match="more than 4 segments in one minute"):
        answer(data)


def test_silent_cars_and_old_stops_are_forgotten(tmp_path: Path) -> None:
    """What is kept of cars and places is bounded by those that are on the road."""
    gone = [report(t, vid, 5, spd=0) for vid in range(2, 102) for t in (0, 30, 59, 60)]
    stays = [report(t, 1, 50, feet=t) for t in range(0, 600, 30)]
    data = look_through(prepare(tmp_path, [*gone, *stays]))
    job = LocalJob(make_plan(build(data, Collect(), speed=None, epoch=1)))
    kept: dict[str, int] = {}
    while not job.ended:  # at the end of the input alarms ring until the last car is silent, too
        kept = {each.vertex: each.state_rows for each in job.progress()}
        job.turn()
        job.settle()
    assert kept["vehicles"] == 1
    assert kept["places"] == 0
    assert kept["accounts"] == 101  # balances are for ever
    left = {each.vertex: each.state_rows for each in job.progress()}
    assert left == kept | {"vehicles": 0}
