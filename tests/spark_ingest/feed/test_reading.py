"""Seconds of prepared rows, as they are pushed."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa

from spark_ingest import layout
from spark_ingest.feed.reading import rows_between
from spark_ingest.feed.rows import MARK, PUSHED, mark, pushed
from tests.lrb.random_traffic import random_traffic
from tests.lrb.running import prepare


def test_all_rows_are_read_once_and_in_order_whatever_the_cuts(tmp_path: Path) -> None:
    rows, _ = random_traffic(seed=2, roads=1, cars=30)
    data = prepare(tmp_path, rows)
    meta = layout.read_meta(data)
    cuts = [meta.first, meta.first + 1, 100, 101, meta.last + 1]
    read = 0
    for split in range(meta.splits):
        (whole,) = rows_between(data, split, 0, meta.last + 1)
        pieces = [
            part for begin, end in pairwise(cuts) for part in rows_between(data, split, begin, end)
        ]
        assert pa.concat_tables(pieces).equals(whole)
        read += whole.num_rows
    assert read == len(rows)


def test_a_pushed_row_says_when_it_is_due_and_a_mark_what_has_come(tmp_path: Path) -> None:
    rows, _ = random_traffic(seed=2, roads=1, cars=5)
    data = prepare(tmp_path, rows)
    (whole,) = rows_between(data, 0, 0, 10_000)
    table = pushed(whole)
    assert table.schema == PUSHED == mark(3, 4).schema
    slots = whole["slot"].to_numpy()
    assert (table["release"].to_numpy() == whole["time"].to_numpy() * 20 + slots).all()
    (row,) = mark(70, 5_000).to_pylist()
    assert (row["type"], row["time"], row["release"], row["vid"], row["due"]) == (
        MARK, 70, 1400, -1, 5_000,
    )  # fmt: skip
