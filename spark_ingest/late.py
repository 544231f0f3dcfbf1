"""Cuts the last part of prepared data out, as prepared data of their own. Needs no Spark."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raystream.errors import InputError
from spark_ingest import layout, store


def cut_late(data: Path, out: Path, *, seconds: int) -> layout.Meta:
    """Write the rows of the last `seconds` of `data`, with the whole toll history, to `out`.

    Times stay as they are. In `meta.json` expressways, seconds and seed are those of `data`, and
    `first` and `last` say which part it is.

    Raises `InputError` if `data` is not prepared or has no rows so late, `ConfigError` if `out`
    cannot be written to.
    """
    meta = layout.read_meta(data)
    store.reserve(out)
    with store.cleared(out) as target, store.unwritable(out):
        counts = list(_copy_rows(data, target, meta, meta.seconds - seconds))
        if not counts:
            raise InputError(f"{data} has no rows in the last {seconds} of its {meta.seconds} s")
        for number, path in enumerate(layout.history_files(data)):
            shutil.copyfile(path, layout.history_folder(target) / layout.file_name(number))
        return store.finish(
            target, kind=meta.kind, counts=store.merge(counts), history_rows=meta.history_rows,
            seed=meta.seed, xways=meta.xways, seconds=meta.seconds,
        )  # fmt: skip


def _copy_rows(data: Path, target: Path, meta: layout.Meta, first: int) -> Iterator[store.Tally]:
    """Write the rows from second `first` on; what was written, by file."""
    for split in range(meta.splits):
        for number, path in enumerate(layout.row_files(data, split)):
            rows = _late_rows(path, first)
            if rows.num_rows:
                store.write_rows(target, number, split, rows)
                yield store.tally(rows)


def _late_rows(path: Path, first: int) -> pa.Table:
    try:
        rows = pq.read_table(path, partitioning=None, filters=pc.field("time") >= first)
    except (OSError, pa.ArrowException) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    return rows.cast(layout.ROWS)
