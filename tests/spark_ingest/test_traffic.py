"""The simulation against what was measured on the official data. No Spark."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raystream.errors import ConfigError
from spark_ingest import layout
from spark_ingest.traffic import calibration as cal
from spark_ingest.traffic.accidents import schedule
from spark_ingest.traffic.history import history, past
from spark_ingest.traffic.plan import RETURNS, Plan
from spark_ingest.traffic.road import drive
from spark_ingest.traffic.rows import check_size, road_rows


def all_rows(plan: Plan, roads: Sequence[int]) -> dict[str, np.ndarray]:
    """All columns, by (vid, time); requests after the report that they follow."""
    table = pa.concat_tables([part for road in roads for part in road_rows(plan, road)])
    columns = {name: table[name].to_numpy().astype(np.int64) for name in table.column_names}
    order = np.lexsort((columns["qid"], columns["type"], columns["time"], columns["vid"]))
    return {name: values[order] for name, values in columns.items()}


def select(columns: dict[str, np.ndarray], mask: np.ndarray) -> dict[str, np.ndarray]:
    return {name: values[mask] for name, values in columns.items()}


@pytest.fixture(scope="module")
def half_hour() -> dict[str, np.ndarray]:
    return all_rows(Plan.make(seed=3, xways=1, seconds=1_800), (0, 1))


@pytest.fixture(scope="module")
def reports(half_hour: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return select(half_hour, half_hour["type"] == layout.REPORT)


def pairs(reports: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Each report and the next one of the same journey."""
    same = (reports["vid"][1:] == reports["vid"][:-1]) & (reports["lane"][1:] != 0)
    waits = (reports["lane"][:-1] == 0) & (np.diff(reports["time"]) == cal.REPORT_SECONDS)
    same |= (reports["vid"][1:] == reports["vid"][:-1]) & waits
    first, second = np.flatnonzero(same), np.flatnonzero(same) + 1
    return (
        {name: values[first] for name, values in reports.items()},
        {name: values[second] for name, values in reports.items()},
    )


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**40), st.integers(1, 3), st.integers(60, 400), st.data())
def test_every_seed_keeps_the_rules(
    seed: int, xways: int, seconds: int, data: st.DataObject
) -> None:
    road = data.draw(st.integers(0, 2 * xways - 1))
    rows = all_rows(Plan.make(seed, xways, seconds), [road])
    reports = select(rows, rows["type"] == layout.REPORT)
    assert rows["time"].min() >= 0
    assert rows["time"].max() < seconds
    assert set(reports["xway"]) == {road // 2}
    assert set(reports["dir"]) == {road % 2}
    assert (reports["seg"] == reports["pos"] // cal.FEET).all()
    assert ((reports["pos"] >= 0) & (reports["pos"] < 528_000)).all()
    assert ((reports["spd"] >= 0) & (reports["spd"] <= cal.SPEED_MAX)).all()
    before, after = pairs(reports)
    assert (after["time"] - before["time"] == cal.REPORT_SECONDS).all()
    crossed = (after["seg"] - before["seg"]) * (1 - 2 * (road % 2))
    assert set(crossed) <= {0, 1}
    assert not (before["lane"] == 4).any()


def test_journeys_begin_on_a_ramp_and_report_every_thirty_seconds(
    reports: dict[str, np.ndarray],
) -> None:
    begins = np.diff(reports["vid"], prepend=-1) != 0
    assert (reports["lane"][begins] == 0).all()
    before, after = pairs(reports)
    assert (after["time"] - before["time"] == cal.REPORT_SECONDS).all()
    # Whatever is not the next report of a journey is the first of another one.
    assert len(before["vid"]) + (reports["lane"] == 0).sum() >= len(reports["vid"])
    twice = (before["lane"] == 0) & (after["lane"] == 0)
    assert 0 < twice.sum() < 0.02 * begins.sum()


def test_rate_follows_the_official_one(half_hour: dict[str, np.ndarray]) -> None:
    per_minute = np.bincount(half_hour["time"] // 60) / 60
    assert per_minute[:7] == pytest.approx([18, 42, 62, 79, 96, 111, 126], rel=0.12)
    assert per_minute[8] == pytest.approx(158, rel=0.12)


def test_traffic_heads_for_the_middle(reports: dict[str, np.ndarray]) -> None:
    way = np.where(reports["dir"] == 0, reports["seg"], 99 - reports["seg"]) // 10
    entries = np.bincount(way[reports["lane"] == 0], minlength=10)
    official = np.array([200, 208, 171, 160, 113, 107, 52, 25, 4, 3])
    assert entries / entries.sum() == pytest.approx(official / official.sum(), abs=0.04)
    exits = np.bincount(way[reports["lane"] == 4], minlength=10)
    assert exits[3:8].sum() > 0.55 * exits.sum()


def test_exits_are_nearly_all_in_the_segment_of_the_report_before(
    reports: dict[str, np.ndarray],
) -> None:
    before, after = pairs(reports)
    exits = after["lane"] == 4
    same = (before["seg"] == after["seg"])[exits].mean()
    assert 0.985 < same < 1
    assert exits.sum() > 1_000


def test_a_few_cars_vanish(reports: dict[str, np.ndarray]) -> None:
    ends = np.diff(reports["vid"], append=-1) != 0
    gone = ends & (reports["time"] < reports["time"].max() - cal.REPORT_SECONDS)
    silent = gone & (reports["lane"] != 4)
    assert 0.01 < silent.sum() / gone.sum() < 0.06


def test_only_accidents_stop_cars_and_they_last(reports: dict[str, np.ndarray]) -> None:
    before, after = pairs(reports)
    still = (before["pos"] == after["pos"]) & (before["lane"] == after["lane"])
    places = {
        place: set(after["vid"][still & (after["pos"] == place)]) for place in after["pos"][still]
    }
    assert 1 <= len(places) <= 3
    for place, vids in places.items():
        assert len(vids) == 2
        there = np.isin(reports["vid"], list(vids)) & (reports["pos"] == place)
        assert set(reports["spd"][there][1:]) == {0}
        stood = [reports["time"][there & (reports["vid"] == vid)] for vid in vids]
        both = min(times.max() for times in stood) - max(times.min() for times in stood)
        ended = max(times.max() for times in stood) < 1_760
        assert both > 8 * 60 or not ended
        assert both <= 20 * 60


def test_a_queue_grows_behind_an_accident() -> None:
    plan = Plan.make(seed=7, xways=1, seconds=2_300)
    reports = np.concatenate(list(drive(plan, 1, 60)))
    stopped = reports[(reports["spd"] == 0) & (reports["time"] > 1_500)]
    places, count = np.unique(stopped["pos"], return_counts=True)
    accident = places[count.argmax()] // cal.FEET  # cars in a jam creep on, so each place is new
    seg, late = reports["pos"] // cal.FEET, reports["time"] > 2_000
    before, behind = (reports[late & (seg == accident + ahead)] for ahead in (0, 1))
    assert before["spd"].mean() < 15
    assert behind["spd"].mean() > 30
    assert len(before) > 10 * len(behind)


def test_requests_follow_reports(half_hour: dict[str, np.ndarray]) -> None:
    kind = half_hour["type"]
    count = np.bincount(kind, minlength=5)
    assert count[layout.REPORT] > 300_000
    shares = count[[2, 3, 4]] / count[layout.REPORT]
    assert shares == pytest.approx([0.00522, 0.00101, 0.00390], rel=0.12)
    asked = np.flatnonzero(kind != layout.REPORT)
    # Sorted by car, time and type: the row before a request is its report.
    assert (half_hour["type"][asked - 1] == layout.REPORT).all()
    for name in ("vid", "time"):
        assert (half_hour[name][asked - 1] == half_hour[name][asked]).all()


def test_query_numbers_grow_with_time(half_hour: dict[str, np.ndarray]) -> None:
    asked = half_hour["type"] != layout.REPORT
    qid, time = half_hour["qid"][asked], half_hour["time"][asked]
    assert len(np.unique(qid)) == len(qid)
    assert (np.diff(time[np.argsort(qid)]) >= 0).all()
    assert (half_hour["qid"][~asked] == -1).all()


def test_unused_columns_are_minus_one(half_hour: dict[str, np.ndarray]) -> None:
    used = {
        layout.REPORT: {"spd", "xway", "lane", "dir", "seg", "pos"},
        layout.BALANCE: {"qid"},
        layout.EXPENDITURE: {"qid", "xway", "day"},
        layout.TRAVEL_TIME: {"qid", "xway", "s_init", "s_end", "dow", "tod"},
    }
    for kind, names in used.items():
        rows = select(half_hour, half_hour["type"] == kind)
        for name in layout.PUBLISHED[3:]:
            assert (rows[name] == -1).all() == (name not in names), (kind, name)


def test_some_cars_come_back_after_a_minute_elsewhere() -> None:
    plan = Plan.make(seed=11, xways=2, seconds=1_500)
    rows = all_rows(plan, range(4))
    reports = select(rows, rows["type"] == layout.REPORT)
    again = np.flatnonzero(
        (np.diff(reports["vid"]) == 0) & (np.diff(reports["time"]) != cal.REPORT_SECONDS)
    )
    assert len(again) > 50
    assert (reports["lane"][again] == 4).all()
    assert (reports["lane"][again + 1] == 0).all()
    assert (np.diff(reports["time"])[again] >= 61).all()
    places = reports["xway"] * 2 + reports["dir"]
    moved = (places[again] != places[again + 1]).mean()
    assert 0.5 < moved < 1


def test_vids_go_by_order_of_entry_over_all_roads() -> None:
    plan = Plan.make(seed=5, xways=2, seconds=200)
    trips = [plan.trips(road) for road in range(plan.roads)]
    vid, time = (
        np.concatenate([getattr(trip, name) for trip in trips]) for name in ("vid", "time")
    )
    assert sorted(vid) == list(range(cal.FIRST_VID, plan.vehicles))
    assert (np.diff(time[np.argsort(vid)]) >= 0).all()


def test_a_road_does_not_depend_on_the_number_of_roads_beyond_its_vids() -> None:
    one, two = Plan.make(seed=5, xways=1, seconds=120), Plan.make(seed=5, xways=2, seconds=120)
    first, second = (next(drive(plan, 1, 120)) for plan in (one, two))
    for name in ("time", "pos", "spd", "lane"):
        assert (first[name] == second[name]).all()


def test_returning_cars_have_left_by_their_deadline(reports: dict[str, np.ndarray]) -> None:
    plan = Plan.make(seed=3, xways=1, seconds=1_800)
    exits = reports["lane"] == 4
    first_exit: dict[int, int] = {}
    for vid, time in zip(
        reports["vid"][exits].tolist(), reports["time"][exits].tolist(), strict=True
    ):
        first_exit.setdefault(vid, time)
    due = 0
    for road in (0, 1):
        trips = plan.trips(road)
        back = trips.take(np.flatnonzero((trips.ending == RETURNS) & (trips.deadline < 1_770)))
        due += len(back)
        for vid, deadline in zip(back.vid.tolist(), back.deadline.tolist(), strict=True):
            assert first_exit[vid] < deadline + cal.REPORT_SECONDS
    assert due > 500


def test_accidents_come_about_every_twenty_minutes() -> None:
    times = sorted(due.time for road in (0, 1) for due in schedule(1, road, 10_800))
    assert 8 <= len(times) <= 11
    assert times[0] < 100
    assert min(np.diff(times)) >= 1_000
    assert max(np.diff(times)) <= 1_400


@pytest.fixture(scope="module")
def three_hours() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One road: reports per second; then for the segments in minute 88: cars and mean speed."""
    plan = Plan.make(seed=7, xways=1, seconds=10_800)
    per_second = np.zeros(10_800, dtype=np.int64)
    cars = speed = np.zeros(0)
    for minute, reports in enumerate(drive(plan, 0, 60)):
        per_second += np.bincount(reports["time"], minlength=10_800)
        if minute == 87:
            seg = reports["pos"] // cal.FEET
            pair = np.unique(seg.astype(np.int64) << 32 | reports["vid"])
            cars = np.bincount(pair >> 32, minlength=100)
            speed = np.bincount(seg, reports["spd"], 100) / np.maximum(
                np.bincount(seg, minlength=100), 1
            )
    return per_second, cars, speed


def test_three_hours_have_as_many_rows_as_the_official_ones(
    three_hours: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    rows = 2 * three_hours[0] * (1 + cal.REQUEST_SHARE)
    assert rows.sum() == pytest.approx(12.0e6, rel=0.07)
    for second, rate in ((510, 158), (2_110, 600), (5_280, 1_232), (10_700, 1_700)):
        assert rows[second - 60 : second + 60].mean() == pytest.approx(rate, rel=0.1)


def test_half_of_the_road_is_tolled_after_ninety_minutes(
    three_hours: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    _, cars, speed = three_hours
    # Official, both directions: 161 of 199 above 50 cars, 83 of them slow, 201 in the middle.
    assert 70 <= (cars > 50).sum() <= 90
    assert 30 <= ((cars > 50) & (speed < 40)).sum() <= 60
    assert 140 <= np.median(cars) <= 260
    assert cars.max() < 800


@given(st.integers(0, 2**62), st.integers(1, 5), st.integers(0, 10**6), st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_history_has_one_row_for_each_vehicle_and_day(
    seed: int, xways: int, begin: int, count: int
) -> None:
    rows = history(seed, xways, begin, begin + count)
    assert rows.schema.equals(layout.HISTORY)
    vid, day, xway, toll = (rows[name].to_numpy() for name in layout.HISTORY.names)
    assert list(zip(vid, day, strict=True)) == [
        (v, d) for v in range(begin, begin + count) for d in range(1, 70)
    ]
    assert ((xway >= 0) & (xway < xways)).all()
    assert ((toll >= 0) & (toll <= 98)).all()
    again = past(seed, xways, vid.astype(np.int64), day.astype(np.int64))
    assert (again[0] == xway).all()
    assert (again[1] == toll).all()


def test_tolls_of_the_past_are_spread_evenly() -> None:
    rows = history(1, 4, 100, 2_100)
    tolls = np.bincount(rows["toll"].to_numpy(), minlength=99)
    assert tolls.min() > 0.85 * tolls.mean()
    assert tolls.max() < 1.15 * tolls.mean()
    assert np.bincount(rows["xway"].to_numpy()) == pytest.approx(rows.num_rows / 4, rel=0.02)


def test_requests_ask_for_history_that_exists() -> None:
    plan = Plan.make(seed=4, xways=3, seconds=900)
    rows = all_rows(plan, range(6))
    asked = select(rows, rows["type"] == layout.EXPENDITURE)
    assert len(asked["vid"]) > 100
    assert (asked["vid"] < plan.vehicles).all()
    assert set(asked["day"]) <= set(range(1, 70))
    assert (past(4, 3, asked["vid"], asked["day"])[0] == asked["xway"]).all()
    assert set(asked["xway"]) == {0, 1, 2}


def test_too_many_query_numbers_are_refused() -> None:
    check_size(1_000, 10_800)
    with pytest.raises(ConfigError, match="query numbers"):
        check_size(4_000, 10_800)
    with pytest.raises(ConfigError, match="--xways 32768 is too large"):
        check_size(32_768, 60)
