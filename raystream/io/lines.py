"""Text files as a source, a record per line, also `.gz`. A position is an offset in bytes."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar, cast

from raystream.api.batch import Batch
from raystream.errors import InputError
from raystream.io.conform import batch_of_records
from raystream.io.files import changed, reading, splits_of
from raystream.schema.types import Int64, Split

U = TypeVar("U", bound=tuple[Any, ...])

SUFFIXES = (".txt", ".txt.gz", ".log", ".log.gz")
"""What the files of a folder are called that are read."""
CHUNK_BYTES = 1 << 20
"""A batch is the lines that begin in so many bytes."""


class Line(NamedTuple):
    """A line of text without its end. Text has no time, so `time` is 0."""

    time: Int64
    text: str


@dataclass(frozen=True)
class TextFiles(Generic[U]):
    """One split per file. `parse` makes a record of a line, or None to leave it out; a line that it
    refuses ends the job."""

    pattern: str
    record: type[U]
    parse: Callable[[str], U | None] | None = None
    suffixes: tuple[str, ...] = SUFFIXES

    @property
    def reads(self) -> str:
        """The path, pattern or folder, in which no sink of the flow may write."""
        return self.pattern

    def splits(self) -> Sequence[Split]:
        """The files, sorted by name."""
        return splits_of(self.pattern, self.suffixes, may_be_empty=True)

    def read(self, split: Split, position: int, /) -> Iterator[tuple[int, Batch[U]]]:
        """Batches of whole lines; positions are those of the unpacked text."""
        name = split.name
        with reading(name):
            file = _open(name)
        with file:
            with reading(name):
                lines = _from(file, name, position)
            while lines:
                texts = self._texts(name, position, lines)
                batch = self._batch(name, position, texts)
                position += sum(map(len, lines))
                yield position, batch
                with reading(name):
                    lines = file.readlines(CHUNK_BYTES)

    def _texts(self, name: str, position: int, lines: list[bytes]) -> list[str]:
        texts = []
        for n, line in enumerate(lines):
            try:
                texts.append(line.decode().rstrip("\r\n"))
            except UnicodeDecodeError:
                raise InputError(
                    f"{_place(name, position, n)}: {line[:40]!r} is not UTF-8 text."
                ) from None
        return texts

    def _batch(self, name: str, position: int, texts: list[str]) -> Batch[U]:
        if self.parse is None:
            return Batch(self.record, {"time": [0] * len(texts), "text": texts})
        records, numbers = [], []
        for n, text in enumerate(texts):
            try:
                record = self.parse(text)
                if record is not None:
                    records.append(record)
                    numbers.append(n)
            except InputError as error:
                place = _place(name, position, n)
                raise InputError(f"{place}: {error.message}", hint=error.hint) from None
            except Exception as error:
                raise InputError(
                    f"{_place(name, position, n)}: {type(error).__name__}: {error}",
                    hint=f"The line is {text[:80]!r}.",
                ) from error
        return batch_of_records(self.record, records, lambda n: _place(name, position, numbers[n]))


def _from(file: BinaryIO, name: str, position: int) -> list[bytes]:
    """The first lines from a position on, where one begins or the file ends.

    Raises:
        InputError: the file is shorter, or its last line goes on now.
    """
    file.seek(max(0, position - 1))
    before = file.read(min(1, position))
    lines = file.readlines(CHUNK_BYTES)
    if position and (not before or (lines and before != b"\n")):
        raise changed(name, position)
    return lines


def _open(name: str) -> BinaryIO:
    opened: Any = gzip.open if name.endswith(".gz") else open
    return cast("BinaryIO", opened(name, "rb"))


def _place(name: str, position: int, line: int) -> str:
    """Where the nth line after a position is. Counted anew: only errors ask."""
    before = 0
    with _open(name) as file:
        while position > 0 and (data := file.read(min(position, CHUNK_BYTES))):
            before += data.count(b"\n")
            position -= len(data)
    return f"{name}, line {before + line + 1}"
