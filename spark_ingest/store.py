"""Writes the output folder: one file of rows for each part, the history, and then `meta.json`."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from raystream.errors import ConfigError
from spark_ingest import layout

PART_ROWS_MAX = 500_000
"""Rows of a part as planned: about 20 MB as Arrow, sorted in memory by one task."""

_TIME_BITS_LOW = 39  # below the time: 5 bits of slot, 3 of type, 31 of VID


def reserve(data: Path) -> None:
    """Make sure that a folder can be written to, so that this is not found out after the work.

    Raises `ConfigError` if it cannot, or if it holds anything but prepared data.
    """
    with unwritable(data):
        data.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=data):
            pass
        foreign = sorted(_foreign(data))
    if foreign:
        raise ConfigError(
            f"{data} is not empty, and {foreign[0]} in it is not prepared data.",
            hint="Name an empty folder, a new one, or one that was prepared before.",
        )


@contextmanager
def cleared(data: Path) -> Iterator[Path]:
    """A reserved folder without earlier output; if the block fails, nothing of ours stays in it.

    Yields its absolute path. Raises `ConfigError` if somebody else is in such a block with it.
    """
    data = data.absolute()
    with _alone(data):
        with unwritable(data):
            _clear(data)
            for folder in (data / "rows", layout.history_folder(data)):
                folder.mkdir()
        try:
            yield data
        except BaseException:
            _clear(data)
            raise


@contextmanager
def _alone(data: Path) -> Iterator[None]:
    """Holds a lock on a folder: files of two runs would come to lie in it side by side."""
    with unwritable(data):
        handle = os.open(data, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise ConfigError(
            f"Another process is writing to {data}.",
            hint="Name another folder with --out, or wait until it has ended.",
        ) from None
    except OSError:
        pass  # there are file systems without locks
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def unwritable(data: Path) -> Iterator[None]:
    """Around what is written to a folder; raises `ConfigError` if the system refuses it."""
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"{data} cannot be written to: {error.strerror}.",
            hint="Name another folder with --out.",
        ) from None


_OURS = ("meta.json", "meta.json.new", "rows", "history", "quarantine.csv")
_OUR_FILES = re.compile(r"(split-\d+/)?\d+\.(parquet|new-\d+)")
"""Below `rows` and `history`."""


def _foreign(data: Path) -> Iterator[str]:
    """What is in a folder, and no prepared data: `_clear` must not find it there."""
    for path in data.iterdir():
        if path.name not in _OURS:
            yield path.name
        elif path.is_dir():
            files = (file.relative_to(path) for file in path.rglob("*") if not file.is_dir())
            yield from (
                f"{path.name}/{file}" for file in files if not _OUR_FILES.fullmatch(file.as_posix())
            )


def _clear(data: Path) -> None:
    for name in _OURS:  # what says "finished" goes first
        path = data / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts over some rows."""

    first: int
    """Time of the first row."""
    per_second: list[int]
    """Rows of second `first` and of those that follow."""
    rows: list[int]
    """Rows by type, in the order of `layout.TYPES`."""
    vehicles: int
    """The largest VID, plus one."""
    xways: int
    """The largest expressway, plus one."""

    @property
    def last(self) -> int:
        """Time of the last row."""
        return self.first + len(self.per_second) - 1

    def encode(self) -> bytes:
        """As bytes, for the way back from a task."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> Tally:
        """What `encode` was given."""
        return cls(**json.loads(data))


def tally(rows: pa.Table) -> Tally:
    """Counts over `rows`, of which there is at least one."""
    time, kind = rows["time"].to_numpy(), rows["type"].to_numpy()
    first = int(time.min())
    by_type = np.bincount(kind, minlength=max(layout.TYPES) + 1)
    return Tally(
        first=first,
        per_second=np.bincount(time - first).tolist(),
        rows=[int(by_type[number]) for number in layout.TYPES],
        vehicles=int(rows["vid"].to_numpy().max()) + 1,
        xways=max(int(rows["xway"].to_numpy().max()) + 1, 1),
    )


def merge(tallies: Iterable[Tally]) -> Tally:
    """Counts over all the rows that were counted apart; at least one tally."""
    found = list(tallies)
    first = min(part.first for part in found)
    per_second = np.zeros(max(part.last for part in found) - first + 1, dtype=np.int64)
    for part in found:
        begin = part.first - first
        per_second[begin : begin + len(part.per_second)] += part.per_second
    return Tally(
        first=first,
        per_second=per_second.tolist(),
        rows=np.sum([part.rows for part in found], axis=0).tolist(),
        vehicles=max(part.vehicles for part in found),
        xways=max(part.xways for part in found),
    )


def sort(rows: pa.Table) -> pa.Table:
    """`rows` in `layout.ORDER`, and equal ones by column `line`, if there is one."""
    time, slot, kind, vid = (
        rows[name].to_numpy().astype(np.int64) for name in ("time", "slot", "type", "vid")
    )
    # Sorting by one packed number is several times as fast as by its parts.
    packed = time << _TIME_BITS_LOW | slot << 34 | kind << 31 | vid
    keys: list[npt.NDArray[np.int64]] = [rows["qid"].to_numpy(), packed]
    if "line" in rows.column_names:
        keys.insert(0, rows["line"].to_numpy())
    return rows.take(pa.array(np.lexsort(keys)))


def write_rows(data: Path, span: int, split: int, rows: pa.Table) -> None:
    """Write sorted rows as the file of a part; a repeated task writes the same file again."""
    _write(layout.rows_folder(data, split) / layout.file_name(span), rows)


def write_history(data: Path, number: int, rows: pa.Table) -> None:
    """Write a file of the toll history."""
    _write(layout.history_folder(data) / layout.file_name(number), rows)


def _write(path: Path, rows: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".new-{os.getpid()}")  # never seen as a file of the layout
    pq.write_table(rows, fresh, compression="lz4", row_group_size=layout.ROW_GROUP_ROWS_MAX)
    os.replace(fresh, path)


def finish(
    data: Path, *, kind: str, counts: Tally, history_rows: int, seed: int | None = None,
    xways: int | None = None, seconds: int | None = None,
) -> layout.Meta:  # fmt: skip
    """Write `meta.json`, which makes the folder whole."""
    meta = layout.Meta(
        kind=kind,
        xways=xways or counts.xways,
        seconds=seconds or counts.last + 1,
        first=counts.first,
        last=counts.last,
        seed=seed,
        rows={str(number): count for number, count in zip(layout.TYPES, counts.rows, strict=True)},
        vehicles=counts.vehicles,
        history_rows=history_rows,
        per_second=counts.per_second,
    )
    with unwritable(data):
        layout.write_meta(data, meta)
    return meta
