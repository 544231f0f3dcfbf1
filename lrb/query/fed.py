"""The flow over rows that are pushed while it runs, in place of those of a prepared folder.

A car belongs to a lane of the source, and each lane has its rows in order of event time. How far
one lane is ahead of another is left to whoever feeds: rows are kept until all lanes are past their
second (`wait=True`), and what follows takes whole seconds, as it does of files.

Marks (`spark_ingest.feed.rows`) say how far a lane is. They go to the sink, too: they tell the
clock by which rows were released, which the job does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import raystream as rs
from lrb.query.expenditure import Expenditure
from lrb.query.flow import SINK, SOURCE, answers
from lrb.query.records import BalanceRequest, ExpenditureRequest, Report
from spark_ingest.feed.rows import MARK
from spark_ingest.layout import BALANCE, EXPENDITURE, REPORT, SLOTS, SPLITS

LANES = SPLITS
"""Lanes of the source: a split of the layout is in a lane."""
PATH = "/linear-road"
"""Of the URL to which rows are pushed."""
IN_ORDER = "ordered"
"""The operator that tells rows apart once all before them have come."""


class Pushed(NamedTuple):
    """A row as it is pushed, of any type, or a mark. `release` is when it is due, in slots of a
    second; `due` of a mark the same in Unix microseconds."""

    release: rs.Int32
    type: rs.Int8
    time: rs.Int32
    vid: rs.Int32
    spd: rs.Int16
    xway: rs.Int16
    lane: rs.Int8
    dir: rs.Int8
    seg: rs.Int16
    pos: rs.Int32
    qid: rs.Int32
    day: rs.Int16
    due: int


class Due(NamedTuple):
    """A second of event time, and the Unix time in microseconds at which it was due; -1 where rows
    came without a pace."""

    time: rs.Int32
    due: int


@rs.operator(key="vid", order_by="release", compiled=True)
def ordered(row: Pushed) -> Iterator[Report | BalanceRequest | ExpenditureRequest | Due]:
    """Tell the types of rows apart. Reports and requests of a car in one second stay in this
    order."""
    if row.type == REPORT:
        yield Report(row.time, row.vid, row.spd, row.xway, row.lane, row.dir, row.seg, row.pos)
    elif row.type == BALANCE:
        yield BalanceRequest(row.time, row.vid, row.qid)
    elif row.type == EXPENDITURE and 1 <= row.day <= 69:
        yield ExpenditureRequest(row.time, row.vid, row.qid, row.xway, row.day)
    elif row.type == MARK:
        yield Due(row.time, row.due)


@dataclass(frozen=True, kw_only=True)
class Feed:
    """Where rows are pushed to, and what belongs to them. history: files of tolls of earlier days.
    token: that of the source; None for that of the environment, or a new one."""

    port: int
    token: str | None = None
    history: tuple[Path, ...] = ()


def build(feed: Feed, sink: rs.Sink[Any]) -> rs.Flow:
    """The flow. Its answers are those to the same rows in files."""
    source = rs.io.push(Pushed, port=feed.port, lanes=LANES, path=PATH, token=feed.token)
    flow = rs.Flow("linear-road")
    rows = flow.source(source, epochs=rs.by_arrival(), name=SOURCE)
    given = rows.through(ordered, wait=True, name=IN_ORDER)
    (answers(given, Expenditure(feed.history)) | given[Due]).to(sink, name=SINK)
    return flow


@dataclass(frozen=True)
class Clock:
    """By which rows were released. Second `first` was due at Unix time `started`, and `speed`
    seconds of event time in a second from then on."""

    first: float
    started: float
    speed: float

    def simulated(self, moments: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The event time of moments."""
        seconds: npt.NDArray[np.float64] = self.first + (moments - self.started) * self.speed
        return seconds


def clock_of(times: npt.NDArray[Any], due: npt.NDArray[Any]) -> Clock | None:
    """The clock that marks tell; None if there was no pace. Those before it started have no due."""
    times, due = times[due >= 0], due[due >= 0]
    if not len(due):
        return None
    first, last = int(times.argmin()), int(times.argmax())
    seconds = int(times[last]) - int(times[first])
    took = (int(due[last]) - int(due[first])) / 1e6
    if seconds <= 0 or took <= 0:
        return None
    return Clock(float(times[first]), int(due[first]) / 1e6, round(seconds / took, 4))


def released(time: npt.NDArray[Any], slot: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """When rows are due, in event time."""
    due: npt.NDArray[np.float64] = time + slot / SLOTS
    return due
