"""CSV files as a source, also `.gz`.

A position is a row number. Rows before it are parsed again, so that batches end at the same rows.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import pyarrow as pa

from raystream.api.batch import Batch
from raystream.errors import InputError
from raystream.io.conform import batch_of, check_columns
from raystream.io.files import BATCH_ROWS, changed, reading, splits_of
from raystream.io.nested import arrow_type
from raystream.schema.records import RecordSchema, record_schema
from raystream.schema.types import Split

U = TypeVar("U", bound=tuple[Any, ...])

BLOCK_BYTES = 4 << 20
"""What is parsed at a time; a row may not be longer."""

HEADER_BYTES_MAX = 1 << 16


@dataclass(frozen=True)
class CsvFiles(Generic[U]):
    """One split per file.

    With a header columns are found by name and others are left alone; without, they are the
    record's fields in their order. An empty cell is None; in a `str` field that may not be None it
    is the empty text. An empty line is no row.
    """

    pattern: str
    record: type[U]
    header: bool = True
    delimiter: str = ","

    @property
    def reads(self) -> str:
        """The path, pattern or folder, in which no sink of the flow may write."""
        return self.pattern

    def splits(self) -> Sequence[Split]:
        """The files, sorted by name; their headers have been checked."""
        found = splits_of(self.pattern, (".csv", ".csv.gz"))
        for split in found:
            self._open(split.name).close()
        return found

    def read(self, split: Split, position: int, /) -> Iterator[tuple[int, Batch[U]]]:
        """Batches end at the same rows whatever the position."""
        name = split.name
        schema = record_schema(self.record)
        empty_texts = [f.name for f in schema.fields if f.kind == "text" and not f.optional]
        end = 0
        with closing(self._open(name)) as blocks:
            while (block := blocks.next()) is not None:
                for at in range(0, block.num_rows, BATCH_ROWS):
                    begin, rows = end, block.slice(at, BATCH_ROWS)
                    end = begin + rows.num_rows
                    if end > position:
                        first = max(begin, position)
                        rest = _fill(rows.slice(first - begin), empty_texts)
                        yield end, batch_of(schema, rest, partial(self._place, name, first))
        if end < position:
            raise changed(name, position)

    def _open(self, name: str) -> _Blocks:
        import pyarrow.csv as pc

        schema = record_schema(self.record)
        with reading(name):
            raw = _Bytes(name)
        types = _types(schema)
        columns = self._header(name, raw.first_line) if self.header else list(types)
        _check_header(schema, columns, types, name)
        with _parsing(name, columns, self.delimiter):
            reader = pc.open_csv(
                pa.PythonFile(raw, "r"),
                read_options=pc.ReadOptions(
                    block_size=BLOCK_BYTES,
                    use_threads=False,
                    column_names=None if self.header else columns,
                ),
                parse_options=pc.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
                convert_options=pc.ConvertOptions(
                    column_types=types,
                    include_columns=list(types),
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        return _Blocks(reader, raw, name, columns, self.delimiter)

    def _header(self, name: str, line: bytes) -> list[str]:
        try:
            return next(csv.reader([line.decode("utf-8-sig")], delimiter=self.delimiter), [])
        except UnicodeDecodeError:
            raise InputError(f"{name}, line 1: the header is not UTF-8 text.") from None

    def _place(self, name: str, first: int, n: int) -> str:
        return _place(name, first + n + 1 + self.header, self.delimiter)


class _Blocks:
    """The parsed blocks of a file."""

    def __init__(
        self, reader: Any, raw: _Bytes, name: str, columns: list[str], delimiter: str
    ) -> None:
        self.reader = reader
        self.raw = raw
        self.name = name
        self.columns = columns
        self.delimiter = delimiter

    def next(self) -> Any:
        """The next record batch, or None at the end.

        Raises:
            InputError: a row is malformed or a value does not convert.
        """
        with _parsing(self.name, self.columns, self.delimiter):
            try:
                return self.reader.read_next_batch()
            except StopIteration:
                if self.raw.quotes % 2:
                    _check_quotes(self.name, self.delimiter)
                return None

    def close(self) -> None:
        self.reader.close()
        self.raw.close()


class _Bytes(io.RawIOBase):
    """The (unpacked) bytes of a file. Counts quotes: Arrow closes an open one by itself."""

    def __init__(self, name: str) -> None:
        self._stream = pa.input_stream(name, compression="detect")
        self._head = self._stream.read(HEADER_BYTES_MAX)
        if not self._head:
            raise InputError(f"{name} is empty.")
        self.first_line = self._head.splitlines()[0]
        if self.first_line == self._head:  # Arrow takes a header without an end for no file
            self._head += self._stream.read(1) or b"\n"
        self.quotes = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._head or self._stream.read(None if size < 0 else size)
        self._head = b""
        self.quotes += data.count(b'"')
        return data

    def close(self) -> None:
        self._stream.close()
        super().close()


def _types(schema: RecordSchema) -> dict[str, Any]:
    """The Arrow type of each column of a record."""
    for f in schema.fields:
        if f.kind == "object":
            raise InputError(
                f"A CSV file cannot hold {schema.name}.{f}, only plain values.", hint="Use Parquet."
            )
    return {f.name: arrow_type(f) for f in schema.fields}


def _check_header(
    schema: RecordSchema, columns: list[str], types: dict[str, Any], name: str
) -> None:
    twice = [n for n in schema.names if columns.count(n) > 1]
    if twice:
        raise InputError(f"{name}, line 1: the column {twice[0]!r} is there twice.")
    found = pa.schema([(n, types.get(n, pa.string())) for n in columns])
    check_columns(schema, found, name)


def _fill(rows: Any, columns: list[str]) -> Any:
    """The same rows with empty text for None in these columns."""
    for name in columns:
        at = rows.schema.get_field_index(name)
        rows = rows.set_column(at, name, rows.column(at).fill_null(""))
    return rows


# ---------------------------------------------------------------- where and why

_AT_ROW = re.compile(
    r"(?:In CSV column #(?P<column>\d+): )?(?:CSV parse error: )?"
    r"Row #(?P<row>\d+): (?P<what>.*)",
    re.DOTALL,
)
_CONVERSION = re.compile(
    r"CSV conversion error to (?P<type>\w+): (?:invalid value (?P<value>.*))?", re.DOTALL
)


@contextmanager
def _parsing(name: str, columns: list[str], delimiter: str) -> Iterator[None]:
    """Turns what Arrow says of a CSV file into an `InputError` with file and line."""
    try:
        with reading(name):
            yield
    except pa.ArrowInvalid as error:
        found = _AT_ROW.search(str(error))
        if found is None:
            _check_quotes(name, delimiter)
            raise InputError(
                f"{name} cannot be parsed as CSV: {error}",
                hint=f"A row may have {BLOCK_BYTES >> 20} MiB at most.",
            ) from error
        what = found["what"]
        converting = _CONVERSION.search(what)
        if found["column"] is not None and converting is not None:
            column = columns[int(found["column"])]
            what = (
                f"{column!r} is {converting['value']}, which is no {converting['type']}"
                if converting["value"]
                else f"{column!r} is not UTF-8 text"
            )
        place = _place(name, int(found["row"]), delimiter)
        raise InputError(f"{place}: {what}.", hint="Mend the line.") from error


def _place(name: str, row: int, delimiter: str) -> str:
    """Where the nth row of a file (1 is the first, a header counts) begins: its line. Lines are
    counted anew, since values may hold line breaks and empty lines are no rows."""
    with _text(name) as file:
        rows = csv.reader(file, delimiter=delimiter)
        begin, seen = 1, 0
        for cells in rows:
            seen += bool(cells)
            if seen == row:
                break
            begin = rows.line_num + 1
    return f"{name}, line {begin}"


def _check_quotes(name: str, delimiter: str) -> None:
    """Raises `InputError` if a quote is opened and never closed."""
    with _text(name) as file:
        rows = csv.reader(file, delimiter=delimiter, strict=True)
        begin = 1
        try:
            for _ in rows:
                begin = rows.line_num + 1
        except csv.Error as error:
            raise InputError(
                f"{name}, line {begin}: a quote is not closed, or not where a value"
                f" begins ({error}).",
                hint="Mend the line.",
            ) from None


def _text(name: str) -> Any:
    opened: Any = gzip.open if name.endswith(".gz") else open
    return opened(name, "rt", encoding="utf-8-sig", errors="replace", newline="")
