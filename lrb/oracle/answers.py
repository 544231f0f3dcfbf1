"""The answers of a run: four CSV files, how long each answer took, and what the run was.

An answers folder holds (no header lines, rows in any order, all columns integers except Emit):

    tollalerts.csv       0,VID,Time,Emit,LAV,Toll
    accidentalerts.csv   1,Time,Emit,VID,Seg
    balances.csv         2,Time,Emit,QID,ResultTime,Bal
    expenditures.csv     3,Time,Emit,QID,Bal
    latency.parquet      kind, time, latency (real seconds), a row per answer; absent at full speed
    run.json             what the run was

Emit is the moment a sink saw the answer: it differs from run to run, so it is no part of an
answer's identity. It is written and read, and left out of comparisons and of the checksum.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from raystream.errors import InputError

EMIT = "emit"


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of answer: its code in column 0, its file, its columns, its deadline."""

    code: int
    name: str
    file: str
    layout: tuple[str, ...]  #: columns after the code, in the order of the file, Emit included
    keys: tuple[str, ...]  #: the columns that say which question this answers
    deadline_s: float  #: from the release of the input tuple to the sink

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that make an answer what it is: the layout without Emit."""
        return tuple(name for name in self.layout if name != EMIT)

    @property
    def values(self) -> tuple[str, ...]:
        """The columns that are the answer itself."""
        return tuple(name for name in self.columns if name not in self.keys)

    def missed(self, seconds: npt.NDArray[Any]) -> int:
        """How many of these latencies do not show that their answer came in time: they are beyond
        the deadline, no number, or negative, as by a clock that was put back."""
        return int((~((seconds >= 0) & (seconds <= self.deadline_s))).sum())


TOLL = Kind(0, "toll", "tollalerts.csv", ("vid", "time", EMIT, "lav", "toll"), ("vid", "time"), 5.0)
ALERT = Kind(1, "alert", "accidentalerts.csv", ("time", EMIT, "vid", "seg"), ("time", "vid"), 5.0)
BALANCE = Kind(
    2, "balance", "balances.csv", ("time", EMIT, "qid", "result_time", "bal"), ("time", "qid"), 5.0
)
EXPENDITURE = Kind(
    3, "expenditure", "expenditures.csv", ("time", EMIT, "qid", "bal"), ("time", "qid"), 10.0
)
KINDS = (TOLL, ALERT, BALANCE, EXPENDITURE)

#: Answers by kind. A table has the columns of its kind as int64, and may have Emit as float64.
Answers = Mapping[Kind, pa.Table]

LATENCY_FILE = "latency.parquet"
LATENCY_SCHEMA = pa.schema([("kind", pa.int8()), ("time", pa.int32()), ("latency", pa.float32())])
RUN_FILE = "run.json"


def table(kind: Kind, **columns: Any) -> pa.Table:
    """A table of answers of one kind from its columns, given by name (no rows if none is given)."""
    columns = columns or {name: [] for name in kind.columns}
    return pa.table({name: pa.array(columns[name], pa.int64()) for name in kind.columns})


# ---- files ------------------------------------------------------------------------------------


def read(folder: Path) -> dict[Kind, pa.Table]:
    """Read the four files. Raises InputError naming file and line of the first malformed row."""
    if not folder.is_dir():
        raise InputError(
            f"there is no answers folder {folder}", hint="write one with: python -m lrb run"
        )
    return {kind: _read_file(kind, folder / kind.file) for kind in KINDS}


def write(folder: Path, answers: Answers) -> None:
    """Write the four files. Answers without an Emit column get -1 ("not defined")."""
    folder.mkdir(parents=True, exist_ok=True)
    options = pacsv.WriteOptions(include_header=False, quoting_style="none")
    for kind in KINDS:
        rows = answers[kind]
        columns = {"kind": pa.array(np.full(rows.num_rows, kind.code, np.int64))}
        columns |= {name: rows[name] for name in kind.columns}
        columns[EMIT] = _emit_text(rows)
        ordered = pa.table(columns).select(["kind", *kind.layout])
        pacsv.write_csv(ordered, folder / kind.file, options)


def read_latency(folder: Path) -> pa.Table | None:
    """Kind, time and latency (real seconds) of every answer; None for a run at full speed."""
    path = folder / LATENCY_FILE
    if not path.exists():
        return None
    try:
        return pq.read_table(path, columns=LATENCY_SCHEMA.names).cast(LATENCY_SCHEMA)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path} is not a table of latencies: {_first_line(error)}") from error


def read_run(folder: Path) -> dict[str, Any]:
    """What the run was (run.json)."""
    path = folder / RUN_FILE
    try:
        run = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}", hint="a run that ended well has written it"
        ) from error
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}") from error
    if not isinstance(run, dict) or run.get("format") != 1:
        raise InputError(f'{path} does not describe a run: it has no "format": 1')
    return run


def _read_file(kind: Kind, path: Path) -> pa.Table:
    names = ["kind", *kind.layout]
    types = {name: pa.float64() if name == EMIT else pa.int64() for name in names}
    try:
        if not _has_rows(path):
            return table(kind).append_column(EMIT, pa.array([], pa.float64()))
        rows = pacsv.read_csv(
            path,
            pacsv.ReadOptions(column_names=names),
            convert_options=pacsv.ConvertOptions(column_types=types, null_values=[]),
        )
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror or error}",
            hint="an answers folder has one file for each kind of answer, empty ones too",
        ) from error
    except pa.ArrowException as error:
        raise _malformed(kind, path, _first_line(error)) from error
    if pc.any(pc.not_equal(rows["kind"], kind.code)).as_py():
        raise _malformed(kind, path, f"a row does not begin with {kind.code}")
    return rows.drop_columns("kind")


def _has_rows(path: Path) -> bool:
    """Whether there is anything but white space (Arrow takes an empty file for an error)."""
    with path.open("rb") as file:
        return any(line.strip() for line in file)


def _malformed(kind: Kind, path: Path, otherwise: str) -> InputError:
    """Arrow's messages count rows inside of a block, so look for the line once more, slowly."""
    shape = ",".join([str(kind.code), *kind.layout])
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if line.strip() and not _is_row(kind, line.strip()):
                found = line.strip()[:80]
                return InputError(f"{path}:{number}: expected {shape}, found {found!r}")
    return InputError(f"{path}: expected {shape} in every row: {otherwise}")


def _is_row(kind: Kind, line: str) -> bool:
    fields = line.split(",")
    if len(fields) != 1 + len(kind.layout):
        return False
    try:
        named = dict(zip(("kind", *kind.layout), fields, strict=True))
        float(named.pop(EMIT))
        numbers = [int(field) for field in named.values()]
    except ValueError:
        return False
    return numbers[0] == kind.code and all(-(2**63) <= number < 2**63 for number in numbers)


def _emit_text(rows: pa.Table) -> pa.Array:
    """Emit with three decimals; -1 where it is not defined."""
    if EMIT not in rows.column_names:
        return pa.array(["-1"] * rows.num_rows, pa.string())
    emit = rows[EMIT]
    text = pc.cast(pc.cast(pc.round(emit, 3), pa.decimal128(18, 3), safe=False), pa.string())
    return pc.if_else(pc.less(emit, 0), "-1", text)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


# ---- checksum ---------------------------------------------------------------------------------


def checksum(answers: Answers) -> str:
    """16 hexadecimal digits that depend on the answers as a multiset, not on their order.

    Each answer is hashed to 64 bits, and the hashes are added modulo 2**64: a sum, and not an
    exclusive or, so that an answer given twice shows. The hash of an answer starts from the code
    of its kind and takes in its columns in the order of the file (Emit left out), as signed
    64-bit integers, each by one step of the splitmix64 finaliser: h = mix(h ^ column).
    """
    total = sum(int(hashes.sum(dtype=np.uint64)) for hashes in row_hashes(answers))
    return f"{total % 2**64:016x}"


def row_hashes(answers: Answers) -> Iterator[npt.NDArray[np.uint64]]:
    """The 64-bit hash of every answer, one array per kind."""
    for kind in KINDS:
        rows = answers[kind]
        yield hashes(kind, {name: rows[name].to_numpy() for name in kind.columns})


def hashes(kind: Kind, columns: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[np.uint64]:
    """The 64-bit hash of every answer of one kind, from the columns of that kind."""
    result: npt.NDArray[np.uint64] = np.full(len(columns["time"]), kind.code, np.uint64)
    result = _mix(result)
    for name in kind.columns:
        result = _mix(result ^ columns[name].astype(np.int64).view(np.uint64))
    return result


def _mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """One step of splitmix64 (Steele, Lea, Flood 2014); wraps modulo 2**64."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def counts(answers: Answers) -> dict[str, int]:
    """How many answers there are of each kind, by the kind's name."""
    return {kind.name: answers[kind].num_rows for kind in KINDS}


def positive_tolls(answers: Answers) -> int:
    """How many notifications announce a toll above zero."""
    return int(pc.sum(pc.greater(answers[TOLL]["toll"], 0)).as_py() or 0)
