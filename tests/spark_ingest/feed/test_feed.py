"""Spark feeds a running job: its answers are right, whoever is killed."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from raystream.errors import ConfigError
from spark_ingest.feed.feeding import Job
from spark_ingest.layout import read_meta
from tests.gates import until
from tests.io.test_push import TOKEN
from tests.lrb import plain_rules
from tests.lrb.feeding import FedJob
from tests.lrb.random_traffic import random_traffic
from tests.lrb.running import prepare
from tests.processes import kill_each
from tests.spark_ingest.connector.jobs import job as numbers
from tests.spark_ingest.feed.processes import feeding

pytestmark = pytest.mark.spark


def test_a_feed_that_is_killed_goes_on_with_other_tasks_and_each_row_counts_once(
    tmp_path: Path,
) -> None:
    rows, history = random_traffic(seed=11, roads=1, cars=60)
    job = FedJob(prepare(tmp_path, rows, history), tmp_path / "out")
    end = read_meta(job.data).last + 1
    with feeding(job, tmp_path / "state", speed="60", tasks=2) as first:
        first.reaches(end // 4)
        first.kill()
    with feeding(job, tmp_path / "state", speed="60", tasks=7) as second:
        second.reaches(end // 2)
        kill_each(second.workers())
        second.ends()
    ran = job.ended()
    assert ran.answers == plain_rules.answers(rows, history)
    assert ran.record["speed"] == 60.0
    assert sum(ran.record["rows_in"].values()) == len(rows)


def test_a_job_of_other_records_is_refused_before_spark_starts(tmp_path: Path) -> None:
    rows, _ = random_traffic(seed=11, roads=1, cars=5)
    meta = read_meta(prepare(tmp_path, rows))
    with numbers() as other, pytest.raises(ConfigError, match="not the rows of Linear Road"):
        Job(addresses=other.address, token=TOKEN, path="/push").refuse_other(meta)


@pytest.mark.ray
@pytest.mark.usefixtures("runtime")
def test_the_answers_are_right_although_the_source_dies_with_rows_that_are_staged(
    tmp_path: Path,
) -> None:
    rows, history = random_traffic(seed=12, roads=1, cars=60)
    struck: list[int] = []

    def strike(sample: object) -> None:
        """Kill the source when half of the rows have come."""
        pid = sample.processes.get("rows/0", 0)  # type: ignore[attr-defined]
        came = sample.operators["rows"].records_in  # type: ignore[attr-defined]
        if not struck and pid and came > len(rows) // 2:
            struck.append(pid)
            kill_each([psutil.Process(pid)])

    job = FedJob(prepare(tmp_path, rows, history), tmp_path / "out", cluster="auto", watch=strike)
    with feeding(job, tmp_path / "state", speed="60", tasks=2) as feed:
        feed.ends()
    ran = job.ended()
    until(lambda: struck)
    assert ran.answers == plain_rules.answers(rows, history)
    assert [gone for recovery in ran.record["recoveries"] for gone in recovery["gone"]] == [
        "rows/0"
    ]
