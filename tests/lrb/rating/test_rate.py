"""The L-rating: the search, the steps, and what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from lrb import cli, steps
from lrb.oracle.answers import EXPENDITURE, TOLL, checksum
from lrb.oracle.expected import Expected, expected
from lrb.query.flow import SINK
from lrb.query.source import look_through
from lrb.rating import command as rating
from lrb.rating import rating_step
from lrb.rating.rate import STORE_SHARE, Search, Traffic, late_traffic, rate, share_memory
from lrb.rating.rating_step import BEHIND_SECONDS, Behind, Step, Watch, expected_rows, why_not
from lrb.rating.replica_check import Latencies
from lrb.rating.search_ladder import rungs, search
from lrb.rating.usage import Usage, resident
from raystream.errors import ConfigError
from spark_ingest.generate import generate
from tests.lrb.rows import report
from tests.lrb.running import prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def unshared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has said how much of the memory Ray may take, and after a test nobody has again."""
    monkeypatch.setenv(STORE_SHARE, "")
    monkeypatch.delenv(STORE_SHARE)


# ---- the search -------------------------------------------------------------------------------


def test_rungs_have_two_leading_digits() -> None:
    assert rungs(1, 0) == []
    assert rungs(4, 17) == [4, 8, 12, 16]
    assert rungs(1, 130)[-5:] == [99, 100, 110, 120, 130]
    assert rungs(2, 2400)[-2:] == [2200, 2400]


@given(
    unit=st.integers(1, 5),
    most=st.integers(1, 3000),
    begin=st.integers(1, 4000),
    limit=st.integers(0, 4000),
)
def test_the_search_finds_the_largest_that_passes(
    unit: int, most: int, begin: int, limit: int
) -> None:
    numbers = rungs(unit, most)
    tried: list[int] = []

    def passes(number: int) -> bool:
        tried.append(number)
        return number <= limit

    found = search(numbers, passes, begin=begin) if numbers else None
    assert found == max((n for n in numbers if n <= limit), default=None)
    assert len(set(tried)) == len(tried) <= 20
    if numbers:
        assert tried[0] == max((n for n in numbers if n <= begin), default=numbers[0])


# ---- a step -----------------------------------------------------------------------------------


def test_a_job_that_is_behind_is_given_up(tmp_path: Path) -> None:
    data = look_through(prepare(tmp_path, [report(t, 1, 3) for t in range(0, 91, 30)]))
    watch = Watch(data, speed=1.0, copies=1)

    def sample(t: float, epochs: int) -> SimpleNamespace:
        return SimpleNamespace(t=t, operators={SINK: SimpleNamespace(position=epochs)})

    watch.check(sample(10.0, epochs=200))
    watch.check(sample(10.0 + BEHIND_SECONDS, epochs=200))
    watch.check(sample(1000.0, epochs=91 * 20))  # it has ended, and its report is on the way
    with pytest.raises(Behind, match="behind after 20 s"):
        watch.check(sample(20.0, epochs=200))


def test_a_step_that_is_given_up_has_not_passed_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rating_step, "BEHIND_SECONDS", -1000.0)  # the first sample is too late
    data = look_through(prepare(tmp_path, [report(t, 1, 3) for t in range(0, 91, 30)]))
    out, never = tmp_path / "out", cast("Expected", None)
    given: dict[str, Any] = {"xways": 1, "speed": 20.0, "p99": 5.0, "cluster": None}
    found = rating_step.step(data, never, out, instances={}, **given)
    assert not found.passed and "behind after" in found.why
    assert not [*out.glob("*")], "its parts are removed"


def test_ray_is_told_of_its_share_of_the_memory_before_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    CliRunner().invoke(cli.app, ["rate", "--data", "traffic", "--seconds", "700", "--whole", "600"])
    assert os.environ[STORE_SHARE] == "0.4"
    told = "import lrb.cli, lrb.rating.rate, lrb.rating.command, sys\n"
    told += "assert 'ray' not in sys.modules\n"
    told += "from ray._private import ray_constants as r\n"
    told += "print(r.DEFAULT_OBJECT_STORE_MEMORY_PROPORTION)"
    assert subprocess.check_output([sys.executable, "-c", told], text=True).strip() == "0.4"
    monkeypatch.setenv(STORE_SHARE, "0.2")
    share_memory()
    assert os.environ[STORE_SHARE] == "0.2"


def test_as_many_cars_are_expected_as_report_in_half_a_minute(tmp_path: Path) -> None:
    rows = [report(t + car, car, 3) for t in range(0, 91, 30) for car in range(1, 8)]
    data = look_through(prepare(tmp_path, sorted(rows)))
    assert expected_rows(data, 5 * data.meta.xways) == {"vehicles": 35, "accounts": 35}


def test_latencies_are_counted_by_the_millisecond() -> None:
    latencies = Latencies()
    assert latencies.summary() is None
    latencies.add(TOLL, np.array([0.0101, 0.0203, 5.5, np.nan, -1.0], np.float32))
    latencies.add(EXPENDITURE, np.array([5.5, 70.0], np.float32))
    assert latencies.late == 4  # 5.5 s is in time for an expenditure only
    assert latencies.summary() == {"p50": 5.501, "p95": 60.0, "p99": 60.0, "p99.9": 60.0, "max": 70}


@given(st.lists(st.floats(0, 59, width=32), min_size=1, max_size=50))
def test_percentiles_bound_their_share_of_the_answers(seconds: list[float]) -> None:
    latencies = Latencies()
    latencies.add(TOLL, np.array(seconds, np.float32))
    summary = latencies.summary()
    assert summary is not None
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        within = sum(s <= summary[name] for s in seconds)
        below = sum(s < summary[name] - 0.0011 for s in seconds)
        assert below < share * len(seconds) <= within


def test_a_step_says_why_it_failed() -> None:
    due = {"xways": 2, "rows": 9, "rows_per_second": 1.0, "rows_per_second_at_end": 1}
    fine = Step(**due, why="", right=True, late=0, replicas_differing=0, latency={"p99": 0.5})
    assert why_not(fine, p99=1.0) == ""
    assert why_not(fine, p99=0.4) == "p99 is 0.500 s"
    assert why_not(replace(fine, late=3), p99=0.4) == "3 answers after their deadline"
    assert "oracle" in why_not(replace(fine, late=3, right=False), p99=1.0)
    assert "1 replicas" in why_not(replace(fine, right=False, replicas_differing=1), p99=1.0)


def test_usage_is_between_the_samples() -> None:
    usage = Usage()
    for t, cpu in ((1.0, 3.0), (2.0, 3.2), (5.0, 5.0)):
        usage.add(SimpleNamespace(t=t, operators={"a": SimpleNamespace(cpu=cpu)}, processes={}))
    assert usage.cores() == {"a": pytest.approx(0.5)}
    assert set(usage.memory()) <= {"process"}
    assert resident(2**22 + 1, shared=True) == 0  # above the largest process id


def test_what_processes_share_counts_for_keepers_only() -> None:
    usage, mine = Usage(), os.getpid()
    usage.add(SimpleNamespace(t=1.0, operators={}, processes={"keeper/0": mine, "a/0": mine}))
    of_keeper, of_operator = usage.memory()["keeper"], usage.memory()["a"]
    assert 10 << 20 < of_operator < of_keeper - (10 << 20)  # Python and its libraries are shared


# ---- the whole --------------------------------------------------------------------------------


def test_other_traffic_in_the_folder_is_refused(tmp_path: Path) -> None:
    prepare(tmp_path, [report(0, 1, 3)]).rename(tmp_path / "whole")
    with pytest.raises(ConfigError, match="holds prepared traffic of 1 s"):
        late_traffic(tmp_path, Traffic(1, 120, 60, 0), lambda *_: None)
    with pytest.raises(ConfigError, match="the last 121 s of 120 s"):
        Traffic(1, 120, 121, 0)


def test_a_result_that_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, out = prepare(tmp_path, [report(0, 1, 3)]), tmp_path / "out"
    (out / "rate.json").mkdir(parents=True)
    monkeypatch.setattr("lrb.rating.rate.step", lambda *_, **__: Step(1, 1, 1.0, 1, why=""))
    asked = Search(1, 1, 1.0, 1.0, None, {})
    with pytest.raises(ConfigError, match="out cannot be written to"):
        rate(data, lambda _: Expected({}, 0), out, asked)


def test_options_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    for options, told in (
        (["--speed", "max"], "a rating needs a pace"),
        (["--local", "--address", "auto"], "exclude each other"),
        (["--seconds", "700", "--whole", "600"], "the last 700 s of 600 s"),
    ):
        result = CliRunner().invoke(cli.app, ["rate", "--data", str(tmp_path), *options])
        assert result.exit_code == 2, result.output
        assert told in result.output


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("demo", "thesis.tex in it is no answer"),
        ("elastic", "thesis.tex in it is no answer"),
        ("rate --data traffic --out answers", "thesis.tex in it is no answer"),
        ("rate --data traffic --xways 2 --most 1", "is less than the 2 generated expressways"),
    ],
)
def test_what_is_refused_is_refused_before_traffic_is_generated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, told: str
) -> None:
    def generate(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(steps, "generate", generate)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "thesis.tex").touch()
    result = CliRunner().invoke(cli.app, command.split())
    assert result.exit_code == 2, result.output
    assert told in " ".join(result.output.split())


@pytest.mark.spark
def test_a_rating_judges_all_its_answers(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times are not judged here: a busy machine may fail a step, but only for its pace."""
    judged: list[Expected] = []

    def oracle(late: Path) -> Expected:
        judged.append(expected(spark, late))
        return judged[-1]

    monkeypatch.setattr(rating, "oracle", oracle)
    monkeypatch.setattr(
        steps,
        "generate",
        lambda out, xways, seconds, seed: generate(
            out, xways=xways, seconds=seconds, seed=seed, spark=spark
        ),
    )
    home, out = tmp_path / "traffic", tmp_path / "out"
    arguments = (
        f"rate --data {home} --out {out} --xways 2 --whole 120 --seconds 70 --speed 35 --seed 3"
        " --most 4 --from 4 --p99 60 --local --instances vehicles=2"
    )
    result = CliRunner().invoke(cli.app, arguments.split())
    assert "Traceback" not in result.output
    record = json.loads((out / "rate.json").read_text())
    assert result.exit_code == (0 if record["L"] else 1), result.output
    assert (record["traffic"]["xways"], record["traffic"]["first"]) == (2, 50)
    (right,) = (checksum(found.answers) for found in judged)
    for step in record["steps"]:
        assert step["xways"] in (2, 4)
        assert step["passed"] == (step["why"] == "")
        if step["why"] == "":
            assert (step["checksum"], step["replicas_differing"], step["late"]) == (right, 0, 0)
            assert step["right"]
        else:
            assert "behind" in step["why"] or "deadline" in step["why"]
    assert "Replicas of 2 expressways" in " ".join(result.output.split())
