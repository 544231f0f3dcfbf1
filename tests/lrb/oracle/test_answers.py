"""Answer files: what is written is read, what is malformed is named, order does not count."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrb.oracle import answers as files
from lrb.oracle.answers import ALERT, BALANCE, EMIT, EXPENDITURE, KINDS, TOLL, Kind, table
from raystream.errors import InputError

INTEGERS = st.integers(-(2**63), 2**63 - 1)


def rows_of(kind: Kind) -> st.SearchStrategy[pa.Table]:
    """Tables of up to five answers of a kind."""
    row = st.tuples(*(INTEGERS for _ in kind.columns))
    return st.lists(row, max_size=5).map(lambda rows: _table(kind, rows))


def _table(kind: Kind, rows: list[tuple[int, ...]]) -> pa.Table:
    return table(kind, **{name: [row[i] for row in rows] for i, name in enumerate(kind.columns)})


ANSWERS = st.fixed_dictionaries({kind: rows_of(kind) for kind in KINDS})


@pytest.fixture
def some() -> dict[Kind, pa.Table]:
    return {
        TOLL: table(TOLL, vid=[7, 8], time=[60, 61], lav=[-1, 39], toll=[0, 200]),
        ALERT: table(ALERT, time=[180], vid=[494], seg=[8]),
        BALANCE: table(BALANCE, time=[26], qid=[2], result_time=[25], bal=[2**40]),
        EXPENDITURE: table(EXPENDITURE, time=[10], qid=[0], bal=[37]),
    }


def test_files_are_as_the_contract_says(some: dict[Kind, pa.Table], tmp_path: Path) -> None:
    some[TOLL] = some[TOLL].append_column(EMIT, pa.array([60.25, -1.0]))
    files.write(tmp_path, some)
    assert (tmp_path / "tollalerts.csv").read_text() == "0,7,60,60.250,-1,0\n0,8,61,-1,39,200\n"
    assert (tmp_path / "accidentalerts.csv").read_text() == "1,180,-1,494,8\n"
    assert (tmp_path / "balances.csv").read_text() == "2,26,-1,2,25,1099511627776\n"
    assert (tmp_path / "expenditures.csv").read_text() == "3,10,-1,0,37\n"


@given(answers=ANSWERS)
def test_what_is_written_is_read(
    answers: dict[Kind, pa.Table], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("answers")
    files.write(folder, answers)
    read = files.read(folder)
    assert {kind: rows.drop_columns(EMIT) for kind, rows in read.items()} == answers
    assert all(rows[EMIT].to_pylist() == [-1.0] * rows.num_rows for rows in read.values())


@pytest.mark.parametrize("nothing", ["", "\n", " \n\n"])
def test_files_without_answers_are_fine(
    some: dict[Kind, pa.Table], tmp_path: Path, nothing: str
) -> None:
    files.write(tmp_path, some)
    (tmp_path / "accidentalerts.csv").write_text(nothing)
    assert files.read(tmp_path)[ALERT].num_rows == 0


@pytest.mark.parametrize(
    "line",
    [
        "0,7,60,-1,-1",
        "0,7,60,-1,-1,0,5",
        "0,7,sixty,-1,-1,0",
        "0,7,60,-1,-1,",
        "0,7,60.5,-1,-1,0",
        "1,7,60,-1,-1,0",
        "0,7,60,-1,-1,99999999999999999999",
        "0,NA,60,-1,-1,0",
    ],
)
def test_a_malformed_row_is_named_with_its_line(
    some: dict[Kind, pa.Table], tmp_path: Path, line: str
) -> None:
    files.write(tmp_path, some)
    path = tmp_path / "tollalerts.csv"
    path.write_text(f"{path.read_text()}{line}\n{path.read_text()}")
    with pytest.raises(InputError) as error:
        files.read(tmp_path)
    assert f"{path}:3: expected 0,vid,time,emit,lav,toll, found '{line}'" in str(error.value)


def test_a_missing_file_is_named(some: dict[Kind, pa.Table], tmp_path: Path) -> None:
    files.write(tmp_path, some)
    (tmp_path / "balances.csv").unlink()
    with pytest.raises(InputError, match=r"cannot read .*balances\.csv: No such file"):
        files.read(tmp_path)
    with pytest.raises(InputError, match="no answers folder"):
        files.read(tmp_path / "elsewhere")


@given(answers=ANSWERS, seed=st.randoms(use_true_random=False))
def test_the_checksum_does_not_see_order(answers: dict[Kind, pa.Table], seed: object) -> None:
    shuffled = {}
    for kind, rows in answers.items():
        order = list(range(rows.num_rows))
        seed.shuffle(order)  # type: ignore[attr-defined]
        shuffled[kind] = rows.take(pa.array(order, pa.int64()))
    assert files.checksum(shuffled) == files.checksum(answers)


def test_the_checksum_sees_everything_else(some: dict[Kind, pa.Table]) -> None:
    seen = {files.checksum(some)}
    for kind in KINDS:
        for column, name in enumerate(kind.columns):
            changed = [value + 1 for value in some[kind][name].to_pylist()]
            other = some[kind].set_column(column, name, pa.array(changed, pa.int64()))
            seen.add(files.checksum(some | {kind: other}))
        seen.add(files.checksum(some | {kind: pa.concat_tables([some[kind]] * 2)}))
        seen.add(files.checksum(some | {kind: table(kind)}))
    assert len(seen) == 1 + sum(len(kind.columns) + 2 for kind in KINDS)


def test_the_checksum_mixes_in_the_kind() -> None:
    """The same three numbers as an alert and as an expenditure are two answers."""
    none = {kind: table(kind) for kind in KINDS}
    alert = none | {ALERT: table(ALERT, time=[1], vid=[2], seg=[3])}
    expenditure = none | {EXPENDITURE: table(EXPENDITURE, time=[1], qid=[2], bal=[3])}
    assert files.checksum(none) == "0" * 16
    assert files.checksum(alert) != files.checksum(expenditure)


def test_the_checksum_leaves_emit_out(some: dict[Kind, pa.Table]) -> None:
    stamped = some | {TOLL: some[TOLL].append_column(EMIT, pa.array([60.25, 61.5]))}
    assert files.checksum(stamped) == files.checksum(some)


@given(answers=ANSWERS)
def test_the_checksum_is_the_documented_one(answers: dict[Kind, pa.Table]) -> None:
    """Once more with Python's integers: what must not change from version to version."""

    def mix(x: int) -> int:
        x = (x + 0x9E3779B97F4A7C15) % 2**64
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
        return x ^ x >> 31

    total = 0
    for kind, rows in answers.items():
        for row in rows.to_pylist():
            hashed = mix(kind.code)
            for name in kind.columns:
                hashed = mix(hashed ^ row[name] % 2**64)
            total += hashed
    assert files.checksum(answers) == f"{total % 2**64:016x}"


def test_the_checksum_of_today_is_that_of_tomorrow(some: dict[Kind, pa.Table]) -> None:
    assert files.checksum(some) == "f30d0b7f3c0ef4ea"


def test_counts_and_positive_tolls(some: dict[Kind, pa.Table]) -> None:
    assert files.counts(some) == {"toll": 2, "alert": 1, "balance": 1, "expenditure": 1}
    assert files.positive_tolls(some) == 1
    assert files.positive_tolls({kind: table(kind) for kind in KINDS}) == 0


def test_latency_is_read_or_absent(tmp_path: Path) -> None:
    assert files.read_latency(tmp_path) is None
    rows = pa.table({"kind": [0, 3], "time": [5, 6], "latency": [0.25, 11.0]})
    pq.write_table(rows.cast(files.LATENCY_SCHEMA), tmp_path / files.LATENCY_FILE)
    assert files.read_latency(tmp_path).to_pylist() == rows.to_pylist()
    pq.write_table(rows.drop_columns("kind"), tmp_path / files.LATENCY_FILE)
    with pytest.raises(InputError, match="not a table of latencies"):
        files.read_latency(tmp_path)


def test_run_json_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / files.RUN_FILE
    with pytest.raises(InputError, match="No such file"):
        files.read_run(tmp_path)
    path.write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        files.read_run(tmp_path)
    path.write_text("[]")
    with pytest.raises(InputError, match="does not describe a run"):
        files.read_run(tmp_path)
    path.write_text(json.dumps({"format": 1, "speed": 20.0}))
    assert files.read_run(tmp_path)["speed"] == 20.0
