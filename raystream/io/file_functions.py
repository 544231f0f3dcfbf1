"""What users call to read and write files: `rs.io.parquet`, `csv`, `json` and `text`.

Any path may be one of this machine, `file:///rows`, or in a bucket: `s3://bucket/rows/*.csv`, `gs://`
or `az://` (`raystream.io.buckets`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, overload

from raystream.api.arguments import check_function, check_record
from raystream.api.connectors import Source
from raystream.errors import ConfigError, placed
from raystream.io.buckets.paths import folder_at
from raystream.io.files.bad_lines import BadLine, Sorted
from raystream.io.files.columns import mapping_of, renamed
from raystream.io.files.csv import CsvFiles
from raystream.io.files.csv_dialect import dialect_of
from raystream.io.files.json_source import JsonFiles
from raystream.io.files.jsonlines import JsonForm, JsonParts, json_path
from raystream.io.files.lines import Line, TextFiles
from raystream.io.files.listing import Paths, paths_of
from raystream.io.files.parquet import ParquetFiles
from raystream.io.files.reading import check_encoding
from raystream.io.following.settings import Follow, follow_of
from raystream.io.following.source import Following
from raystream.io.output.formats import CsvForm, CsvParts, ParquetForm, ParquetParts
from raystream.schema.fields import AnyRecord

U = TypeVar("U", bound=AnyRecord)
AnyPath = str | os.PathLike[str]
Columns = Mapping[str, str]


@overload
def parquet(
    path: Paths,
    record: type[U],
    /,
    *,
    columns: Columns | None = None,
    follow: bool | Follow = False,
) -> Source[U]: ...
@overload
def parquet(path: AnyPath, /, *, columns: Columns | None = None) -> ParquetParts: ...
@placed
def parquet(
    path: Any,
    record: type[Any] | None = None,
    /,
    *,
    columns: Columns | None = None,
    follow: Any = False,
) -> Any:
    """Parquet files: with a record type a source, without one a sink.

    Args:
        path: of a source a file, a glob pattern, a folder (of `.parquet`, `.parq` and `.pq` files)
            or a list of these; of a sink the folder for its parts, which then belongs to it: what
            an earlier run left there is removed.
        record: what the rows are; columns that it does not declare are not read. A field that a
            file does not have is what a folder on the way to it says (`day=2024-01-01/`), else its
            default, or None where that may be.
        columns: the names of columns by field, where they are others:
            `{"trip_distance": "Trip Distance"}`. The record may say so, too:
            `Annotated[float, rs.field(name="Trip Distance")]`.
        follow: of a source: also read the files that come later: True, or a `rs.io.Follow` that
            says how. Files are taken in the order in which they come, each once, when they are
            whole. Such a source is cut by `rs.by_arrival`.

    Raises:
        ConfigError: the path is no place on a disk or in a bucket, or `columns` does not fit the
            record.
    """
    if record is not None:
        check_record("rs.io.parquet", record)
        return _followed(ParquetFiles(paths_of(path), record, mapping_of(record, columns)), follow)
    return ParquetParts(folder_at(path), ParquetForm(), renamed(columns))


@overload
def csv(
    path: Paths,
    record: type[U],
    /,
    *,
    header: bool = True,
    delimiter: str = ",",
    columns: Columns | None = None,
    quote: str = '"',
    comment: str | None = None,
    skip: int = 0,
    null: str | Iterable[str] = "",
    decimal: str = ".",
    thousands: str | None = None,
    trim: bool = False,
    encoding: str | None = None,
    bad: Literal["refuse"] = "refuse",
    follow: bool | Follow = False,
) -> Source[U]: ...
@overload
def csv(
    path: Paths,
    record: type[U],
    /,
    *,
    bad: Literal["stream"],
    header: bool = True,
    delimiter: str = ",",
    columns: Columns | None = None,
    quote: str = '"',
    comment: str | None = None,
    skip: int = 0,
    null: str | Iterable[str] = "",
    decimal: str = ".",
    thousands: str | None = None,
    trim: bool = False,
    encoding: str | None = None,
    follow: bool | Follow = False,
) -> Source[U | BadLine]: ...
@overload
def csv(
    path: AnyPath,
    /,
    *,
    header: bool = True,
    delimiter: str = ",",
    columns: Columns | None = None,
) -> CsvParts: ...
@placed
def csv(
    path: Any,
    record: type[Any] | None = None,
    /,
    *,
    header: bool = True,
    delimiter: str = ",",
    columns: Columns | None = None,
    bad: Any = "refuse",
    follow: Any = False,
    **reads: Any,
) -> Any:
    """CSV files: with a record type a source, without one a sink.

    Files may be packed with gzip, zstd, bzip2, xz or lz4; their first bytes say so, not their
    names. Numbers may have a `+`, and an int `.0`.

    Args:
        path: of a source a file, a glob pattern, a folder (of `.csv` files; with a tab for a
            delimiter of `.tsv` and `.tab` ones, too) or a list of these; of a sink the folder for
            its parts, which then belongs to it: what an earlier run left there is removed.
        record: what the rows are: columns by name where there is a header, else by position.
        header: whether the first line of a file names the columns.
        delimiter: the one character between two values, such as `"\\t"`.
        columns: as of `parquet`.
        quote: of a source: what stands around a value that has a delimiter or a line break in it.
        comment: of a source: what a line begins with that is no row, such as `"#"`.
        skip: of a source: how many lines come before the header, or before the first row.
        null: of a source: words that stand for None, besides an empty cell: `("NA", "null")`. In a
            `str` field that may not be None they are the empty text.
        decimal, thousands: of a source: how numbers are written: `decimal=","` and `thousands="."`
            for 1.234,5.
        trim: of a source: leave out the spaces around text. Around other values they never count.
        encoding: of a source: how text is encoded, by its name in Python: `"latin-1"`. Unless given
            it is UTF-8, or what a byte order mark says.
        bad: of a source: what becomes of a line that is no such record. `"refuse"` ends the job and
            says which line, column and value it is. With `"stream"` the source has records of
            `rs.io.BadLine`, too, and the job goes on: `stream[rs.io.BadLine]` are those lines,
            `stream[Record]` the rest. A value with line breaks has 100 lines at most then.
        follow: as of `parquet`.

    Raises:
        ConfigError: the path is no place on a disk or in a bucket, or an option does not fit.
    """
    dialect = dialect_of(header=header, delimiter=delimiter, **reads)
    if record is not None:
        check_record("rs.io.csv", record)
        files = CsvFiles(paths_of(path), record, dialect, mapping_of(record, columns))
        return _followed(_with(bad, files), follow)
    if reads:
        raise ConfigError(
            f"csv({next(iter(reads))}=...) says how files are read; without a record it is a sink",
            hint="Read with rs.io.csv(path, Record, ...).",
        )
    return CsvParts(folder_at(path), CsvForm(header, delimiter), renamed(columns))


@overload
def json(
    path: Paths,
    record: type[U],
    /,
    *,
    columns: Columns | None = None,
    encoding: str | None = None,
    bad: Literal["refuse"] = "refuse",
    follow: bool | Follow = False,
) -> Source[U]: ...
@overload
def json(
    path: Paths,
    record: type[U],
    /,
    *,
    bad: Literal["stream"],
    columns: Columns | None = None,
    encoding: str | None = None,
    follow: bool | Follow = False,
) -> Source[U | BadLine]: ...
@overload
def json(path: AnyPath, /, *, columns: Columns | None = None) -> JsonParts: ...
@placed
def json(
    path: Any,
    record: type[Any] | None = None,
    /,
    *,
    columns: Columns | None = None,
    encoding: str | None = None,
    bad: Any = "refuse",
    follow: Any = False,
) -> Any:
    """JSON: with a record type a source, without one a sink.

    A sink writes JSON Lines, an object on each line. A source reads them, and files that are one
    array of objects, or objects over several lines; they may be packed, as of `csv`.

    Lists and tuples of one type are arrays; dicts, records and other tuples (of `f0`, `f1` and so
    on) are objects; bytes are text in base64; NaN and the infinite are `NaN`, `Infinity` and
    `-Infinity`, which not all programs read.

    Args:
        path: of a source a file, a glob pattern, a folder (of `.jsonl`, `.ndjson` and `.json`
            files) or a list of these; of a sink the folder for its parts, which then belongs to it:
            what an earlier run left there is removed.
        record: what the objects are; names that it does not declare are not read. A field that an
            object does not have is what a folder on the way to the file says, else its default, or
            None where that may be.
        columns: the names of values by field, where they are others: `{"id": "@id"}`. Of a source
            one that begins with `$.` is a path: `{"user": "$.actor.login", "tag": "$.tags[0]"}`.
        encoding, bad: of a source: as of `csv`.
        follow: as of `parquet`.

    Raises:
        ConfigError: the path is no place on a disk or in a bucket, or an option does not fit.
    """
    if record is None:
        return JsonParts(folder_at(path), JsonForm(), renamed(columns))
    check_record("rs.io.json", record)
    mapping = mapping_of(record, columns)
    for _, column in mapping:
        json_path(column)
    files = JsonFiles(paths_of(path), record, mapping, check_encoding(encoding))
    return _followed(_with(bad, files), follow)


@overload
def text(
    path: Paths, /, *, encoding: str | None = None, follow: bool | Follow = False
) -> Source[Line]: ...
@overload
def text(
    path: Paths,
    record: type[U],
    parse: Callable[[str], U | None],
    /,
    *,
    encoding: str | None = None,
    bad: Literal["refuse"] = "refuse",
    follow: bool | Follow = False,
) -> Source[U]: ...
@overload
def text(
    path: Paths,
    record: type[U],
    parse: Callable[[str], U | None],
    /,
    *,
    bad: Literal["stream"],
    encoding: str | None = None,
    follow: bool | Follow = False,
) -> Source[U | BadLine]: ...
@placed
def text(
    path: Any,
    record: type[Any] = Line,
    parse: Callable[[str], Any] | None = None,
    /,
    *,
    encoding: str | None = None,
    bad: Any = "refuse",
    follow: Any = False,
) -> Any:
    """Lines of text files as a source; they may be packed, as of `csv`.

    Args:
        path: a file, a glob pattern, a folder (of `.txt` and `.log` files) or a list of these.
        record: what `parse` makes of a line; `rs.io.Line` unless given.
        parse: makes a record of a line without its end, or None to leave it out; what it raises is
            a fault of the input.
        encoding, bad: as of `csv`.
        follow: as of `parquet`.

    Raises:
        ConfigError: the path is no place on a disk or in a bucket, or nothing says how a line
            becomes a record.
    """
    check_record("rs.io.text", record)
    if parse is not None:
        check_function("text()", parse, "a line")
    elif record is not Line:
        raise ConfigError(
            f"text() was not told how a line becomes a {record.__name__}",
            hint=f"rs.io.text(path, {record.__name__}, parse), where parse takes a line and returns"
            " a record; or rs.io.text(path) for the lines as they are.",
        )
    files = TextFiles(paths_of(path), record, parse, encoding=check_encoding(encoding))
    return _followed(_with(bad, files), follow)


def _with(bad: str, files: Any) -> Any:
    """Files whose damaged lines are refused, or a stream."""
    if not isinstance(bad, str) or bad not in ("refuse", "stream"):
        raise ConfigError(f'bad={bad!r}: "refuse" or "stream"')
    return Sorted(files) if bad == "stream" else files


def _followed(files: Any, follow: Any) -> Any:
    """Files, and those that come later if that is asked for."""
    how = follow_of(follow)
    return files if how is None else Following(files, how)
