from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raystream.errors import InputError
from spark_ingest import layout

VIDS = st.integers(0, 2**31 - 1)
META = layout.Meta(
    kind="generated", xways=1, seconds=60, first=0, last=1, seed=7,
    rows={"0": 3, "2": 1, "3": 0, "4": 0}, vehicles=102, history_rows=138, per_second=[1, 3],
)  # fmt: skip


@given(st.lists(VIDS, min_size=1), st.integers(1, 64))
def test_arrays_and_single_vids_agree(vids: list[int], splits: int) -> None:
    array = np.array(vids, dtype=np.int64)
    assert layout.slot(array).tolist() == [layout.slot(vid) for vid in vids]
    assert layout.split(array, splits).tolist() == [layout.split(vid, splits) for vid in vids]


@given(VIDS)
def test_slot_and_split_are_as_the_contract_says(vid: int) -> None:
    mixed = vid * 2654435761 % 2**32
    assert layout.slot(vid) == (mixed >> 16) % 20
    assert layout.split(vid) == (mixed >> 8) % 4


def test_neighbouring_vids_spread_evenly() -> None:
    vids = np.arange(100, 100_100)
    assert np.ptp(np.bincount(layout.slot(vids), minlength=layout.SLOTS)) < 300
    assert np.ptp(np.bincount(layout.split(vids), minlength=layout.SPLITS)) < 1_000


def test_meta_survives_the_disk(tmp_path: Path) -> None:
    layout.write_meta(tmp_path, META)
    assert layout.read_meta(tmp_path) == META
    assert META.rows_total == 4
    assert [path.name for path in tmp_path.iterdir()] == ["meta.json"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "damaged"),
        ("[]", "format"),
        (json.dumps({"format": 2}), "format"),
        (json.dumps({"format": 1}), "lacks kind"),
    ],
)
def test_damaged_meta_is_named(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(InputError, match=says):
        layout.read_meta(tmp_path)


def test_missing_and_unfinished_folders_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        layout.read_meta(tmp_path / "nothing")
    with pytest.raises(InputError, match="not finished"):
        layout.read_meta(tmp_path)


def test_files_come_in_order_of_time(tmp_path: Path) -> None:
    folder = layout.rows_folder(tmp_path, 3)
    folder.mkdir(parents=True)
    for number in (2, 0, 1):
        (folder / layout.file_name(number)).touch()
    assert [path.name for path in layout.row_files(tmp_path, 3)] == [
        "00000.parquet",
        "00001.parquet",
        "00002.parquet",
    ]
    assert layout.row_files(tmp_path, 0) == []
