"""Damaged lines as a stream of their own: what `bad="stream"` makes of a source.

A source yields records of one type. So a source of this kind yields records that are either a
record as declared or what is wrong with a line (`mixed_of`), and two stateless operators, which are
part of every instance of it, tell them apart. What is emitted of a line, and in which epoch,
follows from the file alone, so it comes exactly once, as records do.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from raystream.api.batch import Batch
from raystream.api.connectors import Source
from raystream.api.operators import OperatorSpec
from raystream.errors import InputError, Where
from raystream.io.made_types import MadeTypes
from raystream.schema.fields import AnyRecord, Field
from raystream.schema.records import RecordSchema, record_hints, record_schema
from raystream.schema.types import Int64, Split

U = TypeVar("U", bound=AnyRecord)
M = TypeVar("M")


class BadLine(NamedTuple):
    """A line of a file that could not be read as a record of the declared type."""

    time: Int64
    """That of the record before it in the file, or of the next one if there is none."""
    file: str
    line: int
    column: str | None
    """The column whose value does not fit, if it is one."""
    reason: str
    data: bytes
    """The line, in UTF-8."""


class Lines(NamedTuple, Generic[U]):
    """A part of a file: rows as bytes, without those that are none (blank ones, comments)."""

    end: int
    """The position behind it."""
    rows: list[bytes]
    numbers: list[int]
    """The line at which each row begins."""
    parse: Callable[[Sequence[bytes]], Batch[U]]
    """Makes records of rows. Raises `InputError` if it cannot of one of them."""


class ByLines(Protocol[U]):
    """A source of files that can say what each line of them is."""

    @property
    def record(self) -> Any: ...
    @property
    def reads(self) -> Any: ...
    def splits(self) -> Sequence[Split]: ...
    def lines(self, name: str, position: int) -> Iterator[Lines[U]]: ...


FILE, LINE, COLUMN = "raystream_file", "raystream_line", "raystream_column"
REASON, DATA = "raystream_reason", "raystream_data"
_COLUMN_NAMED = re.compile(r"'([^']+)' is ")


@dataclass(frozen=True)
class Sorted(Source[Any]):
    """The records of files, and their damaged lines."""

    files: ByLines[Any]

    @property
    def record(self) -> Any:
        """What is read of a line, before it is told apart."""
        return mixed_of(self.files.record)

    @property
    def reads(self) -> Any:
        """As of the files."""
        return self.files.reads

    def splits(self) -> Sequence[Split]:
        """As of the files."""
        return self.files.splits()

    def read(self, split: Split, position: int, /) -> Iterator[tuple[int, Batch[Any]]]:
        """A batch for each part of a file that has rows."""
        for part in self.files.lines(split.name, position):
            found = sifted(part.rows, part.parse)
            data = [row.rstrip(b"\r\n") for row in part.rows]
            batch = mixed(self.files.record, split.name, part.numbers, data, found)
            if len(batch):
                yield part.end, batch

    def stages(self, where: Where) -> tuple[OperatorSpec, ...]:
        """What tells records and damaged lines apart."""
        return stages_of(self.files.record, BadLine, _PARTS, "bad lines", where)


_PARTS = {"file": FILE, "line": LINE, "column": COLUMN, "reason": REASON, "data": DATA}


def stages_of(
    record: Any, bad: type[Any], parts: Mapping[str, str], name: str, where: Where
) -> tuple[OperatorSpec, ...]:
    """The stages of a source that yields records of `mixed_of(record)`.

    Args:
        bad: the type of what is none. parts: by its fields those of `mixed_of`; it may have a
            field `time`, too.
        name: of what is none, for messages.
    """
    both = record_schema(mixed_of(record))
    return (
        stage("records", _Records(record), both, record, where),
        stage(name, _Bad(bad, tuple(parts.items())), both, bad, where),
    )


def stage(
    name: str, target: Any, takes: RecordSchema, record: type[Any], where: Where
) -> OperatorSpec:
    """A stage of a source: an operator without a key, over batches.

    Args:
        target: what has `process`. takes: its input. record: the type of its output.
    """
    return OperatorSpec(
        name=name,
        where=where,
        target=target,
        form="batch",
        inputs=(takes,),
        outputs=(record_schema(record),),
        state=None,
        key=(),
        order_by=None,
        window=None,
        time="time",
        compiled=False,
        process=target.process,
    )


Found = Batch[Any] | tuple[int, InputError]


def sifted(
    rows: Sequence[M], parse: Callable[[Sequence[M]], Batch[Any]], first: int = 0
) -> list[Found]:
    """The records of rows, and for each row that is none its number and what is wrong with it.

    Args:
        parse: makes a record of each row, or raises `InputError`.
        first: the number of the first row.
    """
    if not rows:
        return []
    try:
        return [parse(rows)]
    except InputError as error:
        if len(rows) == 1:
            return [(first, error)]
    half = len(rows) // 2
    return [*sifted(rows[:half], parse, first), *sifted(rows[half:], parse, first + half)]


def mixed(
    record: type,
    name: str,
    numbers: Sequence[int],
    data: Sequence[bytes | None],
    found: list[Found],
    *,
    timed: bool = True,
) -> Batch[Any]:
    """What was found of rows, as one batch of `mixed_of`.

    Args:
        name: of the split. numbers, data: of each row.
        timed: what is bad has the time of the record before it. Otherwise it has time 0: what comes
            before it in a batch depends on how messages arrived.
    """
    both = mixed_of(record)
    names = record_schema(record).names
    extra = (FILE, LINE, COLUMN, REASON, DATA)
    if len(found) == 1 and isinstance(whole := found[0], Batch):
        n = len(whole)
        told: dict[str, Any] = {name: whole[name] for name in names}
        told |= {FILE: [None] * n, LINE: np.zeros(n, np.int64), COLUMN: [None] * n}
        return Batch(both, told | {REASON: [None] * n, DATA: [None] * n})
    rows: list[tuple[Any, ...]] = []
    last = next((r for f in found if isinstance(f, Batch) for r in f.records()), None)
    fields = record_schema(record).fields
    for each in found:
        if isinstance(each, Batch):
            for one in each.records():
                last = one
                rows.append((*(getattr(one, n) for n in names), None, 0, None, None, None))
            continue
        at, error = each
        before = last if timed else None
        fill = (_filler(f, before) if may_be_time(f) else None for f in fields)
        reason = error.message.removeprefix(": ").strip()
        column = _COLUMN_NAMED.match(reason)
        rows.append((*fill, name, numbers[at], column and column[1], reason, data[at]))
    columns = zip(*rows, strict=True) if rows else ((),) * (len(names) + len(extra))
    return Batch(both, dict(zip((*names, *extra), map(list, columns), strict=True)))


def may_be_time(f: Field) -> bool:
    """Whether a field may be event time, and so has a value for a damaged line, too."""
    return f.integer and not f.optional and (f.value is None or f.moment)


def _filler(f: Field, last: Any) -> Any:
    """The value of a damaged line: that of the record before it."""
    if last is not None:
        return getattr(last, f.name)
    return 0 if f.value is None else f.value.restore(0)


@dataclass(frozen=True)
class _Records:
    """Takes the records out of what was read."""

    record: type

    def process(self, batch: Batch[Any]) -> Batch[Any]:
        sound = batch[REASON].is_null().to_numpy(zero_copy_only=False)
        if not sound.all():
            batch = batch.take(sound)
        schema = record_schema(self.record)
        columns = {name: batch[name] for name in schema.names}
        return Batch(self.record, columns, origin=np.flatnonzero(sound))


@dataclass(frozen=True)
class _Bad:
    """Takes what is no record out of what was read. parts: as of `stages_of`."""

    kind: type
    parts: tuple[tuple[str, str], ...]

    def process(self, batch: Batch[Any]) -> Batch[Any]:
        bad = batch[REASON].is_valid().to_numpy(zero_copy_only=False)
        at = np.flatnonzero(bad)
        batch = batch.take(at)
        there = record_schema(batch.record)
        columns: dict[str, Any] = {name: batch[part] for name, part in self.parts}
        if record_schema(self.kind).has_time("time"):
            timed = there.has_time("time")
            columns["time"] = batch._columns.column("time") if timed else [0] * len(at)
        return Batch(self.kind, columns, origin=at)


# ---------------------------------------------------------------- the type of what is read


@cache
def mixed_of(record: type) -> type:
    """The type of what is read of a line: the fields of a record, which may be None but for
    integers (time is one), and those of a damaged line."""
    schema = record_schema(record)
    hints = record_hints(record)
    fields = [
        (f.name, hints[f.name] if may_be_time(f) else typing.Optional[hints[f.name]])  # noqa: UP045  of any hint
        for f in schema.fields
    ]
    fields += [(FILE, str | None), (LINE, int), (COLUMN, str | None)]
    fields += [(REASON, str | None), (DATA, bytes | None)]
    return _TYPES.new(record, fields)


_TYPES = MadeTypes(__name__, "Read ", mixed_of)


def __getattr__(name: str) -> Any:
    """A type of `mixed_of`, by its name."""
    return _TYPES.find(name)
