"""Text files as a source, a record per line. A position is an offset in bytes of the text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, NamedTuple, TypeVar

from raystream.api.batch import Batch
from raystream.api.connectors import Source, changed
from raystream.errors import InputError, what_was_raised
from raystream.io.files.bad_lines import Lines
from raystream.io.files.declared import At, batch_of_records
from raystream.io.files.handles import Handles
from raystream.io.files.listing import splits_of
from raystream.io.files.reading import CHUNK_BYTES, open_text, reading, skip
from raystream.schema.fields import AnyRecord
from raystream.schema.types import Int64, Split

U = TypeVar("U", bound=AnyRecord)

SUFFIXES = (".txt", ".log")
"""How the names of the files of a folder end that are read, packed or not."""

_MARK = "\ufeff"


class Line(NamedTuple):
    """A line of text without its end. Text has no time, so `time` is 0."""

    time: Int64
    text: str


@dataclass(frozen=True)
class TextFiles(Source[U]):
    """One split per file. `parse` makes a record of a line, or None to leave it out; a line that it
    refuses ends the job."""

    paths: tuple[str, ...]
    record: type[U]
    parse: Callable[[str], U | None] | None = None
    suffixes: tuple[str, ...] = SUFFIXES
    encoding: str | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The paths, patterns or folders, in which no sink of the flow may write."""
        return self.paths

    def splits(self) -> Sequence[Split]:
        """The files, sorted by name."""
        return splits_of(self.paths, self.suffixes, may_be_empty=True)

    def read(self, split: Split, position: int, /) -> Iterator[tuple[int, Batch[U]]]:
        """Batches of the lines that begin in `CHUNK_BYTES`; positions are those of the text in
        UTF-8, unpacked."""
        name = split.name
        with Handles(name, lambda: open_text(name, self.encoding)) as handle:
            file = handle.open()
            with reading(name):
                lines = _from(file, name, position)
            while lines:
                at = partial(self._place, name, position)
                texts = self._texts(lines, at)
                if not position:
                    texts[0] = texts[0].removeprefix(_MARK)
                batch = self._batch(texts, at)
                position += sum(map(len, lines))
                with reading(name):
                    lines = file.readlines(CHUNK_BYTES)
                if lines:
                    handle.rest()
                else:
                    handle.close()
                yield position, batch
                if lines and (again := handle.again()) is not None:
                    file = again
                    with reading(name):
                        skip(file, position + sum(map(len, lines)))

    def lines(self, name: str, position: int) -> Iterator[Lines[U]]:
        """As `read`, with each line by itself; see `raystream.io.files.bad_lines`."""
        with Handles(name, lambda: open_text(name, self.encoding)) as handle:
            file = handle.open()
            number = 1
            with reading(name):
                number += _lines_before(file, position)
                lines = file.readlines(CHUNK_BYTES)
            while lines:
                read = sum(map(len, lines))
                if not position:
                    lines[0] = lines[0].removeprefix(_MARK.encode())
                position += read
                numbers = list(range(number, number + len(lines)))
                number += len(lines)
                yield Lines(position, lines, numbers, self._alone)
                with reading(name):
                    lines = file.readlines(CHUNK_BYTES)

    def _alone(self, lines: Sequence[bytes]) -> Batch[U]:
        """The records of lines, where their places are not asked for."""
        return self._batch(self._texts(lines, _nowhere), _nowhere)

    def _texts(self, lines: Sequence[bytes], at: At) -> list[str]:
        texts = []
        for n, line in enumerate(lines):
            try:
                texts.append(line.decode().rstrip("\r\n"))
            except UnicodeDecodeError:
                raise InputError(
                    f"{at(n)}: {line[:40]!r} is not UTF-8 text.",
                    hint='Say what it is: encoding="latin-1", for example.',
                    bare=f"{at(n)}: it is not UTF-8 text",
                ) from None
        return texts

    def _batch(self, texts: list[str], at: At) -> Batch[U]:
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
                raise InputError(
                    f"{at(n)}: {error.message}",
                    hint=error.hint,
                    bare=f"{at(n)}: the line is not what was declared",
                ) from None
            except Exception as error:
                raise InputError(
                    f"{at(n)}: {what_was_raised(error)}",
                    hint=f"The line is {text[:80]!r}.",
                    bare=f"{at(n)}: {type(error).__name__}",
                ) from error
        return batch_of_records(self.record, records, lambda n: at(numbers[n]))

    def _place(self, name: str, position: int, line: int) -> str:
        """Where the nth line after a position is. The lines before are counted again: only errors
        ask."""
        with open_text(name, self.encoding) as file:
            return f"{name}, line {_lines_before(file, position) + line + 1}"


def _nowhere(n: int) -> str:
    return ""


def _lines_before(file: BinaryIO, position: int) -> int:
    """Go on to a position; how many lines end before it."""
    count = 0
    while position > 0 and (data := file.read(min(position, CHUNK_BYTES))):
        count += data.count(b"\n")
        position -= len(data)
    return count


def _from(file: BinaryIO, name: str, position: int) -> list[bytes]:
    """The first lines from a position on, where one begins or the file ends.

    Raises:
        InputError: the file is shorter, or its last line goes on now.
    """
    skip(file, max(0, position - 1))
    before = file.read(min(1, position))
    lines = file.readlines(CHUNK_BYTES)
    if position and (not before or (lines and before != b"\n")):
        raise changed(name, position)
    return lines
