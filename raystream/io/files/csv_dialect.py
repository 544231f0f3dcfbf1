"""How CSV is written, and the bytes of a file as Arrow takes them: without what is not data."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from typing import Any

from raystream.errors import ConfigError, InputError, unknown_option
from raystream.io.files.reading import EMPTY_HINT, check_encoding, open_text

BLOCK_BYTES = 4 << 20
"""What is parsed at a time; a row, and a header, may not be longer."""

_MARK = b"\xef\xbb\xbf"
_DOS_END = b"\x1a"
"""The end of a file under DOS, as a byte."""
_RETURN = re.compile(rb"\r(?!\n|$)")
_NUMBERS = "+-0123456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """How a file of CSV is written."""

    header: bool = True
    """Whether the first line names the columns."""
    delimiter: str = ","
    """The one character between two values."""
    quote: str = '"'
    """What stands around a value that has a delimiter or a line break in it."""
    comment: str | None = None
    """What a line begins with that is no row."""
    skip: int = 0
    """How many lines come before the header, or before the first row if there is none."""
    null: tuple[str, ...] = ("",)
    """What stands for None."""
    decimal: str = "."
    """What stands before the fraction of a number."""
    thousands: str | None = None
    """What stands between groups of three digits."""
    trim: bool = False
    """Whether spaces around text are left out; around other values they always are."""
    encoding: str | None = None
    """None: UTF-8, or what a byte order mark says."""

    @property
    def plain(self) -> bool:
        """Whether Arrow can convert values by itself."""
        return self.decimal == "." and self.thousands is None and not self.trim


def dialect_of(**given: Any) -> Dialect:
    """A dialect as people gave it.

    Raises:
        ConfigError: it could not be told apart from values, or an option is of another type.
        GraphError: there is no such option.
    """
    known = [f.name for f in fields(Dialect)]
    if unknown := [name for name in given if name not in known]:
        raise unknown_option("rs.io.csv", unknown[0], [*known, "columns", "bad", "follow"])
    for name in ("header", "trim"):
        if not isinstance(said := given.get(name, False), bool):
            raise ConfigError(
                f"csv({name}={said!r:.80}): it is True or False",
                hint="header=True: the first line names the columns. columns= gives the names of"
                " columns by field; skip= leaves out lines before the header."
                if name == "header"
                else "",
            )
    delimiter, quote = given.get("delimiter", ","), given.get("quote", '"')
    if not _one(delimiter) or delimiter.isalnum() or delimiter in '"\r\n\0.+-':
        raise ConfigError(
            f"csv(delimiter={delimiter!r}) cannot stand between two values",
            hint='It is one character that no number has, such as ";", "|" or "\\t".',
        )
    if not _one(quote) or quote.isalnum() or quote in f"{delimiter}\r\n\0.+- ":
        raise ConfigError(
            f"csv(quote={quote!r}) cannot stand around a value", hint="Usual is '\"'."
        )
    null = given.get("null", ("",))
    null = (null,) if isinstance(null, str) else null
    if not isinstance(null, Collection) or not all(isinstance(word, str) for word in null):
        raise ConfigError(f"csv(null={null!r}): words for None are str")
    skip, comment = given.get("skip", 0), given.get("comment")
    if type(skip) is not int or skip < 0:
        raise ConfigError(f"csv(skip={skip!r}) is a number of lines: 0 or more")
    if comment is not None and (not isinstance(comment, str) or not comment.strip()):
        raise ConfigError(f"csv(comment={comment!r}) is what lines begin with that are no rows")
    decimal, thousands = given.get("decimal", "."), given.get("thousands")
    if (
        not isinstance(decimal, str)
        or decimal not in (".", ",")
        or (thousands is not None and not _between(thousands, decimal))
    ):
        raise ConfigError(
            f"csv(decimal={decimal!r}, thousands={thousands!r}) cannot be told from numbers",
            hint='For example decimal=",", thousands="." for 1.234,5; decimal is "." or ",".',
        )
    encoding = check_encoding(given.get("encoding"))
    return Dialect(**(given | {"null": ("", *null), "encoding": encoding}))


def _one(text: object) -> bool:
    return isinstance(text, str) and len(text) == 1 and text.isascii()


def _between(text: object, decimal: str) -> bool:
    return isinstance(text, str) and len(text) == 1 and text not in (decimal, *_NUMBERS)


class BrokenRowError(Exception):
    """A row that Python's reader does not take. line: where it begins."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


class CsvBytes(io.RawIOBase):
    """The rows of a file as UTF-8 text: byte order mark, skipped lines and header are taken off,
    lines that are comments are empty (an empty line is no row), and so is the end of a DOS file.

    Counts quotes: Arrow closes an open one by itself.

    Raises:
        InputError: the file is empty, or its header cannot be read.
    """

    def __init__(self, name: str, dialect: Dialect) -> None:
        self._dialect = dialect
        self._file: Any = open_text(name, dialect.encoding)
        self.lines = 0
        """Lines of the file before the first row."""
        self.quotes = 0
        try:
            first = self._file.readline(BLOCK_BYTES)
            if not first:
                raise InputError(f"{name} is empty.", hint=EMPTY_HINT)
            self._next = first.removeprefix(_MARK)
            for _ in range(dialect.skip):
                if not self._line():
                    break
            self.header = self._header(name) if dialect.header else []
            self.header_line = self.lines
            while (line := self._line()) and (self._comment(line) or not line.strip()):
                pass
            self.empty = not line or line.strip() == _DOS_END
        except BaseException:
            self._file.close()
            raise
        self._next, self.lines = line + self._next, self.lines - 1

    def _line(self) -> bytes:
        line, self._next = self._next or self._file.readline(BLOCK_BYTES), b""
        if (end := _RETURN.search(line)) is not None:  # lines as an old Mac ends them
            line, self._next = line[: end.end()], line[end.end() :]
        self.lines += 1
        return line

    def _comment(self, line: bytes) -> bool:
        comment = self._dialect.comment
        return comment is not None and line.lstrip().startswith(comment.encode())

    def _header(self, name: str) -> list[str]:
        """The names of the columns; a header may have several lines, in quotes."""
        seen = 0

        def lines() -> Iterator[str]:
            nonlocal seen
            while (line := self._line()) and seen < BLOCK_BYTES:
                seen += len(line)
                if not self._comment(line):
                    try:
                        yield line.decode()
                    except UnicodeDecodeError:
                        raise InputError(
                            f"{name}, line {self.lines}: the header is not UTF-8 text.",
                            hint='Say what it is: encoding="latin-1", for example.',
                        ) from None

        with long_cells():
            try:
                rows = csv.reader(lines(), **_options(self._dialect))
                return next((row for row in rows if row), [])
            except csv.Error as error:
                raise InputError(f"{name}, line {self.lines}: the header: {error}.") from None

    def raw_lines(self, nbytes: int) -> list[bytes]:
        """The next lines as they are, comments too, of `nbytes` or a bit more in all."""
        lines = [self._line()] if self._next else []
        lines += self._file.readlines(nbytes)
        while lines and not lines[-1]:
            lines.pop()
        if lines and lines[-1].endswith(_DOS_END) and not self._file.peek(1):
            lines[-1] = lines[-1][:-1]
        return [line for line in lines if line]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        if self._dialect.comment is not None:
            return self._without_comments(size)
        data, self._next = self._next, b""
        if size < 0 or len(data) < size:
            data += self._file.read(-1 if size < 0 else size - len(data))
        if data.endswith(_DOS_END):
            self._next = self._file.read(1)
            if not self._next:
                data = data[:-1]
        if 0 <= size < len(data):
            data, self._next = data[:size], data[size:] + self._next
        self.quotes += data.count(self._dialect.quote.encode())
        return data

    def _without_comments(self, size: int) -> bytes:
        """A comment within a quoted value is text."""
        parts, length = [], 0
        quote = self._dialect.quote.encode()
        while length < max(size, 1) and (line := self._next or self._file.readline()):
            self._next = b""
            if self.quotes % 2 == 0 and self._comment(line):
                line = b"\n"
            self.quotes += line.count(quote)
            parts.append(line)
            length += len(line)
        data = b"".join(parts)
        if size >= 0:
            data, self._next = data[:size], data[size:]
            self.quotes -= self._next.count(quote)
        return data

    def close(self) -> None:
        self._file.close()
        super().close()


def rows_of(
    name: str, dialect: Dialect, *, strict: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """The rows of a file by Python's reader, which says more than Arrow's, each with the line at
    which it begins. Only errors ask.

    Raises:
        BrokenRowError: a row is malformed; more are if strict.
    """
    with long_cells(), CsvBytes(name, dialect) as raw:
        before = raw.lines
        text = io.TextIOWrapper(io.BufferedReader(raw), "utf-8", errors="replace", newline="")
        rows = csv.reader(text, strict=strict, **_options(dialect))
        begin = 1
        try:
            for cells in rows:
                if cells:
                    yield before + begin, cells
                begin = rows.line_num + 1
        except csv.Error as error:
            raise BrokenRowError(before + begin, str(error)) from None


def cells_of(data: bytes, dialect: Dialect) -> list[int]:
    """How many cells each row of some bytes has; none if Python's reader does not take them."""
    lines = data.decode(errors="replace").splitlines(keepends=True)
    with long_cells(), suppress(csv.Error):
        return [len(row) for row in csv.reader(lines, strict=True, **_options(dialect))]
    return []


def _options(dialect: Dialect) -> dict[str, Any]:
    return {"delimiter": dialect.delimiter, "quotechar": dialect.quote}


@contextmanager
def long_cells() -> Iterator[None]:
    """Python's reader takes cells of any length meanwhile."""
    before = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(before)
