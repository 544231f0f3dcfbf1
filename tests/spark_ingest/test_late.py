"""The last part of prepared data, as data of their own."""

from __future__ import annotations

import errno
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lrb.query.source import look_through
from raystream.errors import ConfigError, InputError
from spark_ingest.late import cut_late
from spark_ingest.layout import history_files, row_files
from tests.lrb.rows import balance, report, write_prepared


def test_the_last_seconds_are_cut_out(tmp_path: Path) -> None:
    rows = [report(t, vid, 3) for vid in range(1, 20) for t in range(0, 91, 30)]
    whole = write_prepared(tmp_path / "whole", [*rows, balance(60, 5, 1)], [(5, 1, 0, 37)])
    meta = cut_late(whole, tmp_path / "late", seconds=31)
    assert (meta.first, meta.last, meta.seconds) == (60, 90, 91)
    assert meta.rows == {"0": 38, "2": 1, "3": 0, "4": 0}
    assert (meta.per_second[0], meta.per_second[30], sum(meta.per_second)) == (20, 19, 39)
    late = look_through(tmp_path / "late")  # it holds what its description says
    assert late.meta == meta
    for split in range(meta.splits):
        (before,) = row_files(whole, split)
        times = [time for time in pq.read_table(before)["time"].to_pylist() if time >= 60]
        found = [
            t for f in row_files(late.folder, split) for t in pq.read_table(f)["time"].to_pylist()
        ]
        assert found == times
    (history,) = history_files(late.folder)
    assert pq.read_table(history).num_rows == 1


def test_nothing_so_late_is_refused(tmp_path: Path) -> None:
    whole = write_prepared(tmp_path / "whole", [report(0, 1, 3)])
    with pytest.raises(InputError, match="no rows in the last 0"):
        cut_late(whole, tmp_path / "late", seconds=0)
    assert not (tmp_path / "late" / "meta.json").exists()


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("spark_ingest.store.write_rows", write)
    whole = write_prepared(tmp_path / "whole", [report(0, 1, 3)])
    with pytest.raises(ConfigError, match="late cannot be written to: No space left on device"):
        cut_late(whole, tmp_path / "late", seconds=1)
    assert list((tmp_path / "late").iterdir()) == []
