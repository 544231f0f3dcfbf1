"""The prepared data: names, schemas, order, slots, splits and the description in `meta.json`.

    data/
      meta.json                        written last: a folder without it is unfinished
      rows/split-00/00000.parquet ...  the rows of a split's VIDs; files follow in time
      history/00000.parquet ...        one toll per (VID, day, expressway)
      quarantine.csv                   rows that were put aside, if there were any

This module is the only place that says so. It does not import Spark: readers stay light.

Slot and split are functions of the VID alone. So a car's rows stay in one split and in one slot of
their second, and a request never overtakes the position report that it follows.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from raystream.errors import InputError

FORMAT = 1
SPLITS = 4
SLOTS = 20
"""Slots in a second: a row is due `slot / SLOTS` seconds into its second."""

REPORT, BALANCE, EXPENDITURE, TRAVEL_TIME = 0, 2, 3, 4
TYPES = (REPORT, BALANCE, EXPENDITURE, TRAVEL_TIME)
SEGMENTS_PER_MINUTE_MAX = 4
"""Segments from which a car can report within one minute; five would be 240 mph."""
UNUSED = -1
"""What a field holds that its type of row does not use."""

PUBLISHED = (
    "type", "time", "vid", "spd", "xway", "lane", "dir", "seg", "pos",
    "qid", "s_init", "s_end", "dow", "tod", "day",
)  # fmt: skip
"""The fifteen columns of the published files, in their order."""

_WIDTHS = {
    "type": pa.int8(), "time": pa.int32(), "vid": pa.int32(), "spd": pa.int16(),
    "xway": pa.int16(), "lane": pa.int8(), "dir": pa.int8(), "seg": pa.int16(),
    "pos": pa.int32(), "qid": pa.int32(), "s_init": pa.int16(), "s_end": pa.int16(),
    "dow": pa.int16(), "tod": pa.int16(), "day": pa.int16(), "slot": pa.int8(),
}  # fmt: skip

ROWS = pa.schema([pa.field(name, _WIDTHS[name], nullable=False) for name in (*PUBLISHED, "slot")])
"""Columns of the files under `rows/`."""

HISTORY = pa.schema(
    [
        pa.field("vid", pa.int32(), nullable=False),
        pa.field("day", pa.int16(), nullable=False),
        pa.field("xway", pa.int16(), nullable=False),
        pa.field("toll", pa.int32(), nullable=False),
    ]
)
"""Columns of the files under `history/`; (vid, day, xway) is unique."""

ORDER = ("time", "slot", "type", "vid", "qid")
"""Rows of a file are sorted by these columns."""

ROW_GROUP_ROWS_MAX = 65_536

_MULTIPLIER = 2_654_435_761  # 2**32 over the golden ratio: neighbouring VIDs fall far apart
_MASK = 0xFFFF_FFFF

Vids = TypeVar("Vids", int, npt.NDArray[np.int64])
"""One VID, or an int64 array of VIDs; at least 0 and below 2**31."""


def slot(vid: Vids) -> Vids:
    """The slot, 0 to 19, in which a car's rows are due inside their second."""
    return ((vid * _MULTIPLIER & _MASK) >> 16) % SLOTS


def split(vid: Vids, splits: int = SPLITS) -> Vids:
    """The split, 0 to `splits - 1`, that holds a car's rows."""
    return ((vid * _MULTIPLIER & _MASK) >> 8) % splits


_HASH_SQL = f"(cast(vid as bigint) * {_MULTIPLIER}L & {_MASK}L)"


def slot_sql() -> str:
    """`slot` as a Spark SQL expression over the column `vid`."""
    return f"cast(shiftright({_HASH_SQL}, 16) % {SLOTS} as tinyint)"


def split_sql(splits: int = SPLITS) -> str:
    """`split` as a Spark SQL expression over the column `vid`."""
    return f"cast(shiftright({_HASH_SQL}, 8) % {splits} as int)"


def rows_folder(data: Path, split: int) -> Path:
    """Where the files of one split are."""
    return data / "rows" / f"split-{split:02d}"


def history_folder(data: Path) -> Path:
    """Where the files of the toll history are."""
    return data / "history"


def quarantine_file(data: Path) -> Path:
    """Where rows that were put aside are listed."""
    return data / "quarantine.csv"


def file_name(number: int) -> str:
    """The name of the `number`th file of a folder."""
    return f"{number:05d}.parquet"


def row_files(data: Path, split: int) -> list[Path]:
    """The files of one split, in order of time. A split without rows has none."""
    return sorted(rows_folder(data, split).glob("*.parquet"))


def history_files(data: Path) -> list[Path]:
    """The files of the toll history; none where no history was given."""
    return sorted(history_folder(data).glob("*.parquet"))


@dataclass(frozen=True, slots=True)
class Meta:
    """What a prepared folder holds, as `meta.json` says it."""

    kind: str
    """`generated` or `prepared`."""
    xways: int
    """Expressways are numbered 0 to `xways - 1`."""
    seconds: int
    """Seconds from second 0 to the last row, or as asked of the generator."""
    first: int
    """Time of the first row."""
    last: int
    """Time of the last row."""
    seed: int | None
    rows: dict[str, int]
    """Rows by type: keys "0", "2", "3", "4"."""
    vehicles: int
    """The largest VID, plus one."""
    history_rows: int
    per_second: list[int]
    """Rows of second `first`, `first + 1`, ... `last`."""
    splits: int = SPLITS
    slots: int = SLOTS
    format: int = FORMAT

    @property
    def rows_total(self) -> int:
        """Rows of all types."""
        return sum(self.rows.values())


def read_meta(data: Path) -> Meta:
    """The description of a prepared folder.

    Raises `InputError` if the folder is missing, unfinished, of another format or damaged.
    """
    path = data / "meta.json"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        what = "is not finished, or not prepared data" if data.is_dir() else "does not exist"
        raise InputError(f"{data} {what}: there is no {path}", hint=_REMEDY) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}", hint=_REMEDY) from None
    return _parse_meta(path, text)


def write_meta(data: Path, meta: Meta) -> None:
    """Finish a prepared folder: its description appears whole or not at all."""
    fresh = data / "meta.json.new"
    fresh.write_text(json.dumps(asdict(meta)) + "\n", encoding="utf-8")
    os.replace(fresh, data / "meta.json")


_REMEDY = "Write it with: python -m spark_ingest generate --help, or prepare --help"


def _parse_meta(path: Path, text: str) -> Meta:
    try:
        found: Any = json.loads(text)
    except ValueError as error:
        raise InputError(f"{path} is damaged: {error}", hint=_REMEDY) from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise InputError(f"{path} is not of format {FORMAT}", hint=_REMEDY)
    missing = [field.name for field in fields(Meta) if field.name not in found]
    if missing:
        raise InputError(f"{path} lacks {', '.join(missing)}", hint=_REMEDY)
    return Meta(**{field.name: found[field.name] for field in fields(Meta)})
