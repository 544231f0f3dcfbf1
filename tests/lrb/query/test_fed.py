"""Rows that are pushed are answered as rows in files are."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from lrb.query.fed import LANES, Clock, Pushed, clock_of
from lrb.query.run import run
from lrb.query.source import look_through
from raystream.errors import JobError
from spark_ingest.feed.rows import PUSHED
from spark_ingest.layout import read_meta
from tests.lrb import plain_rules
from tests.lrb.feeding import FedJob, feed, told_lanes
from tests.lrb.random_traffic import random_traffic
from tests.lrb.running import prepare


def test_a_pushed_row_has_the_fields_that_the_job_declares() -> None:
    assert tuple(PUSHED.names) == Pushed._fields


def test_pushed_rows_are_answered_as_those_of_files_although_lanes_lag(tmp_path: Path) -> None:
    rows, history = random_traffic(seed=3, roads=2, cars=120)
    data = prepare(tmp_path, rows, history)
    files = run(look_through(data), tmp_path / "files")
    job = FedJob(data, tmp_path / "out")
    assert told_lanes(job) == LANES
    end = read_meta(data).last + 1
    feed(job, [*range(37, end, 61), end])
    ran = job.end()
    assert ran.answers == plain_rules.answers(rows, history)
    assert ran.record["checksum"] == files["checksum"]
    came, held = ran.record["rows_in"], files["rows_in"]
    assert sum(came.values()) == len(rows)
    assert (came["0"], came["2"]) == (held["0"], held["2"])
    assert ran.record["latency"] is None


def test_marks_tell_the_clock() -> None:
    times, due = np.array([3, 5, 9, 7]), np.array([-1, 2_000_000, 4_000_000, 3_000_000])
    assert clock_of(times, due) == Clock(5.0, 2.0, 2.0)
    assert clock_of(times, np.array([-1, -1, -1, 9])) is None
    assert clock_of(times[:0], due[:0]) is None
    assert Clock(5.0, 2.0, 2.0).simulated(np.array([2.0, 3.5])).tolist() == [5.0, 8.0]


def test_latency_counts_from_the_moment_that_marks_tell(tmp_path: Path) -> None:
    rows, history = random_traffic(seed=4, roads=1, cars=20)
    data = prepare(tmp_path, rows, history)
    meta = read_meta(data)
    cuts = [meta.first + 50, meta.last + 1]
    started = time.time() - 1000.0
    due = [round((started + (cut - meta.first) / 10) * 1e6) for cut in cuts]
    job = FedJob(data, tmp_path / "out")
    feed(job, cuts, due=due)
    record = job.end().record
    assert round(record["speed"], 3) == 10.0
    longest = (meta.last - meta.first) / 10
    assert 1000.0 - longest - 1 < record["latency"]["p50"] < 1000.0 + 600
    assert record["deadline_missed"] == sum(record["rows_out"].values())


def test_rows_behind_a_mark_end_the_run(tmp_path: Path) -> None:
    rows, history = random_traffic(seed=4, roads=1, cars=20)
    job = FedJob(prepare(tmp_path, rows, history), tmp_path / "out")
    feed(job, [10_000])
    feed(job, [10_000, 10_001, 60])
    with pytest.raises(JobError, match="rows came after rows of later seconds"):
        job.end()
