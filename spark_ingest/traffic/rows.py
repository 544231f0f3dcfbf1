"""Turns what cars report into rows of the prepared layout, and adds what their drivers ask.

About one report in a hundred is followed by a request of the same car in the same second. QIDs grow
with time and differ over all roads: each road has its own numbers in every second, used or not.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raystream.errors import ConfigError
from spark_ingest import layout
from spark_ingest.tables import Columns, rows_table
from spark_ingest.traffic import calibration as cal
from spark_ingest.traffic.history import past
from spark_ingest.traffic.plan import Ints, Plan, random
from spark_ingest.traffic.road import Reports, drive, facing

STEP_SECONDS = 60
"""Seconds of a road whose rows come at a time, which bounds memory."""
_XWAYS_MAX = 2**15 - 1
_ASK = 7  # stream of random numbers; those of plan, accidents and road are below


def check_size(xways: int, seconds: int) -> None:
    """Raises `ConfigError` where QIDs would not fit 32 bits, or expressways 16."""
    if xways > _XWAYS_MAX:
        raise ConfigError(f"--xways {xways} is too large: at most {_XWAYS_MAX:,}.")
    seconds_max = 2**31 // (2 * xways * cal.REQUESTS_PER_SECOND_MAX)
    if seconds > seconds_max:
        raise ConfigError(
            f"{xways} expressways for {seconds} seconds need more than 2**31 query numbers.",
            hint=f"With so many expressways ask for at most {seconds_max} seconds.",
        )


def road_rows(plan: Plan, road: int) -> Iterator[pa.Table]:
    """All rows of one road in order of time, `STEP_SECONDS` at a time; schema `layout.ROWS`."""
    rng = random(plan.seed, road, _ASK)
    for reports in drive(plan, road, STEP_SECONDS):
        yield pa.concat_tables(
            [rows_table(_reported(road, reports)), rows_table(_asked(plan, road, reports, rng))]
        )


def _reported(road: int, reports: Reports) -> Columns:
    count = len(reports)
    pos = facing(road, reports["pos"]).astype(np.int64)
    return {
        "type": np.full(count, layout.REPORT),
        "time": reports["time"].astype(np.int64),
        "vid": reports["vid"].astype(np.int64),
        "spd": reports["spd"].astype(np.int64),
        "xway": np.full(count, road // 2),
        "lane": reports["lane"].astype(np.int64),
        "dir": np.full(count, road % 2),
        "seg": pos // cal.FEET,
        "pos": pos,
    }


def _asked(plan: Plan, road: int, reports: Reports, rng: np.random.Generator) -> Columns:
    after = reports[rng.random(len(reports)) < cal.REQUEST_SHARE]
    time, number = after["time"].astype(np.int64), _number_in_second(after["time"])
    made = number < cal.REQUESTS_PER_SECOND_MAX
    time, number, vid = time[made], number[made], after["vid"][made].astype(np.int64)
    count = len(time)
    kind = rng.choice(layout.TYPES[1:], count, p=cal.REQUEST_WEIGHTS)
    day = rng.integers(1, cal.DAYS, count, endpoint=True)
    xway, _ = past(plan.seed, plan.roads // 2, vid, day)
    spend, travel = kind == layout.EXPENDITURE, kind == layout.TRAVEL_TIME

    def where(mask: npt.NDArray[np.bool_], values: Ints) -> Ints:
        return np.where(mask, values, layout.UNUSED)

    return {
        "type": kind,
        "time": time,
        "vid": vid,
        "xway": np.where(travel, road // 2, where(spend, xway)),
        "qid": (time * plan.roads + road) * cal.REQUESTS_PER_SECOND_MAX + number,
        "s_init": where(travel, rng.integers(0, cal.SEGMENTS, count)),
        "s_end": where(travel, rng.integers(0, cal.SEGMENTS, count)),
        "dow": where(travel, rng.integers(1, 7, count, endpoint=True)),
        "tod": where(travel, rng.integers(1, 1_440, count, endpoint=True)),
        "day": where(spend, day),
    }


def _number_in_second(time: npt.NDArray[np.int32]) -> Ints:
    """0, 1, 2, ... within each run of equal times."""
    index = np.arange(len(time))
    begins = np.flatnonzero(np.diff(time, prepend=-1))
    return index - np.repeat(begins, np.diff(begins, append=len(time)))
