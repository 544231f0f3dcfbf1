"""Reads published files, plain or gzipped, in pieces: each piece knows the numbers of its lines.

A plain file is cut into pieces by bytes, and a piece has the lines that begin in it, so pieces can
be read at once. A gzipped file is one piece. Numbers of lines are counted from the piece's first;
whoever knows how many lines the pieces before it have can say the number in the file.
"""

from __future__ import annotations

import gzip
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from raystream.errors import InputError
from spark_ingest.published.rules import Bad
from spark_ingest.tables import Columns

PIECE_BYTES = 64 << 20
_BLOCK_BYTES = 8 << 20
"""What is parsed at once: about 160,000 rows."""
_LINE_BYTES_MAX = 4_096
_INTEGER_DIGITS_MAX = 18
_TEXT_CHARS_MAX = 200
_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Piece:
    """The lines of `path` that begin at bytes `begin` to `end - 1`; all lines where zipped."""

    path: Path
    begin: int
    end: int
    zipped: bool


@dataclass(frozen=True, slots=True)
class Block:
    """Some lines of a piece, parsed."""

    columns: Columns
    """int64, one entry for each line that parsed."""
    line: npt.NDArray[np.int64]
    """Numbers of these lines, from 0 at the first of the piece."""
    bad: list[Bad]
    """Lines that did not parse."""
    lines: int
    """How many lines there were, blank ones included."""


def pieces(paths: Sequence[Path]) -> list[Piece]:
    """The pieces of some files, in order.

    Raises `InputError` for a file that is missing, empty, no regular one or cannot be read.
    """
    return [piece for path in paths for piece in _pieces(path)]


def _pieces(path: Path) -> list[Piece]:
    path = path.absolute()
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError(
                f"{path} cannot be read: it is no regular file.",
                hint="Name a file. It is read more than once, so a pipe or a folder will not do.",
            )
        with path.open("rb") as file:
            zipped = file.read(len(_GZIP)) == _GZIP
    except FileNotFoundError:
        raise InputError(f"{path} does not exist.", hint="Check the path.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    size = status.st_size
    if size == 0:
        raise InputError(f"{path} is empty.")
    step = size if zipped else PIECE_BYTES
    return [Piece(path, begin, min(begin + step, size), zipped) for begin in range(0, size, step)]


def blocks(piece: Piece, names: Sequence[str]) -> Iterator[Block]:
    """The lines of a piece, a block at a time, as columns `names`.

    Raises `InputError` if the file cannot be read to its end.
    """
    first = 0
    try:
        for text in _texts(piece):
            block = _parse(text, names, first)
            first += block.lines
            yield block
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{piece.path} cannot be read to its end: {error}") from None


def _texts(piece: Piece) -> Iterator[bytes]:
    """Whole lines of a piece, about `_BLOCK_BYTES` at a time."""
    if piece.zipped:
        with gzip.open(piece.path, "rb") as file:
            yield from _whole_lines(cast("BinaryIO", file), None)
        return
    with piece.path.open("rb") as file:
        if piece.begin:
            file.seek(piece.begin - 1)
            file.readline()  # the rest of the line that began before
        yield from _whole_lines(file, piece.end)


def _whole_lines(file: BinaryIO, end: int | None) -> Iterator[bytes]:
    while end is None or file.tell() < end:
        want = _BLOCK_BYTES if end is None else min(_BLOCK_BYTES, end - file.tell())
        at_start = file.tell() == 0
        text = file.read(want)
        if text and not text.endswith(b"\n"):
            text += file.readline(_LINE_BYTES_MAX)
        if not text:
            return
        yield text.removeprefix(_BYTE_ORDER_MARK) if at_start else text


def _parse(text: bytes, names: Sequence[str], first: int) -> Block:
    if b"x" in text or b"X" in text:  # Arrow takes 0x1F for a number
        return _parse_slowly(text, names, first)
    try:
        table = pa.csv.read_csv(
            pa.py_buffer(text),
            read_options=pa.csv.ReadOptions(column_names=names, use_threads=False),
            parse_options=pa.csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.int64()), null_values=[]
            ),
        )
    except pa.ArrowInvalid:
        return _parse_slowly(text, names, first)
    columns = {name: table[name].to_numpy() for name in names}
    lines = table.num_rows
    return Block(columns, np.arange(first, first + lines), [], lines)


def _parse_slowly(text: bytes, names: Sequence[str], first: int) -> Block:
    """Line by line, to say which lines are bad and why. Blank lines are no rows."""
    rows: list[list[int]] = []
    numbers: list[int] = []
    bad: list[Bad] = []
    lines = text.decode("utf-8", errors="replace").removesuffix("\n").split("\n")
    for number, line in enumerate(lines, start=first):
        line = line.strip()
        if not line:
            continue
        fields = line.split(",")
        reason = _malformed(fields, names)
        if reason:
            bad.append(Bad(number, reason, line[:_TEXT_CHARS_MAX]))
        else:
            rows.append([int(field) for field in fields])
            numbers.append(number)
    table = np.array(rows, dtype=np.int64).reshape(len(rows), len(names))
    columns = {name: table[:, index] for index, name in enumerate(names)}
    return Block(columns, np.array(numbers, dtype=np.int64), bad, len(lines))


def _malformed(fields: list[str], names: Sequence[str]) -> str | None:
    if len(fields) != len(names):
        found = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
        return f"it has {found} instead of {len(names)}"
    for number, (field, name) in enumerate(zip(fields, names, strict=True), start=1):
        digits = field.strip().removeprefix("-")
        if not (digits.isascii() and digits.isdigit()):
            return f"field {number} ({name}) is {field[:40]!r}, which is not an integer"
        if len(digits) > _INTEGER_DIGITS_MAX:
            return f"field {number} ({name}) has {len(digits)} digits"
    return None
