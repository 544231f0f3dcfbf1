"""The comparison: what is missing, wrong, given twice, late; and how it is shown."""

from __future__ import annotations

import json
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lrb.oracle import answers as files
from lrb.oracle.answers import ALERT, BALANCE, EXPENDITURE, KINDS, TOLL, Kind, table
from lrb.oracle.expected import Expected
from lrb.oracle.validate import Verdict, compare, compare_kind, show, validate
from raystream.errors import InputError
from tests.lrb.rows import balance, expenditure, report, travel_time, write_prepared

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tables = dict[Kind, pa.Table]


@pytest.fixture
def right() -> Tables:
    """Five right answers."""
    return {
        TOLL: table(TOLL, vid=[7, 8], time=[60, 61], lav=[-1, 39], toll=[0, 200]),
        ALERT: table(ALERT, time=[180], vid=[494], seg=[8]),
        BALANCE: table(BALANCE, time=[26], qid=[2], result_time=[25], bal=[100]),
        EXPENDITURE: table(EXPENDITURE, time=[10], qid=[0], bal=[37]),
    }


def latencies(*rows: tuple[int, float]) -> pa.Table:
    """A latency.parquet in memory, from (kind, seconds)."""
    kinds, seconds = zip(*rows, strict=True)
    columns = {"kind": kinds, "time": [0] * len(rows), "latency": seconds}
    return pa.table({name: list(column) for name, column in columns.items()}).cast(
        files.LATENCY_SCHEMA
    )


def shown(verdict: Verdict) -> str:
    console = Console(file=StringIO(), width=200, color_system=None)
    show(verdict, console)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_right_answers_are_right_in_any_order(right: Tables) -> None:
    given = right | {TOLL: right[TOLL].take(pa.array([1, 0]))}
    verdict = compare(Expected(right, re_entries=3), given, None)
    assert verdict.ok
    assert not verdict.objection
    assert (verdict.checked, verdict.wrong, verdict.missing, verdict.duplicates) == (5, 0, 0, 0)
    assert (verdict.late, verdict.re_entries, verdict.positive_tolls) == (None, 3, 1)
    assert verdict.checksum == verdict.expected_checksum == files.checksum(right)
    assert "All 5 answers are right" in shown(verdict)
    assert "not defined at full speed" in shown(verdict)


def test_a_false_value_is_wrong_and_leaves_the_right_one_missing(right: Tables) -> None:
    false = table(TOLL, vid=[7, 8], time=[60, 61], lav=[-1, 39], toll=[0, 202])
    verdict = compare(Expected(right, 0), right | {TOLL: false}, None)
    assert not verdict.ok
    assert verdict.objection.startswith("Not all answers are right: ")
    assert (verdict.wrong, verdict.missing, verdict.duplicates) == (1, 1, 0)
    assert verdict.checksum != verdict.expected_checksum
    assert "toll of vid=8 time=61: expected lav=39 toll=200; answered lav=39 toll=202" in shown(
        verdict
    )


def test_what_is_not_answered_is_missing(right: Tables) -> None:
    verdict = compare(Expected(right, 0), right | {ALERT: table(ALERT)}, None)
    assert (verdict.wrong, verdict.missing, verdict.duplicates) == (0, 1, 0)
    assert "alert of time=180 vid=494: expected seg=8; answered nothing" in shown(verdict)


def test_what_is_answered_twice_is_a_duplicate(right: Tables) -> None:
    twice = pa.concat_tables([right[BALANCE]] * 2)
    verdict = compare(Expected(right, 0), right | {BALANCE: twice}, None)
    assert (verdict.wrong, verdict.missing, verdict.duplicates) == (0, 0, 1)
    assert not verdict.ok
    assert (
        "balance of time=26 qid=2: expected result_time=25 bal=100; "
        "answered result_time=25 bal=100 and result_time=25 bal=100"
    ) in shown(verdict)


def test_what_nobody_asked_is_wrong(right: Tables) -> None:
    more = pa.concat_tables([right[EXPENDITURE], table(EXPENDITURE, time=[1], qid=[5], bal=[0])])
    verdict = compare(Expected(right, 0), right | {EXPENDITURE: more}, None)
    assert (verdict.wrong, verdict.missing, verdict.duplicates) == (1, 0, 0)
    assert "expenditure of time=1 qid=5: expected nothing; answered bal=0" in shown(verdict)


MULTISETS = st.lists(st.tuples(*(st.integers(0, 2) for _ in ALERT.columns)), max_size=12)


@given(expected=MULTISETS, answered=MULTISETS)
def test_comparison_is_that_of_multisets(
    expected: list[tuple[int, ...]], answered: list[tuple[int, ...]]
) -> None:
    def as_table(rows: list[tuple[int, ...]]) -> pa.Table:
        return table(ALERT, **{name: [row[i] for row in rows] for i, name in enumerate(_COLUMNS)})

    verdict = compare_kind(ALERT, as_table(expected), as_table(answered), None, examples=2)
    surplus = Counter(answered) - Counter(expected)
    assert verdict.missing == (Counter(expected) - Counter(answered)).total()
    assert verdict.wrong == sum(n for row, n in surplus.items() if row not in expected)
    assert verdict.duplicates == sum(n for row, n in surplus.items() if row in expected)
    differing = {(row[0], row[1]) for row in Counter(expected) - Counter(answered) + surplus}
    keys = [(example.key["time"], example.key["vid"]) for example in verdict.examples]
    assert keys == sorted(differing)[:2]
    for example, (time, vid) in zip(verdict.examples, keys, strict=True):
        assert Counter(row["seg"] for row in example.answered) == Counter(
            seg for t, v, seg in answered if (t, v) == (time, vid)
        )


_COLUMNS = ALERT.columns


def test_each_kind_has_its_deadline(right: Tables) -> None:
    measured = latencies((0, 5.0), (0, 5.01), (1, 0.1), (2, 9.0), (3, 9.0))
    verdict = compare(Expected(right, 0), right, measured)
    assert [kind.late for kind in verdict.kinds] == [1, 0, 1, 0]
    assert (verdict.late, verdict.right, verdict.in_time, verdict.ok) == (2, True, False, False)
    assert verdict.objection.startswith("All answers are right, but 2 came late: ")
    assert "2 answers came after their deadline" in shown(verdict)


def test_in_time_is_said(right: Tables) -> None:
    verdict = compare(Expected(right, 0), right, latencies(*((k, 1.0) for k in (0, 0, 1, 2, 3))))
    assert verdict.ok
    assert verdict.late == 0
    assert "All of them came in time" in shown(verdict)


def test_an_answer_before_its_question_is_not_in_time(right: Tables) -> None:
    measured = latencies(*((k, 1.0) for k in (0, 0, 1, 2)), (3, -1.0))
    verdict = compare(Expected(right, 0), right, measured)
    assert [kind.late for kind in verdict.kinds] == [0, 0, 0, 1]
    assert not verdict.ok


def test_a_latency_that_is_missing_or_no_number_is_not_in_time(right: Tables) -> None:
    verdict = compare(Expected(right, 0), right, latencies((0, float("nan")), (1, 1.0), (2, 1.0)))
    assert verdict.kinds[0].late == 1
    assert [kind.unmeasured for kind in verdict.kinds] == [1, 0, 0, 1]
    assert not verdict.in_time
    assert verdict.objection.startswith("All answers are right, but 1 came late: ")
    some = compare(Expected(right, 0), right, latencies((0, 1.0), (1, 1.0), (2, 1.0)))
    assert some.objection == "All answers are right, but some have no latency."
    assert "2 answers of a paced run have no latency" in shown(verdict)


# ---- with Spark and files ---------------------------------------------------------------------

ROWS = [
    report(0, 1, 20, lane=0),
    report(30, 1, 21),
    balance(30, 1, 5),
    expenditure(30, 1, 6, 3),
    travel_time(30, 1, 7),
]
RIGHT = {
    TOLL: table(TOLL, vid=[1, 1], time=[0, 30], lav=[-1, -1], toll=[0, 0]),
    ALERT: table(ALERT),
    BALANCE: table(BALANCE, time=[30], qid=[5], result_time=[30], bal=[0]),
    EXPENDITURE: table(EXPENDITURE, time=[30], qid=[6], bal=[0]),
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_prepared(tmp_path / "data", ROWS)


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    files.write(tmp_path / "answers", RIGHT)
    return tmp_path / "answers"


@pytest.mark.spark
def test_validate_reads_and_compares(data: Path, answers: Path, spark: SparkSession) -> None:
    stages: list[str] = []
    verdict = validate(data, answers, spark=spark, progress=stages.append)
    assert verdict.ok
    assert verdict.checked == 4
    assert stages[0] == "reading the answers"
    assert stages[-1] == "comparing"


@pytest.mark.spark
def test_a_paced_run_without_latencies_is_noticed(
    data: Path, answers: Path, spark: SparkSession
) -> None:
    run = answers / files.RUN_FILE
    run.write_text(json.dumps({"format": 1, "speed": None}))
    assert validate(data, answers, spark=spark).late is None
    run.write_text(json.dumps({"format": 1, "speed": 20.0}))
    verdict = validate(data, answers, spark=spark)
    assert sum(kind.unmeasured for kind in verdict.kinds) == 4
    assert not verdict.ok


@pytest.mark.spark
def test_late_answers_are_read_from_the_file(
    data: Path, answers: Path, spark: SparkSession
) -> None:
    measured = latencies((0, 0.1), (0, 6.0), (2, 0.1), (3, 6.0))
    pq.write_table(measured, answers / files.LATENCY_FILE)
    assert validate(data, answers, spark=spark).late == 1


def test_bad_paths_are_refused_before_spark_starts(data: Path, answers: Path) -> None:
    """Neither call may get as far as to start a Spark: it would do so silently and slowly."""
    with pytest.raises(InputError, match="does not exist"):
        validate(data / "elsewhere", answers)
    with pytest.raises(InputError, match="no answers folder"):
        validate(data, answers / "elsewhere")


def test_kinds_are_compared_in_the_order_of_their_codes() -> None:
    assert [kind.code for kind in KINDS] == [0, 1, 2, 3]
