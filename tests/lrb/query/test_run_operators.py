"""Single functions of the operators: the exact mean, the history, and L1 on the whole flow."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import raystream as rs
from lrb.query.expenditure import Expenditure, ExpenditureRequest, Spent
from lrb.query.flow import build
from lrb.query.operators import CARS_MAX, WHOLE, Account, Segment, Vehicle, latest_average_velocity
from lrb.query.source import look_through
from raystream.errors import InputError
from raystream.schema.state import state_schema
from raystream.state.tables.row_store import row_dtype
from raystream.state.tables.structured_table import StructuredTable
from raystream.testing import Collect, run_local
from spark_ingest.layout import history_files
from tests.lrb.random_traffic import random_traffic
from tests.lrb.rows import report
from tests.lrb.running import THREE, TWO, prepare

# ---- what is kept ------------------------------------------------------------------------------


def test_a_car_is_one_line_of_the_cache() -> None:
    assert row_dtype(state_schema(Vehicle), 1).itemsize == 64


@pytest.mark.parametrize("cars", [20_000, 49_000, 123_000])
def test_an_account_takes_64_bytes_at_most_with_its_index(cars: int) -> None:
    accounts = StructuredTable(state_schema(Account), keys=1, groups=256)
    accounts.slots_of([np.random.default_rng(cars).permutation(cars)], epoch=1)
    assert 40 * cars < accounts.nbytes <= 64 * cars


# ---- latest average velocity ------------------------------------------------------------------

CROWDS = st.one_of(st.integers(1, 12), st.integers(1, 6000), st.integers(CARS_MAX - 50, CARS_MAX))


def segment_with(minutes: list[tuple[int, int]]) -> Segment:
    """A segment in minute 6 that had (cars, sum of mean speeds) in minutes 1, 2, ..."""
    segment = Segment(minute=6)
    for m, (cars, speed) in enumerate(minutes, start=1):
        segment.cars[m] = cars
        segment.speed[m] = speed
    return segment


def exactly(minutes: list[tuple[int, int]]) -> int:
    means = [Fraction(speed, cars * WHOLE) for cars, speed in minutes if cars]
    return floor(sum(means) / len(means)) if means else -1


@settings(deadline=None)
@given(
    st.lists(CROWDS, max_size=5).flatmap(
        lambda sizes: st.tuples(
            *(st.tuples(st.just(n), st.integers(0, 100 * WHOLE * n)) for n in sizes)
        )
    )
)
def test_the_mean_of_any_crowds_is_exact(minutes: tuple[tuple[int, int], ...]) -> None:
    assert latest_average_velocity(segment_with(list(minutes)), 6) == exactly(list(minutes))


@settings(deadline=None)
@given(st.lists(CROWDS, min_size=1, max_size=5), st.integers(1, 99), st.data())
def test_the_mean_is_exact_next_to_whole_numbers(
    sizes: list[int], mph: int, data: st.DataObject
) -> None:
    """The last minute brings the mean as near to `mph` as its number of cars allows."""
    minutes = [(n, data.draw(st.integers(0, mph * WHOLE * n))) for n in sizes[:-1]]
    missing = mph * WHOLE * len(sizes) - sum((Fraction(s, n) for n, s in minutes), Fraction(0))
    last = floor(missing * sizes[-1])
    for speed in (last - 1, last, last + 1):
        crowds = [*minutes, (sizes[-1], max(0, speed))]
        assert latest_average_velocity(segment_with(crowds), 6) == exactly(crowds)


def test_more_cars_than_it_is_exact_for_are_refused() -> None:
    with pytest.raises(ValueError, match="more than 131,072 cars"):
        latest_average_velocity(segment_with([(CARS_MAX + 1, 0)]), 6)


# ---- expenditure ------------------------------------------------------------------------------

HISTORY = [(7, 60, 0, 37), (7, 60, 1, 5), (7, 1, 0, 2), (2**31 - 2, 69, 32766, 98), (8, 60, 0, 11)]


def spent(operator: Expenditure, keys: rs.KeyRange, asked: list[tuple[int, int, int]]) -> list[int]:
    """What was spent by (vid, day, xway)."""
    columns = dict(zip(("vid", "day", "xway"), zip(*asked, strict=True), strict=True))
    times = {"time": [1] * len(asked), "qid": list(range(len(asked)))}
    answers = operator.process(
        rs.Batch(ExpenditureRequest, {**columns, **times}), operator.load(keys)
    )
    assert answers.record is Spent
    assert answers["qid"].tolist() == times["qid"]
    return answers["bal"].tolist()


def test_expenditures_are_looked_up_by_car_day_and_road(tmp_path: Path) -> None:
    operator = Expenditure(tuple(history_files(prepare(tmp_path, [report(0, 1, 1)], HISTORY))))
    asked = [*(key[:3] for key in HISTORY), (7, 61, 0), (9, 60, 0), (7, 60, 2)]
    everything = rs.KeyRange(0, 256)
    assert spent(operator, everything, asked) == [37, 5, 2, 98, 11, 0, 0, 0]


def test_an_instance_loads_the_cars_of_its_key_groups_only(tmp_path: Path) -> None:
    history = [(vid, 1, 0, vid) for vid in range(200)]
    operator = Expenditure(tuple(history_files(prepare(tmp_path, [report(0, 1, 1)], history))))
    halves = [operator.load(rs.KeyRange(0, 100)), operator.load(rs.KeyRange(100, 256))]
    groups = rs.key_groups(np.arange(200))
    assert [len(half.keys) for half in halves] == [(groups < 100).sum(), (groups >= 100).sum()]


def test_no_history_is_nothing_spent() -> None:
    assert spent(Expenditure(()), rs.KeyRange(0, 256), [(7, 60, 0)]) == [0]


def test_a_history_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.parquet cannot be read"):
        Expenditure((tmp_path / "nowhere.parquet",)).load(rs.KeyRange(0, 256))


# ---- law L1 -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows, history = random_traffic(seed=11, roads=2, cars=60)
    return prepare(tmp_path_factory.mktemp("world"), rows, history)


@pytest.mark.parametrize(("instances", "seed"), [({}, 1), (TWO, 2), (THREE, 3), (THREE, 4)])
def test_answers_and_their_order_do_not_depend_on_parallelism_or_interleaving(
    instances: dict[str, int], seed: int, world: Path
) -> None:
    def answers(**options: object) -> list[tuple[int, object]]:
        sink = Collect()
        flow = build(look_through(world), sink, speed=None, epoch=20)
        run_local(flow, **options)  # type: ignore[arg-type]
        return sink.by_epoch()

    assert answers(instances=instances, seed=seed) == answers()
