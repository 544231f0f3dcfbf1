"""Sources and sinks: `rs.io.parquet("rows/*.parquet", Row)` reads, `rs.io.parquet("out/")` writes.

Sources read recorded data; each file is a split, and a position in it can be read again. Columns
are the fields of the record type; what is not as declared ends with an `InputError` that names the
file and the row.

Sinks say of which `kind` they are. Files are *epoch-addressed*: what is made again after a failure
replaces itself, and readers see whole cuts only (`rs.io.parts`). Functions and the console are
*at-least-once*: after a failure they may get the same records again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar, overload

from raystream.api.batch import Batch
from raystream.errors import ConfigError
from raystream.io.columnar import ParquetFiles
from raystream.io.delimited import CsvFiles
from raystream.io.effects import Calls, Console
from raystream.io.files import absolute
from raystream.io.forms import CsvForm, CsvParts, ParquetForm, ParquetParts
from raystream.io.jsonlines import JSON_SUFFIXES, JsonForm, JsonLine, JsonParts
from raystream.io.lines import Line, TextFiles
from raystream.io.manifest import Part, merge, read_manifests
from raystream.io.memory import Records

__all__ = [
    "Line",
    "Part",
    "callable",
    "console",
    "csv",
    "iterable",
    "json",
    "parquet",
    "parts",
    "read_parts",
    "text",
]

U = TypeVar("U", bound=tuple[Any, ...])
AnyPath = str | os.PathLike[str]


@overload
def parquet(path: AnyPath, record: type[U], /) -> ParquetFiles[U]: ...
@overload
def parquet(path: AnyPath, /) -> ParquetParts: ...
def parquet(path: AnyPath, record: type[Any] | None = None, /) -> Any:
    """Parquet files: with a record type a source, without one a sink.

    Args:
        path: of a source a file, a glob pattern or a folder; of a sink the folder for its parts,
            which then belongs to it: what an earlier run left there is removed.
        record: what the rows are; columns that it does not declare are not read.
    """
    if record is not None:
        return ParquetFiles(absolute(path), record)
    return ParquetParts(Path(absolute(path)), ParquetForm())


@overload
def csv(
    path: AnyPath, record: type[U], /, *, header: bool = True, delimiter: str = ","
) -> CsvFiles[U]: ...
@overload
def csv(path: AnyPath, /, *, header: bool = True, delimiter: str = ",") -> CsvParts: ...
def csv(
    path: AnyPath, record: type[Any] | None = None, /, *, header: bool = True, delimiter: str = ","
) -> Any:
    """CSV files: with a record type a source (also `.csv.gz`), without one a sink.

    Args:
        path: of a source a file, a glob pattern or a folder; of a sink the folder for its parts,
            which then belongs to it: what an earlier run left there is removed.
        record: what the rows are: columns by name where there is a header, else by position.
        header: whether the first line of a file names the columns.
        delimiter: the one character between two values, such as `"\\t"`.
    """
    if len(delimiter.encode()) != 1 or delimiter.isalnum() or delimiter in '"\r\n\0.+-':
        raise ConfigError(
            f"csv(delimiter={delimiter!r}) cannot stand between two values",
            hint='It is one character that no number has, such as ";", "|" or "\\t".',
        )
    if record is not None:
        return CsvFiles(absolute(path), record, header, delimiter)
    return CsvParts(Path(absolute(path)), CsvForm(header, delimiter))


@overload
def json(path: AnyPath, record: type[U], /) -> TextFiles[U]: ...
@overload
def json(path: AnyPath, /) -> JsonParts: ...
def json(path: AnyPath, record: type[Any] | None = None, /) -> Any:
    """JSON Lines, an object on each line: with a record type a source (also `.gz`), without one a
    sink.

    Lists and tuples of one type are arrays; dicts, records and other tuples (of `f0`, `f1` and so
    on) are objects; bytes are text in base64; NaN and the infinite are `NaN`, `Infinity` and
    `-Infinity`, which not all programs read.

    Args:
        path: of a source a file, a glob pattern or a folder (of `.jsonl`, `.ndjson` and `.json`
            files); of a sink the folder for its parts, which then belongs to it: what an earlier
            run left there is removed.
        record: what the objects are; names that it does not declare are not read, and a field that
            an object does not have is its default, or None where that may be.
    """
    if record is not None:
        return TextFiles(absolute(path), record, JsonLine(record), JSON_SUFFIXES)
    return JsonParts(Path(absolute(path)), JsonForm())


@overload
def text(path: AnyPath, /) -> TextFiles[Line]: ...
@overload
def text(path: AnyPath, record: type[U], parse: Callable[[str], U | None], /) -> TextFiles[U]: ...
def text(
    path: AnyPath, record: type[Any] = Line, parse: Callable[[str], Any] | None = None, /
) -> Any:
    """Lines of text files (also `.gz`) as a source.

    Args:
        path: a file, a glob pattern, or a folder (of `.txt` and `.log` files).
        record: what `parse` makes of a line; `rs.io.Line` unless given.
        parse: makes a record of a line without its end, or None to leave it out; what it raises is
            a fault of the input.
    """
    if parse is None and record is not Line:
        raise ConfigError(
            f"text() was not told how a line becomes a {record.__name__}",
            hint=f"rs.io.text(path, {record.__name__}, parse), where parse takes a line and returns"
            " a record; or rs.io.text(path) for the lines as they are.",
        )
    return TextFiles(absolute(path), record, parse)


def iterable(
    records: Iterable[U] | Callable[[], Iterable[U]], record: type[U], /, *, splits: int = 1
) -> Records[U]:
    """Records that are at hand in Python as a source.

    Args:
        records: a list or another collection that can be read again in the same order, or a
            function that returns a new iterator over the same records every time.
        record: their type.
        splits: how many parts can be read independently; split i has every nth record.
    """
    return Records(records, record, splits)


def callable(function: Callable[[Any], object], /, *, each: bool = False) -> Calls:
    """A sink that calls a function with every `rs.Batch`, or with `each` every record.

    At least once: after a failure the function may be called again with the same records. It is
    called in the process of the sink's instance.
    """
    return Calls(function, each)


def console(*, limit: int = 20) -> Console:
    """A sink that prints records: at most `limit` between two cuts, and how many it left out.

    At least once: after a failure it may print the same records again.
    """
    return Console(limit)


def parts(folder: AnyPath, /, *, key_groups: int = 256, partial: bool = False) -> list[Part]:
    """The files that a sink wrote into a folder, in order of epochs, then of key groups.

    Args:
        key_groups: those of the flow (256 unless it says otherwise).
        partial: return what has been committed of all key groups although the job has not ended;
            with a durable tier that is what is saved there.

    Raises:
        InputError: the folder holds no output, or that of several runs.
        JobError: the output of some key groups is missing, or the job has not ended.
    """
    path = Path(absolute(folder))
    return merge(path, read_manifests(path), key_groups, partial=partial)


def read_parts(
    folder: AnyPath,
    record: type[U],
    /,
    *,
    header: bool = True,
    delimiter: str = ",",
    key_groups: int = 256,
    partial: bool = False,
) -> Iterator[Batch[U]]:
    """The records of one type that a sink wrote into a folder, in the order of `parts`.

    Args:
        record: their type; a sink keeps types apart by the name of their class.
        header, delimiter: as the sink was told, for CSV.

    Raises:
        InputError, JobError: as `parts`; and a part is not as the manifest says.
    """
    found = parts(folder, key_groups=key_groups, partial=partial)
    for part in found:
        if part.record == record.__name__:
            source = _source_of(str(part.path), record, header, delimiter)
            for split in source.splits():
                for _, batch in source.read(split, 0):
                    yield batch


def _source_of(name: str, record: type[U], header: bool, delimiter: str) -> Any:
    if name.endswith(".jsonl"):
        return json(name, record)
    if name.endswith(".csv"):
        return csv(name, record, header=header, delimiter=delimiter)
    return parquet(name, record)
