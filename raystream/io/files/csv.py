"""CSV files as a source, packed or not.

A position is a row number. Rows before it are parsed again, so that batches end at the same rows.

Arrow converts values while it parses. Where a cell is none that it takes, or the dialect has
numbers that it does not know, the file is parsed again from that block on with all cells as text
(`raystream.io.files.csv_values`), which either converts them or says which cell it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa

from raystream.api.batch import Batch
from raystream.api.connectors import Source, changed
from raystream.errors import InputError
from raystream.io.files.bad_lines import Lines
from raystream.io.files.columns import FileColumns, columns_of
from raystream.io.files.csv_dialect import (
    BLOCK_BYTES,
    BrokenRowError,
    CsvBytes,
    Dialect,
    cells_of,
    rows_of,
)
from raystream.io.files.csv_values import BadCellError, types_of, values_of
from raystream.io.files.declared import batch_of
from raystream.io.files.handles import Handles
from raystream.io.files.listing import BATCH_ROWS, splits_of
from raystream.io.files.reading import CHUNK_BYTES, reading
from raystream.schema.fields import AnyRecord
from raystream.schema.records import RecordSchema, record_schema
from raystream.schema.types import Split

U = TypeVar("U", bound=AnyRecord)


@dataclass(frozen=True)
class CsvFiles(Source[U]):
    """One split per file.

    With a header columns are found by name and others are left alone; without, they are the
    record's fields in their order. An empty cell is None; in a `str` field that may not be None it
    is the empty text. An empty line is no row.
    """

    paths: tuple[str, ...]
    record: type[U]
    dialect: Dialect = field(default_factory=Dialect)
    mapping: tuple[tuple[str, str], ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """The paths, patterns or folders, in which no sink of the flow may write."""
        return self.paths

    @property
    def suffixes(self) -> tuple[str, ...]:
        """How the names of the files of a folder end that are read, packed or not."""
        return (".csv", ".tsv", ".tab") if self.dialect.delimiter == "\t" else (".csv",)

    def splits(self) -> Sequence[Split]:
        """The files, sorted by name; their headers have been checked."""
        found = splits_of(self.paths, self.suffixes)
        for split in found:
            self._open(split.name, typed=True).close()
        return found

    def read(self, split: Split, position: int, /) -> Iterator[tuple[int, Batch[U]]]:
        """Batches end at the same rows whatever the position."""
        name = split.name
        schema = record_schema(self.record)
        end = 0
        for block in self._blocks(name):
            for at in range(0, block.num_rows, BATCH_ROWS):
                begin, rows = end, block.slice(at, BATCH_ROWS)
                end = begin + rows.num_rows
                if end > position:
                    first = max(begin, position)
                    rest = rows.slice(first - begin)
                    yield end, batch_of(schema, rest, partial(self._place, name, first))
        if end < position:
            raise changed(name, position)

    def _blocks(self, name: str) -> Iterator[Any]:
        """Record batches with all fields; a block is what is parsed at a time."""
        typed, done = self.dialect.plain, 0
        with Handles(name, lambda: self._open(name, typed=typed)) as handle:
            blocks, skip = handle.open(), 0
            while True:
                try:
                    block = blocks.next()
                except _NotConvertedError:
                    typed, skip = False, done  # blocks end at the same rows
                    blocks = handle.open()
                    continue
                if block is None:
                    return
                if skip:
                    skip -= block.num_rows
                    continue
                rows = blocks.rows(block, done)
                done += block.num_rows
                handle.rest()
                yield rows
                if (again := handle.again()) is not None:
                    blocks, skip = again, done

    def lines(self, name: str, position: int) -> Iterator[Lines[U]]:
        """Each row by itself, as far as quotes say where it ends; see
        `raystream.io.files.bad_lines`. A position is a number of bytes behind the header."""
        blocks = self._open(name, typed=False)
        schema = record_schema(self.record)

        def parse(rows: Sequence[bytes]) -> Batch[U]:
            return batch_of(schema, blocks.alone(rows), lambda n: "")

        def is_row(data: bytes) -> bool:
            with suppress(InputError):
                return cells_of(data, self.dialect) == [blocks.width] and len(parse([data])) == 1
            return False

        try:
            end, number = 0, blocks.raw.lines + 1
            while lines := blocks.raw.raw_lines(CHUNK_BYTES):
                begin, most = end, len(lines) + VALUE_LINES
                while _is_open(lines, self.dialect) and len(lines) < most:
                    if not (more := blocks.raw.raw_lines(1)):
                        break
                    lines += more
                end += sum(map(len, lines))
                if begin >= position:
                    rows = _rows(lines, number, self.dialect, is_row)
                    yield Lines(end, *rows, parse)
                number += len(lines)
        finally:
            blocks.close()

    def _open(self, name: str, *, typed: bool) -> _Blocks:
        return _Blocks(name, record_schema(self.record), self.dialect, self.mapping, typed=typed)

    def _place(self, name: str, first: int, n: int) -> str:
        return place(name, first + n, self.dialect)


class _NotConvertedError(Exception):
    """A block has a cell that Arrow does not convert."""


class _Blocks:
    """The parsed blocks of a file.

    Args:
        typed: whether Arrow converts values; otherwise all cells are text at first.

    Raises:
        InputError: the file or its header cannot be read, or does not have the columns.
    """

    def __init__(
        self,
        name: str,
        schema: RecordSchema,
        dialect: Dialect,
        mapping: tuple[tuple[str, str], ...],
        *,
        typed: bool,
    ) -> None:
        self._name = name
        self._schema = schema
        self._dialect = dialect
        self._typed = typed
        self._kinds = types_of(schema)
        with reading(name):
            self.raw = CsvBytes(name, dialect)
        try:
            names = self.raw.header if dialect.header else list(self._kinds)
            header = f", line {self.raw.header_line}" if dialect.header else ""
            self.columns = _find(schema, names, self._kinds, name, mapping, header)
        except BaseException:
            self.raw.close()
            raise
        self._names = names
        self.width = len(names)
        self._reader: Any = None

    def next(self) -> Any:
        """The next block as it was parsed, or None at the end.

        Raises:
            InputError: a row is malformed. _NotConvertedError: parse the file as text.
        """
        if self.raw.empty:
            return None
        with self._parsing():
            try:
                if self._reader is None:
                    self._reader = self._parser()
                return self._reader.read_next_batch()
            except StopIteration:
                if self.raw.quotes % 2:
                    _check_quotes(self._name, self._dialect)
                return None

    def rows(self, block: Any, first: int | None) -> Any:
        """A block as a record batch with all fields. first: its first row; None if nobody asks
        where it is.

        Raises:
            InputError: a cell does not fit its field.
        """
        arrays = {}
        for name, at in self.columns.taken.items():
            f = self._schema.field(name)
            assert f is not None
            cells = block.column(str(at))
            if not self._typed:
                try:
                    cells = values_of(cells, f, self._kinds[name], self._dialect)
                except BadCellError as bad:
                    what = f"{self._names[at]!r} is {cells[bad.row].as_py()!r}"
                    where = "" if first is None else self._place(first + bad.row)
                    raise InputError(
                        f"{where}: {what}, which does not fit {f.declared}.",
                        hint="Mend the line, or declare a type that holds it. null= says what"
                        " stands for None, thousands= and decimal= how numbers are written.",
                        bare=f"{where}: {self._names[at]!r} does not fit {f.declared}",
                    ) from None
            if f.kind == "text" and not f.optional:
                cells = cells.fill_null("")
            arrays[name] = cells
        return self.columns.rows(arrays, block.num_rows)

    def alone(self, rows: Sequence[bytes]) -> Any:
        """Some rows as a record batch with all fields.

        Raises:
            InputError: one is malformed, or has a cell that does not fit.
        """
        import pyarrow.csv as pc

        data = pa.BufferReader(
            b"".join(row if row.endswith(b"\n") else row + b"\n" for row in rows)
        )
        read, parse, convert = self._options()
        try:
            table = pc.read_csv(data, read, parse, convert).combine_chunks()
        except pa.ArrowInvalid as error:
            found = _AT_ROW.search(str(error))
            raise InputError(self._what(found) if found is not None else str(error)) from None
        if table.num_rows != len(rows):
            raise InputError("a quote is not closed, or not where a value begins")
        (block,) = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
        return self.rows(block, None)

    def close(self) -> None:
        """Close the file."""
        if self._reader is not None:
            self._reader.close()
        self.raw.close()

    def _parser(self) -> Any:
        import pyarrow.csv as pc

        read, parse, convert = self._options()
        return pc.open_csv(pa.PythonFile(self.raw, "r"), read, parse, convert)

    def _options(self) -> tuple[Any, Any, Any]:
        """How Arrow reads, parses and converts; columns are called by their positions."""
        import pyarrow.csv as pc

        kinds = {
            str(at): self._kinds[name]
            if self._typed or pa.types.is_binary(self._kinds[name])
            else pa.string()
            for name, at in self.columns.taken.items()
        }
        return (
            pc.ReadOptions(
                block_size=BLOCK_BYTES,
                use_threads=False,
                column_names=[str(at) for at in range(len(self._names))],
            ),
            pc.ParseOptions(
                delimiter=self._dialect.delimiter,
                quote_char=self._dialect.quote,
                newlines_in_values=True,
            ),
            pc.ConvertOptions(
                column_types=kinds,
                include_columns=list(kinds) or ["0"],
                null_values=list(self._dialect.null),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )

    def _place(self, row: int) -> str:
        return place(self._name, row, self._dialect)

    @contextmanager
    def _parsing(self) -> Iterator[None]:
        """Turns what Arrow says of a CSV file into an `InputError` with file and line."""
        try:
            with reading(self._name):
                yield
        except pa.ArrowInvalid as error:
            found = _AT_ROW.search(str(error))
            if found is None:
                if "straddling" in str(error) or "too large" in str(error):
                    _check_quotes(self._name, self._dialect)
                    raise InputError(
                        f"{_longest(self._name, self._dialect)}: a row of more than"
                        f" {BLOCK_BYTES >> 20} MiB, which is the most that rs.io.csv reads.",
                        hint="Is a quote not closed? Or read it with rs.io.text and a function.",
                    ) from error
                _check_quotes(self._name, self._dialect)
                no_csv = f"{self._name} cannot be parsed as CSV"
                raise InputError(f"{no_csv}: {error}", bare=no_csv) from error
            said = _CONVERSION.search(found["what"])
            if found["column"] is not None and said is not None and said["value"] and self._typed:
                raise _NotConvertedError from None
            what, where = self._what(found), self._place(int(found["row"]) - 1)
            raise InputError(
                f"{where}: {what}.",
                bare=f"{where}: the line is not what was declared",
                hint='Mend the line. If all of the file is written so: encoding="latin-1", for'
                " example."
                if "UTF-8" in what
                else "Mend the line.",
            ) from error

    def _what(self, found: re.Match[str]) -> str:
        """What Arrow says of a row."""
        if found["column"] is not None and _CONVERSION.search(found["what"]) is not None:
            return f"{self._names[int(found['column'])]!r} is not UTF-8 text"
        return found["what"]


def _find(
    schema: RecordSchema,
    names: list[str],
    kinds: dict[str, Any],
    name: str,
    mapping: tuple[tuple[str, str], ...],
    header: str,
) -> FileColumns:
    """The columns of the fields; a cell is text, so it may be of any type."""
    fields = {f.name: f.name for f in schema.fields} | dict(mapping)
    kind_of = {column: kinds[field_name] for field_name, column in fields.items()}
    held = [(n, kind_of.get(n, kind_of.get(n.strip(), pa.string()))) for n in names]
    try:
        return columns_of(schema, pa.schema(held), name, mapping, header=header)
    except InputError as error:
        if names and not names[0][:1].isalnum():
            error.hint += ' If the first line is a comment: comment="#"; or skip= leaves lines out.'
        raise


VALUE_LINES = 100
"""Lines that a value in quotes has, at most, where each row is read by itself."""


def _is_open(lines: Sequence[bytes], dialect: Dialect) -> bool:
    """Whether the last row may go on behind these lines."""
    quote = dialect.quote.encode()
    odd = [n for n, line in enumerate(lines[-VALUE_LINES:]) if line.count(quote) % 2]
    return len(odd) % 2 == 1


def _rows(
    lines: list[bytes],
    number: int,
    dialect: Dialect,
    is_row: Callable[[bytes], bool],
) -> tuple[list[bytes], list[int]]:
    """Lines as rows, and the line at which each begins. Lines are one row together only if a quote
    goes on from the first to the last and they make a record; so a stray quote spoils its own line
    and no other."""
    quote, comment = dialect.quote.encode(), (dialect.comment or "").encode()
    rows: list[bytes] = []
    numbers: list[int] = []
    at = 0
    while at < len(lines):
        line, until = lines[at], at + 1
        if line.strip() and not (comment and line.lstrip().startswith(comment)):
            if line.count(quote) % 2:
                rest = range(at + 1, min(len(lines), at + VALUE_LINES))
                ends = next((n + 1 for n in rest if lines[n].count(quote) % 2), until)
                if ends > until and is_row(b"".join(lines[at:ends])):
                    until = ends
            rows.append(b"".join(lines[at:until]))
            numbers.append(number + at)
        at = until
    return rows, numbers


# ---------------------------------------------------------------- where and why

_AT_ROW = re.compile(
    r"(?:In CSV column #(?P<column>\d+): )?(?:CSV parse error: )?"
    r"Row #(?P<row>\d+): (?P<what>.*)",
    re.DOTALL,
)
_CONVERSION = re.compile(
    r"CSV conversion error to (?P<type>\w+): (?:invalid value (?P<value>.*))?", re.DOTALL
)


def place(name: str, row: int, dialect: Dialect) -> str:
    """Where a row of a file (0 is the first; a header is none) begins: its line. Lines are counted
    again, since values may hold line breaks and empty lines are no rows."""
    with suppress(BrokenRowError):
        for n, (line, _) in enumerate(rows_of(name, dialect)):
            if n == row:
                return f"{name}, line {line}"
    return f"{name}, row {row + 1}"


def _longest(name: str, dialect: Dialect) -> str:
    """Where the longest row of a file begins: its line."""
    with suppress(BrokenRowError):
        sizes = ((sum(map(len, cells)), -line) for line, cells in rows_of(name, dialect))
        return f"{name}, line {-max(sizes)[1]}"
    return name


def _check_quotes(name: str, dialect: Dialect) -> None:
    """Raises `InputError` if a quote is opened and never closed."""
    try:
        for _ in rows_of(name, dialect, strict=True):
            pass
    except BrokenRowError as error:
        raise InputError(
            f"{name}, line {error.line}: a quote is not closed, or not where a value begins"
            f" ({error}).",
            hint="Mend the line.",
        ) from None
