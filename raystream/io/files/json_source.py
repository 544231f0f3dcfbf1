"""JSON as a source: an object on each line, or one array, or objects over several lines.

Of JSON Lines a position is an offset in bytes, of other JSON a number of values. Which of them a
file is, its beginning says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, TypeVar

from raystream.api.batch import Batch
from raystream.api.connectors import Source, changed
from raystream.errors import InputError
from raystream.io.files.bad_lines import Lines
from raystream.io.files.columns import place_value
from raystream.io.files.declared import batch_of_records
from raystream.io.files.handles import Handles
from raystream.io.files.json_values import has_lines, values
from raystream.io.files.jsonlines import JSON_SUFFIXES, JsonLine, json_path
from raystream.io.files.lines import TextFiles
from raystream.io.files.listing import BATCH_ROWS, hive_values, splits_of
from raystream.io.files.reading import open_text, reading
from raystream.schema.fields import AnyRecord
from raystream.schema.records import record_schema
from raystream.schema.types import Split

U = TypeVar("U", bound=AnyRecord)


@dataclass(frozen=True)
class JsonFiles(Source[U]):
    """One split per file. Names that the record does not declare are not read."""

    paths: tuple[str, ...]
    record: type[U]
    mapping: tuple[tuple[str, str], ...] = ()
    encoding: str | None = None
    suffixes: ClassVar[tuple[str, ...]] = JSON_SUFFIXES

    @property
    def reads(self) -> tuple[str, ...]:
        """The paths, patterns or folders, in which no sink of the flow may write."""
        return self.paths

    def splits(self) -> Sequence[Split]:
        """The files, sorted by name."""
        return splits_of(self.paths, self.suffixes, may_be_empty=True)

    def read(self, split: Split, position: int, /) -> Iterator[tuple[int, Batch[U]]]:
        """Batches of the lines that begin in a chunk of bytes, or of `BATCH_ROWS` values."""
        line = self._line(split.name)
        if self._has_lines(split.name):
            yield from self._as_text(line).read(split, position)
        else:
            yield from self._values(split.name, line, position)

    def lines(self, name: str, position: int) -> Iterator[Lines[U]]:
        """As `read`, with each line, or value, by itself; see `raystream.io.files.bad_lines`.

        Raises:
            InputError: there is no next value, because what comes is no JSON.
        """
        line = self._line(name)
        if self._has_lines(name):
            yield from self._as_text(line).lines(name, position)
            return
        parse = self._as_text(line)._alone
        with open_text(name, self.encoding) as file:
            found = enumerate(values(file, name), 1)
            while some := list(islice(found, BATCH_ROWS)):
                end = some[-1][0]
                if end > position:
                    some = [each for each in some if each[0] > position]
                    rows = [text.encode() for _, (_, _, text) in some]
                    yield Lines(end, rows, [number for _, (number, *_) in some], parse)

    def _has_lines(self, name: str) -> bool:
        with reading(name), open_text(name, self.encoding) as file:
            return has_lines(file)

    def _line(self, name: str) -> JsonLine[U]:
        mapping = tuple((f, json_path(column)) for f, column in self.mapping)
        return JsonLine(self.record, mapping, self._places(name))

    def _as_text(self, line: JsonLine[U]) -> TextFiles[U]:
        return TextFiles(self.paths, self.record, line, encoding=self.encoding)

    def _places(self, name: str) -> tuple[tuple[str, Any], ...]:
        """The fields that the path of a file has a value for."""
        called, places = dict(self.mapping), hive_values(name)
        fields = record_schema(self.record).fields if places else ()
        return tuple(
            (f.name, place_value(f, column, places[column], name).as_py())
            for f in fields
            if (column := called.get(f.name, f.name)) in places and f.kind != "object"
        )

    def _values(
        self, name: str, line: JsonLine[U], position: int
    ) -> Iterator[tuple[int, Batch[U]]]:
        with Handles(name, lambda: open_text(name, self.encoding)) as handle:
            found, end = values(handle.open(), name), 0
            more = True
            while more:
                rows, numbers = [], []
                with reading(name):
                    for number, value, _ in found:
                        end += 1
                        if end > position:
                            rows.append(self._record(name, line, number, value))
                            numbers.append(number)
                        if end % BATCH_ROWS == 0:
                            break
                    else:
                        more = False
                if rows:
                    at = [f"{name}, line {n}" for n in numbers]
                    batch = batch_of_records(self.record, rows, at.__getitem__)
                    if more:
                        handle.rest()
                    else:
                        handle.close()
                    yield end, batch
                    if more and (again := handle.again()) is not None:
                        found, position, end = values(again, name), end, 0
            if end < position:
                raise changed(name, position)

    def _record(self, name: str, line: JsonLine[U], number: int, value: Any) -> U:
        try:
            return line.of(value)
        except InputError as error:
            raise InputError(f"{name}, line {number}: {error.message}", hint=error.hint) from None
