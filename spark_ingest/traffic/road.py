"""Drives the cars of one direction of one expressway and writes down what they report.

Each car has a fixed phase: it reports every 30 seconds, so each second is the turn of a thirtieth
of the cars. Those look at how many cars there are in their segment and in the one ahead, drive at
the speed that goes with it, and report. Everything here is the same for both directions: positions
grow on the way. `facing` turns them round for westbound traffic.

Because 75 miles per hour are 3,300 feet per report, no car skips a segment; because all positions
on the move differ from the one before, only accidents stop cars.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from spark_ingest.traffic import calibration as cal
from spark_ingest.traffic.accidents import Accidents, schedule
from spark_ingest.traffic.plan import LEAVES_LATE, RETURNS, VANISHES, Plan, Trips, random

_DRIVE = 6  # stream of random numbers; those of plan and accidents are below
_NARROW = 4  # feet before the end of a segment that a leaving car does not pass

CAR = np.dtype(
    [
        ("vid", np.int32), ("pos", np.int32), ("lane", np.int8), ("exit", np.int16),
        ("ramp", np.int16), ("deadline", np.int32), ("ending", np.int8), ("pace", np.float32),
    ]
)  # fmt: skip
"""A car on the road. `ramp` is where in the segment `exit` it leaves."""

REPORT = np.dtype(
    [("time", np.int32), ("vid", np.int32), ("spd", np.int16), ("lane", np.int8), ("pos", np.int32)]
)
"""A position report, as seen by traffic whose positions grow."""

Cars = npt.NDArray[np.void]
Reports = npt.NDArray[np.void]


def drive(plan: Plan, road: int, step: int) -> Iterator[Reports]:
    """All reports of one road in order of time, `step` seconds at a time."""
    trips = plan.trips(road)
    traffic = _Road(
        random(plan.seed, road, _DRIVE), Accidents(schedule(plan.seed, road, plan.seconds))
    )
    begins = np.searchsorted(trips.time, np.arange(plan.seconds + 1))
    for start in range(0, plan.seconds, step):
        reports = [
            report
            for now in range(start, min(start + step, plan.seconds))
            for report in traffic.second(now, trips, int(begins[now]), int(begins[now + 1]))
        ]
        yield np.concatenate(reports) if reports else np.empty(0, REPORT)


def facing(road: int, pos: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
    """Positions from the west end: westbound traffic begins at the east end."""
    return pos if road % 2 == 0 else (cal.SEGMENTS * cal.FEET - 1 - pos).astype(np.int32)


class _Road:
    def __init__(self, rng: np.random.Generator, accidents: Accidents) -> None:
        self._rng = rng
        self._accidents = accidents
        self._cars: list[Cars] = [np.empty(0, CAR) for _ in range(cal.REPORT_SECONDS)]
        self._density = np.zeros(cal.SEGMENTS + 1, dtype=np.int64)

    def second(self, now: int, trips: Trips, begin: int, end: int) -> Iterator[Reports]:
        """One second: the cars whose turn it is drive on, then trips `begin` to `end` enter."""
        phase = now % cal.REPORT_SECONDS
        cars = self._cars[phase]
        if len(cars):
            cars, reports = self._advance(now, cars)
            yield reports
        if begin < end:
            fresh, reports = self._enter(now, trips, begin, end)
            cars = np.concatenate([cars, fresh])
            yield reports
        self._cars[phase] = cars

    def _enter(self, now: int, trips: Trips, begin: int, end: int) -> tuple[Cars, Reports]:
        # Where a segment is full, nobody gets in: such a car drives elsewhere.
        which = begin + np.flatnonzero(self._density[trips.seg[begin:end]] < cal.FULL)
        rng, count = self._rng, len(which)
        cars = np.empty(count, CAR)
        cars["vid"] = trips.vid[which]
        cars["pos"] = trips.seg[which] * cal.FEET + _normal(rng, cal.ENTRY_OFFSET, count)
        cars["lane"] = 0
        cars["exit"] = trips.exit[which]
        cars["ramp"] = _normal(rng, cal.EXIT_OFFSET, count)
        cars["deadline"] = trips.deadline[which]
        cars["ending"] = trips.ending[which]
        cars["pace"] = trips.pace[which]
        self._density += _census(trips.seg[which])
        speed = _normal(rng, cal.ENTRY_SPEED, count)
        return cars, _report(now, cars, speed)

    def _advance(self, now: int, cars: Cars) -> tuple[Cars, Reports]:
        """Move `cars`; returns those that stay on the road, and what they reported."""
        old = cars["pos"].astype(np.int64)
        seg = old // cal.FEET
        speed = self._speeds(cars, old, seg)
        new, lane = self._moves(cars, old, seg, speed)
        driving = (lane > 0) & (cars["ending"] != RETURNS)  # who returns must be gone in time
        stopped = self._accidents.stop(now, cars["vid"], driving, old, new, lane)
        speed[stopped] = 0
        leaving = self._leave(now, cars, seg, new) & ~stopped
        lane[leaving] = 4

        cars["pos"] = new
        cars["lane"] = lane
        self._density += _census(new[~leaving] // cal.FEET) - _census(seg)
        silent = leaving & (cars["ending"] == VANISHES)
        reports = _report(now, cars[~silent], np.rint(speed)[~silent])
        return cars[~leaving], reports

    def _speeds(
        self, cars: Cars, pos: npt.NDArray[np.int64], seg: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """Miles per hour at the number of cars around and ahead of each car."""
        here = self._density[seg].astype(np.float64)
        self._accidents.crowd(here, seg, pos)
        ahead = (pos - seg * cal.FEET) / cal.FEET
        seen = here + ahead * (self._density[seg + 1] - here)
        mean = np.interp(seen, *cal.DENSITY_SPEED)
        noise = self._rng.normal(1.0, cal.SPEED_DEVIATION, len(cars))
        speed: npt.NDArray[np.float64] = np.minimum(mean * cars["pace"] * noise, cal.SPEED_MAX)
        return speed

    def _moves(
        self,
        cars: Cars,
        old: npt.NDArray[np.int64],
        seg: npt.NDArray[np.int64],
        speed: npt.NDArray[np.float64],
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int8]]:
        """Where the cars would get, and in which lane; slows those that wait on a ramp."""
        rng, count = self._rng, len(cars)
        creep = rng.integers(*cal.CREEP_FEET, count)
        on_ramp = cars["lane"] == 0
        share = np.where(
            self._density[seg] > cal.RAMP_DENSITY, cal.RAMP_WAIT_SHARE, cal.RAMP_OVERHANG_SHARE
        )
        waits = on_ramp & (rng.random(count) < share)
        # Cars that have just entered are still gathering speed.
        feet = np.where(on_ramp, 0.8, 1.0) * cal.FEET_PER_REPORT * speed
        feet = np.where(waits, creep, np.maximum(feet, creep))
        speed[waits] = creep[waits] / cal.FEET_PER_REPORT
        merged = rng.choice(3, count, p=cal.LANE_WEIGHTS) + 1
        changes = on_ramp | (rng.random(count) < cal.LANE_CHANGE_SHARE)
        lane = np.where(changes, merged, cars["lane"]).astype(np.int8)
        lane[waits] = 0
        return old + feet.astype(np.int64), lane

    @staticmethod
    def _leave(
        now: int, cars: Cars, seg: npt.NDArray[np.int64], new: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Which cars take a ramp; keeps `new` inside the segment that they leave from."""
        late = cars["ending"] == LEAVES_LATE
        at_exit = (seg == cars["exit"]) & (new - seg * cal.FEET >= cars["ramp"]) & ~late
        leaving = at_exit | (cars["deadline"] <= now)
        end = (seg + 1) * cal.FEET - _NARROW
        # A car that was already in the last feet stays where it is; one report harms nobody.
        np.copyto(new, np.minimum(new, end), where=leaving)
        gone: npt.NDArray[np.bool_] = leaving | (late & (new // cal.FEET > cars["exit"]))
        return gone


def _normal(
    rng: np.random.Generator, shape: tuple[float, float, int, int], count: int
) -> npt.NDArray[np.int64]:
    mean, deviation, least, most = shape
    return rng.normal(mean, deviation, count).clip(least, most).astype(np.int64)


def _census(seg: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.bincount(seg, minlength=cal.SEGMENTS + 1)


def _report(
    now: int, cars: Cars, speed: npt.NDArray[np.int64] | npt.NDArray[np.float64]
) -> Reports:
    reports = np.empty(len(cars), REPORT)
    reports["time"] = now
    reports["vid"] = cars["vid"]
    reports["spd"] = speed
    reports["lane"] = cars["lane"]
    reports["pos"] = cars["pos"]
    return reports
