"""What each vehicle paid on each of the last 69 days, as a function of seed, VID and day.

Because it is a function, a request can ask for a row that exists without looking it up.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_ingest.tables import history_table
from spark_ingest.traffic import calibration as cal
from spark_ingest.traffic.plan import Ints

_DAY_BITS = 7


def past(seed: int, xways: int, vid: Ints, day: Ints) -> tuple[Ints, Ints]:
    """Expressway and toll of each (vehicle, day); day is 1 to 69."""
    key = (vid << _DAY_BITS | day).astype(np.uint64)
    mixed = _mix(key + _mix(np.full(1, seed, dtype=np.uint64)))
    xway = (mixed >> np.uint64(32)) % np.uint64(xways)
    toll = (mixed & np.uint64(0xFFFF_FFFF)) % np.uint64(cal.TOLL_MAX + 1)
    return xway.astype(np.int64), toll.astype(np.int64)


def history(seed: int, xways: int, begin: int, end: int) -> pa.Table:
    """All days of the vehicles `begin` to `end - 1`, by vehicle and day."""
    vid = np.repeat(np.arange(begin, end), cal.DAYS)
    day = np.tile(np.arange(1, cal.DAYS + 1), end - begin)
    return history_table(vid, day, *past(seed, xways, vid, day))


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64: neighbouring keys give unrelated values."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
