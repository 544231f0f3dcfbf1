"""A sink to a table: files at checkpoints, and one snapshot for each of them.

    <table>/data/<mark>/...parquet            the files
    <table>/_raystream/<mark>/staged-...json  what each instance has made at a checkpoint
    <table>/_raystream/<mark>/run-...json     the first of the runs that go on from each other

At a checkpoint each instance writes its rows as files and stages them. When the checkpoint is
committed (with a durable tier: saved), the instance with the first key group makes one snapshot of
all that is staged. The snapshot names the epoch in the same transaction, so an instance that
tries it again, a successor or one that was thought dead, sees that it is there. Two at once: the
table takes one.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pyarrow as pa

from raystream.api.batch import Batch
from raystream.api.connectors import Sink
from raystream.errors import ConfigError, GraphError, InternalError, OutputError
from raystream.filesystem import reason
from raystream.io.buckets.filesystems import advice
from raystream.io.buckets.paths import AnyPlace
from raystream.io.files.columns import written_as
from raystream.io.files.declared import file_schema
from raystream.io.output.formats import ParquetForm
from raystream.io.output.places import make, move_in, put, settle
from raystream.io.output.sink import RowsByEpoch
from raystream.io.tables.staging import StagedEntry, StagedFile, choose, decoded
from raystream.schema.records import record_schema
from raystream.schema.types import KeyRange, SinkContext

ATTEMPTS = 10
"""How often a snapshot is tried that others come in between of."""


class LakeTable(ABC):
    """A table of a lake, as a sink writes it. It is sent to the processes of a job."""

    @property
    @abstractmethod
    def named(self) -> str:
        """What messages call it."""

    @property
    def owned(self) -> AnyPlace | None:
        """Its folder, where no other sink of a flow writes, if that is known without asking."""
        return None

    @property
    @abstractmethod
    def place(self) -> AnyPlace:
        """Where its files are."""

    @abstractmethod
    def accept(self, schema: Any) -> None:
        """Refuse columns that it cannot hold. schema: of Arrow.

        Raises:
            GraphError: it cannot.
        """

    @abstractmethod
    def look(self, schema: Any) -> bool:
        """Whether the table is there. Its columns are compared, and nothing is changed.

        Raises:
            ConfigError: it is another one, or is not there and may not be made.
        """

    @abstractmethod
    def prepare(self, schema: Any) -> None:
        """Make the table if it is not there, and compare its columns.

        Raises:
            ConfigError: it cannot be made, or is another one.
        """

    @abstractmethod
    def marked(self, marker: str) -> int | None:
        """The epoch of the last snapshot with this marker."""

    @abstractmethod
    def append(self, files: Sequence[StagedFile], marker: str, epoch: int) -> bool:
        """Make a snapshot with files more, which says up to which epoch they go. Whether it was
        made: it is not if the table has changed since `marked` was called.

        Raises:
            OutputError: the table cannot be written.
        """


@dataclass
class LakeSink(Sink[Any]):
    """A sink that appends to a table."""

    table: LakeTable
    columns: tuple[tuple[str, str], ...] = ()
    kind: ClassVar[Literal["visible by checkpoint"]] = "visible by checkpoint"
    _part: _Staging | None = field(default=None, init=False, repr=False, compare=False)
    _record: type[Any] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def owns(self) -> AnyPlace | None:
        """Where the files of the table are."""
        return self.table.owned

    def accept(self, record: type[Any], /) -> None:
        """Refuse a second type of records, and one that the table cannot hold."""
        if self._record is not None and self._record is not record:
            raise GraphError(
                f"a table has rows of one type: {self._record.__name__} and {record.__name__} need"
                " two",
                hint="Give each a sink of its own.",
            )
        self._record = record
        self.table.accept(self._schema(record))

    def open(self, context: SinkContext, /) -> None:
        """Make the table if it is not there, and go on from what is staged."""
        assert self._record is not None
        with _writing(self.table.named):
            self.table.prepare(self._schema(self._record))
            self._part = _Staging(self.table, context, self.columns)

    def write(self, epoch: int, keys: KeyRange, batch: Batch[Any], /) -> None:
        """Keep the rows of an epoch."""
        if len(batch):
            with self._opened() as part:
                part.pending.add(epoch, batch)

    def prepare(self, epoch: int, /) -> None:
        """Write the rows up to a checkpoint as files, and stage them."""
        with self._opened() as part:
            part.stage(epoch)

    def commit(self, epoch: int, /) -> None:
        """Make the snapshot of a checkpoint, if this instance is the one that does."""
        with self._opened() as part:
            part.stage(epoch)
            if part.context.keys.lo == 0:
                part.publish(epoch)

    def close(self) -> None:
        """Discard what was not committed."""
        if self._part is not None:
            self._part.pending.discard()

    def check(self) -> str:
        """See whether the table is there, and has the columns."""
        assert self._record is not None
        with _writing(self.table.named):
            there = self.table.look(self._schema(self._record))
        said = "has the columns" if there else "is not there, and is made when the job begins"
        return f"{self.table.named} {said}"

    def _schema(self, record: type[Any]) -> Any:
        schema = file_schema(record_schema(record))
        names = written_as(record, self.columns)
        return pa.schema([f.with_name(name) for f, name in zip(schema, names, strict=True)])

    @contextmanager
    def _opened(self) -> Iterator[_Staging]:
        if self._part is None:
            raise InternalError("a sink to a table was used before it was opened")
        with _writing(self.table.named):
            yield self._part


class _Staging:
    """What one instance has received and not staged, and where it stages."""

    def __init__(
        self, table: LakeTable, context: SinkContext, columns: tuple[tuple[str, str], ...]
    ) -> None:
        self.table, self.context = table, context
        self.place = table.place
        self.staging = self.place / "_raystream" / _plain(context.mark or context.operator)
        self.data = self.place / "data" / _plain(context.mark or context.operator)
        make(self.staging)
        make(self.data)
        self.pending = RowsByEpoch(self.data, ParquetForm(), context.keys, columns)
        self.staged = context.committed
        self.last: StagedEntry | None = None
        self.first = self._first_run() if context.keys.lo == 0 else ""

    @property
    def marker(self) -> str:
        """What marks the snapshots of this job in the table."""
        return f"raystream.{_plain(self.context.mark or self.context.operator)}.{self.first}"

    def _first_run(self) -> str:
        """The first of the runs that go on from each other."""
        context = self.context
        for run in (context.run, context.resumed):
            path = self.staging / f"run-{_plain(run)}.json"
            if run and path.exists():
                first = str(json.loads(path.read_text())["first"])
                break
        else:
            if context.resumed and not context.begun:
                raise OutputError(
                    f"{self.place} lacks what the run {context.resumed} has staged, from which the"
                    " job goes on.",
                    hint="Go on with the table that was written before, or begin at the beginning"
                    " (--fresh).",
                )
            first = context.run
        known = {"first": first, "begun": context.begun}
        put(
            self.staging / f"run-{_plain(context.run)}.json", json.dumps(known), ".run-",
            lasting=context.lasting,
        )  # fmt: skip
        return first

    def stage(self, epoch: int) -> None:
        """Write the rows up to an epoch as files, and say so."""
        if epoch <= self.staged:
            return
        context = self.context
        files = []
        for n, (path, rows) in enumerate(self.pending.take(epoch)):
            name = (
                f"{_plain(context.run)}-{self.staged:09d}-{epoch:09d}-{context.keys.lo:05d}-"
                f"{context.generation:06d}-{n:03d}.parquet"
            )
            found = path.stat()
            move_in(path, self.data / name, lasting=context.lasting)
            within = str(self.data / name).removeprefix(f"{self.place}/")
            files.append(StagedFile(within, rows, found.st_size, found.st_mtime_ns // 1_000_000))
        if files and context.lasting:
            settle(self.data)
        entry = StagedEntry(
            context.run, context.number, context.generation, context.committed,
            self.staged, epoch, context.keys, tuple(files),
        )  # fmt: skip
        if self.last is not None and not files and not self.last.files:
            entry = self.last._replace(upto=epoch)  # it only says that there was nothing
        put(self.staging / entry.name, entry.encoded(), ".staged-", lasting=context.lasting)
        self.staged, self.last = epoch, entry

    def publish(self, epoch: int) -> None:
        """Make the snapshot of all that is staged up to an epoch, if it is not there."""
        for _ in range(ATTEMPTS):
            marked = self.table.marked(self.marker)
            after = self.context.begun if marked is None else marked
            if after >= epoch:
                return
            entries = self._entries()
            chosen = choose(entries, after, epoch)
            if chosen.files and not self.table.append(chosen.files, self.marker, epoch):
                continue  # others came in between: look again
            over = chosen.cut if chosen.files else []
            self._clear(entries, chosen.replaced + over, epoch if chosen.files else after)
            return
        raise OutputError(
            f"{self.place}: others change the table all the time, so that no snapshot can be made.",
            hint="Let fewer jobs write to one table at once.",
        )

    def _entries(self) -> list[StagedEntry]:
        """What the runs have staged that go on from each other."""
        found = []
        firsts: dict[str, str] = {}
        there: list[AnyPlace] = [*self.staging.glob("staged-*.json")]
        for path in there:
            try:
                entry = decoded(path.read_text())
            except FileNotFoundError:
                continue
            if entry.run not in firsts:
                firsts[entry.run] = self._first_of(entry.run)
            if firsts[entry.run] == self.first:
                found.append(entry)
        return found

    def _first_of(self, run: str) -> str:
        path = self.staging / f"run-{_plain(run)}.json"
        return str(json.loads(path.read_text())["first"]) if path.exists() else ""

    def _clear(self, entries: list[StagedEntry], replaced: list[StagedEntry], upto: int) -> None:
        """Remove what is in the table by now, and what was made again."""
        for entry in entries:
            if entry in replaced:
                for file in entry.files:
                    (self.place / file.path).unlink(missing_ok=True)
            elif entry.upto > upto:
                continue
            (self.staging / entry.name).unlink(missing_ok=True)


def _plain(name: str) -> str:
    """A name as a part of paths."""
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in name)


@contextmanager
def _writing(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{error.filename or place} cannot be written: {reason(error)}",
            hint=f"{advice(error)} What was committed before is whole.".strip(),
        ) from None


def other_columns(place: Any, held: Sequence[str], wanted: Sequence[str]) -> ConfigError:
    """The error of a table with other columns."""
    return ConfigError(
        f"the table at {place} has the columns {', '.join(held)}, and the records have"
        f" {', '.join(wanted)}",
        hint="Name another table, or say how columns are called: columns={field: column}.",
    )
