"""Prepares published Linear Road files: checks every row, sorts, cuts, writes the layout.

Two passes over the input. The first (`survey`) parses and checks all rows by themselves, so it
knows every bad line, how many lines each piece has (hence the number of every line in its file) and
how many rows each minute has (hence how to cut the output). The second brings the good rows to
their parts; there all rows of a car in a minute are together, so that is where repeated ones are
found.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from raystream.errors import ConfigError
from spark_ingest import layout, store
from spark_ingest.progress import Progress, silent
from spark_ingest.published.origins import Found, quarantine, refuse
from spark_ingest.published.past import write_history
from spark_ingest.published.pieces import pieces
from spark_ingest.published.rules import Bad, check_rows, repeated_rows, used_columns
from spark_ingest.published.survey import Format, OnBadRow, Survey, survey
from spark_ingest.spark import jobs, shuffle
from spark_ingest.spark.session import spark_session
from spark_ingest.summary import Summary
from spark_ingest.tables import rows_table

FORMAT = Format(layout.PUBLISHED, check_rows)


def prepare(
    inputs: Sequence[Path],
    out: Path,
    *,
    history: Path | None = None,
    on_bad_row: OnBadRow = "fail",
    spark: SparkSession | None = None,
    progress: Progress = silent,
) -> Summary:
    """Write published files (plain or gzipped, one or several, in any order of time) to `out`.

    Without `history` there is no toll history: every daily expenditure is 0. `on_bad_row` says
    whether the first bad row ends the preparation or bad rows are listed in `quarantine.csv`.
    `spark` is a session to use; by default one is started and ended.

    Raises `InputError` for input that is missing, empty, unreadable or bad, with file, line and
    reason; `ConfigError` for a folder that cannot be written to; `JobError` if Spark fails.
    """
    started = time.monotonic()
    _check(inputs, out, history, on_bad_row)
    store.reserve(out)
    progress("starting Spark", 0, 0)
    with nullcontext(spark) if spark else spark_session("prepare") as session:
        seen = survey(session, inputs, FORMAT, on_bad_row, progress)
        with store.cleared(out) as data:
            counts, repeated = _write_rows(session, data, seen, on_bad_row, progress)
            findings = [Found(seen.bad.origins, seen.bad.bad + repeated)]
            history_rows = 0
            if history is not None:
                history_rows, found = write_history(session, data, history, on_bad_row, progress)
                findings.append(found)
            with store.unwritable(data):
                aside = quarantine(layout.quarantine_file(data), findings)
            meta = store.finish(data, kind="prepared", counts=counts, history_rows=history_rows)
    return Summary(data, meta, quarantined=aside, elapsed=time.monotonic() - started)


def _check(inputs: Sequence[Path], out: Path, history: Path | None, on_bad_row: str) -> None:
    """What can be said at once, before Spark starts and the output is cleared."""
    if not inputs:
        raise ConfigError("There is no input file.", hint="Name one or several with --input.")
    if on_bad_row not in ("fail", "quarantine"):
        raise ConfigError(f"--on-bad-row {on_bad_row} is neither fail nor quarantine.")
    for number, path in enumerate(inputs):
        if path.resolve() in (earlier.resolve() for earlier in inputs[:number]):
            raise ConfigError(f"The input {path} is given twice.")
    files = [*inputs, history] if history else list(inputs)
    for path in files:
        if out.resolve() in path.resolve().parents:
            raise ConfigError(
                f"The input {path} lies in the output folder {out}, which is cleared."
            )
    pieces(files)


@dataclass(frozen=True, slots=True)
class _Written:
    """What one task wrote, and which rows it left out."""

    tally: store.Tally | None
    """None if no row was left."""
    repeated: list[Bad]

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> _Written:
        fields = json.loads(data)
        tally = store.Tally(**fields["tally"]) if fields["tally"] else None
        return cls(tally, [Bad(**row) for row in fields["repeated"]])


def _write_rows(
    spark: SparkSession, data: Path, seen: Survey, on_bad_row: OnBadRow, progress: Progress
) -> tuple[store.Tally, list[Bad]]:
    parts = shuffle.Parts.cut(seen.per_minute, layout.SPLITS, store.PART_ROWS_MAX)
    origins = seen.bad.origins

    def read(piece: int) -> Iterator[pa.RecordBatch]:
        for columns in seen.good(piece, FORMAT):
            rows = rows_table(used_columns(columns))
            rows = rows.append_column("line", pa.array(columns["line"]))
            part = parts.number(columns["time"], layout.split(columns["vid"]))
            yield from shuffle.cells(rows, part)

    def finish(part: int, rows: pa.Table) -> bytes:
        rows = store.sort(rows)
        reasons = repeated_rows(rows, origins.place)
        repeated = [_bad(rows, index, reason) for index, reason in reasons.items()]
        rows = _without(rows.drop_columns("line"), reasons)
        if rows.num_rows:
            store.write_rows(data, *parts.span_and_split(part), rows)
        return _Written(store.tally(rows) if rows.num_rows else None, repeated).encode()

    frame = spark.range(0, len(seen.pieces), 1, len(seen.pieces))
    results = jobs.run(
        spark,
        "sorting and writing rows",
        lambda: shuffle.gather(shuffle.spread(frame, read), len(parts), finish),
        progress,
    )
    written = [_Written.decode(result) for result in results]
    repeated = [row for part in written for row in part.repeated]
    if on_bad_row == "fail":
        refuse(Found(origins, repeated))
    return store.merge(part.tally for part in written if part.tally), repeated


def _bad(rows: pa.Table, index: int, reason: str) -> Bad:
    row = rows.slice(index, 1).to_pylist()[0]
    return Bad(row["line"], reason, ",".join(str(row[name]) for name in layout.PUBLISHED))


def _without(rows: pa.Table, indexes: dict[int, str]) -> pa.Table:
    if not indexes:
        return rows
    keep = np.ones(rows.num_rows, dtype=bool)
    keep[list(indexes)] = False
    return rows.filter(pa.array(keep))
