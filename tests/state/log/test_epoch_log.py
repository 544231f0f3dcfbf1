"""The epoch log against a plain dict, and its spill to disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import raystream as rs
from raystream.errors import InternalError, JobError
from raystream.schema.columns import Columns
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import KeyRange
from raystream.state.log.epoch_log import Bound, EpochLog, LogEntry
from raystream.state.log.spill import DiskSpill
from tests.examples import examples

GROUPS = 4


class Row(NamedTuple):
    n: int
    text: str
    maybe: rs.Int16 | None
    sure: bool


SCHEMA = record_schema(Row)
rows = st.lists(
    st.builds(
        Row,
        st.integers(-9, 9),
        st.text("ab", max_size=3),
        st.none() | st.integers(-5, 5),
        st.booleans(),
    ),
    max_size=6,
)


def entry(epoch: int, records: list[Row], *, ranked: bool = False) -> LogEntry[str]:
    columns = from_records(SCHEMA, records)
    if ranked:
        columns = columns.ranked(np.arange(len(records)) * 7)
    bounds = sorted((i * 3 + epoch) % (len(records) + 1) for i in range(GROUPS - 1))
    return LogEntry(epoch, f"header {epoch}", columns, np.array([0, *bounds, len(records)]))


class Memory:
    """A spill that keeps entries in memory."""

    def __init__(self) -> None:
        self.kept: dict[int, Columns] = {}

    def write(self, epoch: int, rows: Columns) -> None:
        self.kept[epoch] = rows

    def read(self, epoch: int) -> Columns:
        return self.kept[epoch]

    def drop(self, epoch: int) -> None:
        del self.kept[epoch]


def shown(columns: Columns) -> tuple[list[Any], list[int] | None]:
    return list(columns.records()), None if columns.rank is None else columns.rank.tolist()


@examples(60)
@given(
    st.lists(st.one_of(rows, st.integers(0, 3)), max_size=20),
    st.integers(0, 300),
    st.booleans(),
    st.data(),
)
def test_a_log_serves_what_it_was_given_since_the_floor(
    plan: list[Any], budget: int, ranked: bool, data: st.DataObject
) -> None:
    spill = Memory()
    log: EpochLog[str] = EpochLog(budget=budget, spill=spill)
    model: dict[int, LogEntry[str]] = {}
    epoch = committed = 0
    for step in plan:
        if isinstance(step, int):
            committed = min(committed + step, epoch)
            most = data.draw(st.none() | st.integers(0, 3))
            gone = sorted(e for e in model if e <= committed)
            dropped = gone[:most]
            assert log.trim(committed, most) == (dropped == gone)
            model = {e: x for e, x in model.items() if e not in dropped}
        else:
            epoch += 1
            model[epoch] = entry(epoch, step, ranked=ranked)
            log.append(entry(epoch, step, ranked=ranked))
        assert (log.first, log.next) == (min(model, default=epoch + 1), epoch + 1)
        assert log.memory <= budget
        assert set(spill.kept) <= set(model)
    lo = data.draw(st.integers(0, GROUPS - 1))
    keys = KeyRange(lo, data.draw(st.integers(lo + 1, GROUPS)))
    for e, wanted in model.items():
        found = log.entry(e)
        assert (found.epoch, found.header) == (e, wanted.header)
        assert shown(found.part(keys)[0]) == shown(wanted.part(keys)[0])
        assert found.part(keys)[1].tolist() == wanted.part(keys)[1].tolist()


def test_a_part_has_the_rows_and_offsets_of_its_key_groups() -> None:
    offsets = [0, 1, 3, 6]
    columns = from_records(SCHEMA, [Row(i, "", None, True) for i in range(6)])
    whole = LogEntry(1, "header", columns, np.array(offsets))
    for keys in (KeyRange(lo, hi) for lo in range(3) for hi in range(lo + 1, 4)):
        rows_of, offsets_of = whole.part(keys)
        first, last = offsets[keys.lo], offsets[keys.hi]
        assert [r.n for r in rows_of.records()] == list(range(first, last))
        assert offsets_of.tolist() == [o - first for o in offsets[keys.lo : keys.hi + 1]]


def test_a_log_is_trimmed_in_steps() -> None:
    log: EpochLog[str] = EpochLog()
    for e in range(1, 6):
        log.append(entry(e, []))
    assert not log.trim(4, most=2) and log.first == 3
    assert log.trim(4, most=2) and log.first == 5


def test_a_bound_counts_epochs_and_beyond_these_bytes() -> None:
    log: EpochLog[str] = EpochLog()
    for e in range(1, 13):
        log.append(entry(e, [Row(e, "a", None, True)]))
    small = log.entries[0].rows.nbytes()
    assert not log.is_beyond(5, Bound(8, 0, 8))  # 8 epochs
    assert log.is_beyond(4, Bound(8, 0, 100)) and log.is_beyond(1, Bound(8, 0, 100))
    assert not log.is_beyond(4, Bound(8, 9 * small, 100))
    assert log.is_beyond(3, Bound(8, 9 * small, 100))
    assert not log.is_beyond(3, Bound(8, 1 << 20, 10)) and log.is_beyond(2, Bound(8, 1 << 20, 10))
    assert not log.is_beyond(13, Bound(0, 0, 0)) and not log.is_beyond(99, Bound(0, 0, 0))


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=30),
    st.integers(0, 40),
    st.tuples(st.integers(0, 5), st.integers(0, 400), st.integers(0, 5)),
    st.integers(-1, 70),
)
def test_a_bound_is_what_it_says(
    added: list[tuple[int, int]], trimmed: int, bound: tuple[int, int, int], epoch: int
) -> None:
    log: EpochLog[str] = EpochLog()
    at = 0
    for epochs, rows in added:
        epochs = 1 if rows else epochs
        at += epochs
        of = entry(at, [Row(i, "a", None, True) for i in range(rows)])
        log.append(of._replace(epochs=epochs))
    log.trim(min(trimmed, at))
    entries, nbytes, more = bound
    behind = [e.rows.nbytes() for e in log.entries if e.epoch >= epoch]
    many = len(behind) > entries
    wanted = many and (len(behind) > entries + more or sum(behind) > nbytes)
    assert log.is_beyond(epoch, Bound(entries, nbytes, entries + more)) == wanted


def test_epochs_that_are_not_there_are_refused_by_name() -> None:
    log: EpochLog[str] = EpochLog()
    for e in (1, 2, 3):
        log.append(entry(e, []))
    log.trim(1)
    for epoch in (1, 4):
        with pytest.raises(LookupError, match=f"epoch {epoch} is not in the log.* 2 to 3"):
            log.entry(epoch)
    with pytest.raises(InternalError, match="epoch 5 appended to a log that is at 4"):
        log.append(entry(5, []))


def test_spilled_rows_are_not_held_in_memory_by_a_slice() -> None:
    log: EpochLog[str] = EpochLog(budget=0, spill=Memory())
    log.append(entry(1, [Row(1, "a", None, True)]))
    kept = log.entries[0].rows
    assert all(a.base is None for a in kept.arrays if isinstance(a, np.ndarray))


# ---------------------------------------------------------------- on disk


@examples(20)
@given(st.lists(rows, min_size=1, max_size=5), st.booleans())
def test_what_is_read_from_disk_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, epochs: list[list[Row]], ranked: bool
) -> None:
    spill = DiskSpill(tmp_path_factory.mktemp("log") / "edge", SCHEMA)
    for e, records in enumerate(epochs):
        spill.write(e, entry(e, records, ranked=ranked).rows)
    for e, records in enumerate(epochs):
        assert shown(spill.read(e)) == shown(entry(e, records, ranked=ranked).rows)


def test_a_slice_is_written_alone(tmp_path: Path) -> None:
    spill = DiskSpill(tmp_path, SCHEMA)
    whole = entry(1, [Row(i, "x" * 100, None, False) for i in range(1000)]).rows
    spill.write(1, whole.slice(500, 501))
    assert spill.bytes < 4096
    assert [r.n for r in spill.read(1).records()] == [500]


def test_dropped_rows_that_are_in_use_stay_readable(tmp_path: Path) -> None:
    spill = DiskSpill(tmp_path, SCHEMA)
    records = [Row(i, "text", i, True) for i in range(100)]
    spill.write(1, entry(1, records).rows)
    read = spill.read(1)
    spill.drop(1)
    assert list(tmp_path.iterdir()) == []
    assert spill.bytes == 0
    assert list(read.records()) == records


def test_a_folder_that_was_left_is_emptied(tmp_path: Path) -> None:
    DiskSpill(tmp_path, SCHEMA).write(7, entry(7, []).rows)
    DiskSpill(tmp_path, SCHEMA)
    assert list(tmp_path.iterdir()) == []


def test_a_log_over_a_disk_serves_its_epochs(tmp_path: Path) -> None:
    spill = DiskSpill(tmp_path, SCHEMA)
    log: EpochLog[str] = EpochLog(budget=200, spill=spill)
    for e in range(1, 11):
        log.append(entry(e, [Row(e, "some text", None, False)] * 5))
    assert spill.bytes > 0
    for e in range(1, 11):
        assert log.entry(e).rows.column("n").tolist() == [e] * 5
    log.trim(10)
    assert spill.bytes == 0 and log.memory == 0


@pytest.mark.parametrize("doing", ["prepare", "write", "read", "remove"])
def test_a_disk_error_names_the_path(tmp_path: Path, doing: str) -> None:
    folder = tmp_path / "edge"
    if doing == "prepare":
        folder.write_text("a file, not a folder")
        with pytest.raises(JobError, match=f"cannot prepare the spilled log {folder}"):
            DiskSpill(folder, SCHEMA)
        return
    spill = DiskSpill(folder, SCHEMA)
    rows = entry(3, [Row(1, "a", 2, True)]).rows
    if doing != "write":
        spill.write(3, rows)
    shutil.rmtree(folder)
    act = {
        "write": lambda: spill.write(3, rows),
        "read": lambda: spill.read(3),
        "remove": lambda: spill.drop(3),
    }[doing]
    with pytest.raises(JobError, match=f"cannot {doing} .* {folder}/000000000003.rows"):
        act()


def test_a_damaged_file_is_a_job_error(tmp_path: Path) -> None:
    spill = DiskSpill(tmp_path, SCHEMA)
    spill.write(1, entry(1, [Row(1, "a", 2, True)]).rows)
    (tmp_path / "000000000001.rows").write_bytes(b"not rows")
    with pytest.raises(JobError, match="cannot read the spilled log"):
        spill.read(1)


def test_an_entry_that_is_held_keeps_its_rows_when_the_log_spills() -> None:
    log: EpochLog[str] = EpochLog(budget=1 << 20, spill=Memory())
    log.append(entry(1, [Row(1, "a", None, True)]))
    held = log.entry(1)
    log.budget = 1
    log.append(entry(2, [Row(2, "b", None, True)]))
    assert 1 in log.spilled
    assert [r.n for r in held.rows.records()] == [1]
