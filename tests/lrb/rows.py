"""Makes prepared input for tests: rows written by hand, as a folder of Parquet files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from spark_ingest import layout

#: Fifteen integers in the order of the published files.
Row = tuple[int, ...]
#: vid, day, xway, toll.
Charge = tuple[int, int, int, int]

FEET = 5280


def report(
    time: int,
    vid: int,
    seg: int,
    *,
    spd: int = 50,
    lane: int = 1,
    dir: int = 0,
    xway: int = 0,
    feet: int = 0,
) -> Row:
    """A position report, `feet` into its segment."""
    return (0, time, vid, spd, xway, lane, dir, seg, seg * FEET + feet, *[-1] * 6)


def balance(time: int, vid: int, qid: int) -> Row:
    """A question for a balance."""
    return (2, time, vid, *[-1] * 6, qid, *[-1] * 5)


def expenditure(time: int, vid: int, qid: int, day: int, *, xway: int = 0) -> Row:
    """A question for what was spent on a day."""
    return (3, time, vid, -1, xway, *[-1] * 4, qid, *[-1] * 4, day)


def travel_time(time: int, vid: int, qid: int) -> Row:
    """A question that nobody answers."""
    return (4, time, vid, -1, 0, *[-1] * 4, qid, 0, 0, 0, 0, -1)


def shifted(rows: Iterable[Row], *, xway: int, vid: int, qid: int) -> list[Row]:
    """The same rows on another expressway, by other cars: so several worlds make one input."""
    moved = []
    for row in rows:
        new = list(row)
        new[2] += vid
        new[4] = xway if row[4] >= 0 else row[4]
        new[9] += qid if row[9] >= 0 else 0
        moved.append(tuple(new))
    return moved


def write_prepared(data: Path, rows: Sequence[Row], history: Sequence[Charge] = ()) -> Path:
    """Write rows as `spark_ingest prepare` would, without Spark; returns the folder."""
    columns = {
        name: np.array([row[i] for row in rows], np.int64)
        for i, name in enumerate(layout.PUBLISHED)
    }
    columns["slot"] = layout.slot(columns["vid"])
    order = np.lexsort([columns[name] for name in reversed(layout.ORDER)])
    table = pa.table({name: columns[name][order] for name in layout.ROWS.names}).cast(layout.ROWS)
    split = layout.split(columns["vid"])[order]
    for number in range(layout.SPLITS):
        folder = layout.rows_folder(data, number)
        folder.mkdir(parents=True)
        pq.write_table(table.filter(split == number), folder / layout.file_name(0))
    if history:
        layout.history_folder(data).mkdir()
        charges = [dict(zip(layout.HISTORY.names, charge, strict=True)) for charge in history]
        charged = pa.Table.from_pylist(charges, schema=layout.HISTORY)
        pq.write_table(charged, layout.history_folder(data) / layout.file_name(0))
    layout.write_meta(data, _meta(rows, len(history)))
    return data


def _meta(rows: Sequence[Row], history_rows: int) -> layout.Meta:
    times = Counter(row[1] for row in rows)
    types = Counter(row[0] for row in rows)
    return layout.Meta(
        kind="prepared",
        xways=1 + max(row[4] for row in rows),
        seconds=max(times) + 1,
        first=min(times),
        last=max(times),
        seed=None,
        rows={str(kind): types[kind] for kind in layout.TYPES},
        vehicles=1 + max(row[2] for row in rows),
        history_rows=history_rows,
        per_second=[times[second] for second in range(min(times), max(times) + 1)],
    )
