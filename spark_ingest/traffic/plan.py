"""Who enters a road, when, where, and bound for where: decided before anybody drives.

A *road* is one direction of one expressway; road `r` is expressway `r // 2`, direction `r % 2`.
Nothing here depends on traffic, so every road can be simulated by itself:

- VIDs go by order of entry over all roads. `fresh_entries` counts the new cars of every road and
  second; `first_vids` turns the counts into the VIDs with which each road's seconds begin.
- A car that will return (perhaps on another road) is given a deadline by which it has left. So the
  road of its return knows its VID and a time that is surely late enough without asking anybody.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from spark_ingest.traffic import calibration as cal

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

LEAVES, VANISHES, LEAVES_LATE, RETURNS = 0, 1, 2, 3
_RETURN_ROADS = 4
"""A car returns on its own road or one of the next three."""
_FRESH, _TRIPS, _AGAIN, _RETURNS = 1, 2, 3, 4  # streams of random numbers


@dataclass(frozen=True, slots=True)
class Trips:
    """Entries of one road in order of time; all arrays have one length."""

    time: Ints
    vid: Ints
    seg: Ints
    """Segment of entry."""
    exit: Ints
    """Segment of exit, above `seg`."""
    deadline: Ints
    """The car takes the next ramp when this second has come, wherever it is."""
    ending: Ints
    """`LEAVES` (seen on the ramp of its exit), `VANISHES` (not seen there), `LEAVES_LATE` (seen
    there in the next segment) or `RETURNS` (leaves, and comes back later)."""
    pace: Floats
    """The driver's speed relative to the mean."""

    def __len__(self) -> int:
        return len(self.time)

    def take(self, rows: Ints) -> Trips:
        """Some of the trips, in the order of `rows`."""
        return Trips(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Returns:
    """Cars that come back: when, on which road, and who; all arrays have one length."""

    time: Ints
    road: Ints
    vid: Ints


def random(seed: int, road: int, stream: int) -> np.random.Generator:
    """Random numbers that depend on the arguments alone."""
    return np.random.default_rng([seed, road, stream])


def fresh_entries(seed: int, xways: int, seconds: int) -> npt.NDArray[np.uint8]:
    """Cars that enter for the first time, by second and road: shape (seconds, 2 * xways)."""
    times = np.arange(seconds)
    rate = np.interp(times, *cal.ENTRIES_PER_SECOND) / 2
    rate *= 1 - np.interp(times, *cal.REENTRIES_SHARE)
    counts = np.empty((seconds, 2 * xways), dtype=np.uint8)
    for road in range(2 * xways):
        counts[:, road] = np.minimum(random(seed, road, _FRESH).poisson(rate), 255)
    return counts


def first_vids(entries: npt.NDArray[np.uint8]) -> npt.NDArray[np.int32]:
    """The VID of the first new car of every second and road; same shape as `entries`."""
    before = np.cumsum(entries.ravel(), dtype=np.int64) - entries.ravel()
    return (cal.FIRST_VID + before).astype(np.int32).reshape(entries.shape)


@dataclass(frozen=True, slots=True)
class Plan:
    """The entries of all roads; what is sent to every task."""

    seed: int
    entries: npt.NDArray[np.uint8]
    vids: npt.NDArray[np.int32]

    @classmethod
    def make(cls, seed: int, xways: int, seconds: int) -> Plan:
        """The plan of a whole run."""
        entries = fresh_entries(seed, xways, seconds)
        return cls(seed, entries, first_vids(entries))

    @property
    def seconds(self) -> int:
        """Length of the run."""
        return int(self.entries.shape[0])

    @property
    def roads(self) -> int:
        """Two for every expressway."""
        return int(self.entries.shape[1])

    @property
    def vehicles(self) -> int:
        """The largest VID, plus one."""
        return int(self.vids[-1, -1]) + int(self.entries[-1, -1])

    def trips(self, road: int) -> Trips:
        """All entries of one road, new cars and returning ones."""
        back = self._returns_to(road)
        rng = random(self.seed, road, _AGAIN)
        fresh = self._fresh(road)
        again = _draw_trips(rng, back.time, back.vid)
        both = Trips(
            *(
                np.concatenate([getattr(fresh, field.name), getattr(again, field.name)])
                for field in fields(Trips)
            )
        )
        return both.take(np.lexsort((both.vid, both.time)))

    def _fresh(self, road: int) -> Trips:
        counts = self.entries[:, road].astype(np.int64)
        time = np.repeat(np.arange(self.seconds), counts)
        index = np.arange(len(time)) - np.repeat(np.cumsum(counts) - counts, counts)
        vid = np.repeat(self.vids[:, road].astype(np.int64), counts) + index
        rng = random(self.seed, road, _TRIPS)
        trips = _draw_trips(rng, time, vid)
        returning = rng.random(len(trips)) < cal.RETURNING_SHARE
        drive = rng.integers(*cal.RETURNING_DRIVE, len(trips))
        trips.deadline[returning] = (time + drive)[returning]
        trips.ending[returning] = RETURNS
        return trips

    def _returns_from(self, road: int) -> Returns:
        trips = self._fresh(road)
        gone = trips.take(np.flatnonzero(trips.ending == RETURNS))
        rng = random(self.seed, road, _RETURNS)
        pause = rng.integers(*cal.RETURNING_PAUSE, len(gone), endpoint=True)
        onto = (road + rng.integers(0, _RETURN_ROADS, len(gone))) % self.roads
        # The last report comes up to one interval after the deadline.
        return Returns(gone.deadline + cal.REPORT_SECONDS + pause, onto, gone.vid)

    def _returns_to(self, road: int) -> Returns:
        origins = {(road - step) % self.roads for step in range(_RETURN_ROADS)}
        found = [self._returns_from(origin) for origin in sorted(origins)]
        time, onto, vid = (
            np.concatenate([getattr(back, field.name) for back in found])
            for field in fields(Returns)
        )
        here = (onto == road) & (time < self.seconds)
        return Returns(time[here], onto[here], vid[here])


def _draw_trips(rng: np.random.Generator, time: Ints, vid: Ints) -> Trips:
    """Trips of cars that enter at `time`."""
    count = len(time)
    weights = np.repeat(np.array(cal.ENTRY_WEIGHTS, dtype=float), 10)
    weights[-1] = 0  # nothing is ahead of the last segment
    seg = rng.choice(cal.SEGMENTS, count, p=weights / weights.sum())
    ending = rng.choice(
        3,
        count,
        p=[
            1 - cal.VANISHING_SHARE - cal.EXIT_LATE_SHARE,
            cal.VANISHING_SHARE,
            cal.EXIT_LATE_SHARE,
        ],
    )
    out = _draw_exits(rng, seg)
    ending[(out == cal.SEGMENTS - 1) & (ending == LEAVES_LATE)] = LEAVES
    return Trips(
        time=time,
        vid=vid,
        seg=seg,
        exit=out,
        deadline=time + rng.integers(*cal.PATIENCE, count),
        ending=ending,
        pace=rng.normal(1.0, cal.PACE_DEVIATION, count).clip(0.6, 1.4),
    )


def _draw_exits(rng: np.random.Generator, seg: Ints) -> Ints:
    """Segments of exit, all above `seg`: towards the middle, or a short way."""
    centre, deviation = cal.EXIT_CENTRE
    segments = np.arange(cal.SEGMENTS)
    pull = np.cumsum(np.exp(-0.5 * ((segments - centre) / deviation) ** 2) + 1e-3)
    low, high = pull[seg], pull[-1]
    wanted = np.searchsorted(pull, low + rng.random(len(seg)) * (high - low), side="right")
    near = seg + 1 + rng.exponential(cal.SHORT_TRIP_SEGMENTS, len(seg)).astype(np.int64)
    out = np.where(rng.random(len(seg)) < cal.SHORT_TRIP_SHARE, near, wanted)
    return np.clip(out, seg + 1, cal.SEGMENTS - 1)
