"""Sinks to files: epoch-addressed, so a part that is written again replaces itself.

Rows are kept by epoch and written in chunks to temporary files. At each checkpoint `prepare(epoch)`
makes parts of all rows up to that epoch, names them and then lists them in the manifest of the
range (`raystream.io.output.manifest`). `commit(epoch)` publishes them there. So parts roll with
checkpoints and not with epochs, and a sink holds up to a chunk and an epoch in memory.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from raystream.api.batch import Batch
from raystream.api.connectors import Sink
from raystream.api.looking import counted
from raystream.errors import ConfigError, InternalError, OutputError
from raystream.filesystem import reason
from raystream.io.buckets.filesystems import advice
from raystream.io.buckets.paths import AnyPlace
from raystream.io.files.columns import written_as
from raystream.io.files.declared import table_of
from raystream.io.files.nested import Form
from raystream.io.output.manifest import (
    Manifest,
    PartFile,
    add,
    half_written,
    lacks,
    left_behind,
    listed,
    manifest_path,
    newest,
    part_path,
    read_manifests,
    span,
    superseded,
    take_over,
    write_manifest,
)
from raystream.io.output.places import make, move_in, settle, try_place, unfinished
from raystream.schema.types import KeyRange, SinkContext

CHUNK_ROWS = 262_144
"""Rows of a type that are kept in memory before they are written."""


class PartFormat(Protocol):
    """How a part is stored. `write` and `read` are each other's inverse on Arrow tables."""

    suffix: ClassVar[str]
    values: ClassVar[Form]

    def write(self, table: Any, path: Path) -> None: ...
    def read(self, path: Path, schema: Any) -> Any: ...


@dataclass
class PartSink(Sink[Any]):
    """A sink of files; each instance writes the parts and the manifest of its key groups.

    The folder belongs to the sink. When a run begins, output of earlier runs is removed, except for
    that up to the saved checkpoint from which the run goes on. A folder is for one job at a time.
    """

    folder: AnyPlace
    form: PartFormat
    columns: tuple[tuple[str, str], ...] = ()
    kind: ClassVar[Literal["epoch-addressed"]] = "epoch-addressed"
    _range: _Range | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def owns(self) -> AnyPlace:
        """The folder, which no other sink or source of the flow may use."""
        return self.folder

    def accept(self, record: type[Any], /) -> None:
        """Refuse records whose columns could not be told apart."""
        written_as(record, self.columns)

    def open(self, context: SinkContext, /) -> None:
        """Make the folder, go on from what was committed, discard what came later.

        Raises:
            ConfigError: the folder cannot be made or written.
            OutputError: what was committed is not there.
        """
        try:
            make(self.folder)
            begun = _begin(self.folder, context)
            self._range = _Range(self.folder, self.form, begun, self.columns)
        except OSError as error:
            raise ConfigError(
                f"The sink {context.operator} cannot write to {self.folder}: {reason(error)}.",
                hint=advice(error) or "Name a folder that can be written.",
            ) from error

    def write(self, epoch: int, keys: KeyRange, batch: Batch[Any], /) -> None:
        """Keep the rows of an epoch. Those of an epoch that is committed are there already."""
        self._opened().write(epoch, batch)

    def prepare(self, epoch: int, /) -> None:
        """Make parts of all rows up to the checkpoint at `epoch` and list them. With a durable tier
        they are also forced to the disk: a saved checkpoint outlives a loss of power, so its output
        must, too.

        A successor goes on from there and recognises rows that come again by their epoch.
        """
        self._opened().prepare(epoch)

    def commit(self, epoch: int, /) -> None:
        """Nothing up to `epoch` will come again: let readers count on it."""
        self._opened().prepare(epoch)
        self._opened().show(epoch)

    def close(self) -> None:
        """Say in the manifest that no more will come."""
        self._opened().close()

    def check(self) -> str:
        """See whether the folder can be written, and whether what is there is output."""
        with _writing(self.folder):
            made = try_place(self.folder)
            runs = len({m.run for m in read_manifests(self.folder)})
        there = f"; it holds output of {counted(runs, 'run')}" if runs else ""
        return f"{self.folder} can be {'made' if made else 'written'}{there}"

    def _opened(self) -> _Range:
        if self._range is None:
            raise InternalError(f"The sink to {self.folder} was used before it was opened.")
        return self._range


def _begin(folder: AnyPlace, context: SinkContext) -> Manifest:
    """The manifest to go on from; leftovers of earlier runs and lives are removed."""
    run, keys, checkpoint = context.run, context.keys, context.committed
    found = read_manifests(folder) if checkpoint else newest(left_behind(folder))
    mine = next((m for m in found if (m.run, m.keys) == (run, keys)), None)
    if mine is not None and mine.generation > context.generation:
        raise replaced(folder)
    if checkpoint:
        if any(context.number < m.number and m.upto(context.resumed) for m in found):
            raise replaced(folder)  # by a run that went on from there, too, and began before this
        if mine is None and checkpoint == context.begun:
            mine = _added(folder, found, run, keys, context.resumed, checkpoint)
        mine = mine or take_over(folder, found, run, keys, context.resumed, checkpoint)
        if mine.committed < checkpoint:
            raise lacks(folder, keys, checkpoint)
    elif mine is None or mine.ended:
        mine = Manifest(run, keys)
    mine = replace(
        mine, lasting=context.lasting, generation=context.generation, number=context.number
    )
    mine = listed(folder, mine)
    write_manifest(folder, mine)
    if checkpoint:
        gone = superseded(read_manifests(folder), run)
    else:  # what has ended under the same name was another run
        gone = [m for m in found if m.run != run or (m.ended and m.keys.overlaps(keys))]
    _clear(folder, mine, gone)
    return mine


def _added(
    folder: AnyPlace,
    manifests: Sequence[Manifest],
    run: str,
    keys: KeyRange,
    before: str,
    checkpoint: int,
) -> Manifest:
    """The first manifest of a range of a sink that is new in a run that goes on from a checkpoint
    of the run `before`. A later run takes it over as if `before` had written it.

    Args:
        manifests: those of the folder: of earlier attempts to begin with this sink, if any.

    Raises:
        OutputError: the folder holds the output of another sink.
    """
    for m in manifests:
        if m.run != run and (
            m.upto(before) < checkpoint or any(p.after < checkpoint for p in m.parts)
        ):
            raise OutputError(
                f"{folder} holds output of run {m.run}, and the sink is new in this job.",
                hint="If it is a sink of before under another name, say so: --rename OLD=NEW"
                " (rename={'OLD': 'NEW'}). Otherwise name another folder, or empty this one.",
            )
    return Manifest(run, keys, checkpoint, checkpoint, older={before: checkpoint})


_PART = re.compile(r"(.+)-\d{9,}-\d{9,}-(\d{5}-\d{5})-\d{3,}\.\w+")
_TEMPORARY = re.compile(r"\.(\d{5}-\d{5})-.*\.tmp")


def _clear(folder: AnyPlace, mine: Manifest, gone: Sequence[Manifest]) -> None:
    """Remove what manifests that no longer count have listed, and then these, those of smaller
    generations with them; and what was made of their ranges and of this one and is not listed.

    PartSink go first: a manifest that is still there says whose leftovers to look for.
    """
    # before the manifests: what others have made is listed in one
    there: list[AnyPlace] = [*folder.glob("*/*")]
    found = left_behind(folder)
    same = [m for m in found if (m.run, m.keys) == (mine.run, mine.keys)]
    gone = [*gone, *(m for m in same if m.generation < mine.generation)]
    now = [m for m in found if m not in gone]
    counts = {part.path for m in now for part in m.parts}
    unlisted = {part.path for m in gone for part in m.parts}
    runs = {m.run for m in gone} - {mine.run}
    spans = {span(m.keys) for m in gone} - {span(m.keys) for m in now} | {span(mine.keys)}
    for path in there:
        if part := _PART.fullmatch(path.name):
            if part[1] in runs or (part[1], part[2]) == (mine.run, span(mine.keys)):
                unlisted.add(path)
        elif (temporary := _TEMPORARY.fullmatch(path.name)) and temporary[1] in spans:
            unlisted.add(path)
    for m in gone:
        if m.lists and (m.run, m.keys) != (mine.run, mine.keys):
            write_manifest(folder, Manifest(m.run, m.keys))  # it names no list that goes before it
    for path in unlisted - counts:
        path.unlink(missing_ok=True)
    of_gone = {manifest_path(folder, m) for m in gone} - {manifest_path(folder, mine)}
    for path in (*half_written(folder, mine, gone), *of_gone):
        path.unlink(missing_ok=True)


class _Range:
    """What one instance has received and not yet committed."""

    def __init__(
        self,
        folder: AnyPlace,
        form: PartFormat,
        manifest: Manifest,
        columns: tuple[tuple[str, str], ...],
    ) -> None:
        self.folder = folder
        self.columns = columns
        self.form = form
        self.manifest = manifest
        self.types: dict[str, RowsByEpoch] = {}
        self._written = self._there()

    def write(self, epoch: int, batch: Batch[Any]) -> None:
        if epoch <= self.manifest.committed or not len(batch):
            return  # committed: these are the same rows, made again after a restart
        name = batch.record.__name__
        with _writing(self.folder / name):
            if name not in self.types:
                folder = self.folder / name
                folder.mkdir(exist_ok=True)
                self.types[name] = RowsByEpoch(folder, self.form, self.manifest.keys, self.columns)
            self.types[name].add(epoch, batch)

    def prepare(self, epoch: int) -> None:
        if epoch <= self.manifest.committed:
            return
        self._check_there()
        parts = []
        for name, pending in self.types.items():
            with _writing(self.folder / name):
                made = pending.take(epoch)
                for number, (path, rows) in enumerate(made):
                    part = PartFile(
                        path, name, self.manifest.committed, epoch, self.manifest.keys, number, rows
                    )
                    final = part_path(self.folder, self.manifest.run, part, self.form.suffix)
                    move_in(path, final, lasting=self.manifest.lasting)
                    parts.append(part._replace(path=final))
                if made and self.manifest.lasting:
                    settle(self.folder / name)
        with _writing(self.folder):
            self._list(add(self.folder, self.manifest, epoch, parts))

    def show(self, epoch: int) -> None:
        if epoch <= self.manifest.shown:
            return
        self._check_there()
        with _writing(self.folder):
            self._list(replace(self.manifest, shown=epoch))

    def close(self) -> None:
        open_epochs = [p.discard() for p in self.types.values()]
        if not any(open_epochs):
            self._check_there()
            with _writing(self.folder):
                self._list(replace(self.manifest, ended=True))

    def _list(self, manifest: Manifest) -> None:
        self.manifest = manifest
        write_manifest(self.folder, manifest)
        self._written = self._there()

    def _there(self) -> bytes:
        """The manifest that is there; nothing, if none is."""
        with contextlib.suppress(FileNotFoundError):
            return manifest_path(self.folder, self.manifest).read_bytes()
        return b""

    def _check_there(self) -> None:
        """Raise if the manifest is no longer the one that this instance wrote. A later run removes
        it and a successor replaces it; then a process that was thought dead must not write it
        again."""
        with _writing(self.folder):
            there = self._there()
        if there != self._written:
            raise replaced(self.folder)


def replaced(folder: AnyPlace) -> OutputError:
    """The error of an instance that was replaced."""
    return OutputError(
        f"{folder} is another run's now, or another process of this one has taken the"
        " place: what this process listed there was removed or replaced.",
        hint="A job runs once at a time, and each has a folder of its own.",
    )


@dataclass
class _Chunk:
    """A temporary file: the rows of some epochs, in order."""

    path: Path
    schema: Any
    rows_by_epoch: dict[int, int]


class RowsByEpoch:
    """Rows of one record type by epoch: the newest in memory, those before in chunks."""

    def __init__(
        self,
        folder: AnyPlace,
        form: PartFormat,
        keys: KeyRange,
        columns: tuple[tuple[str, str], ...],
    ) -> None:
        self.folder = folder
        self.columns = columns
        self.form = form
        self.prefix = f".{span(keys)}-"
        self.chunks: list[_Chunk] = []
        self.tables: dict[int, Any] = {}
        self.rows = 0

    def add(self, epoch: int, batch: Batch[Any]) -> None:
        """Keep a batch; it replaces an earlier one of its epoch.

        One that is in a chunk stays: what is made again is the same.
        """
        if any(epoch in chunk.rows_by_epoch for chunk in self.chunks):
            return
        replaced = self.tables.get(epoch)
        names = written_as(batch.record, self.columns)
        self.tables[epoch] = table_of(batch, self.form.values).rename_columns(names)
        self.rows += len(batch) - (0 if replaced is None else replaced.num_rows)
        if self.rows >= CHUNK_ROWS:
            self.chunks.append(self._store(self.tables))
            self.tables, self.rows = {}, 0

    def take(self, upto: int) -> list[tuple[Path, int]]:
        """Files with all rows of the epochs up to `upto`, and how many rows each has."""
        done, rest = [], []
        for chunk in self.chunks:
            before, after = self._cut(chunk, upto)
            done += [before] if before is not None else []
            rest += [after] if after is not None else []
        now = {e: t for e, t in self.tables.items() if e <= upto}
        if now:
            done.append(self._store(now))
        self.chunks = rest
        self.tables = {e: t for e, t in self.tables.items() if e > upto}
        self.rows -= sum(t.num_rows for t in now.values())
        return [(chunk.path, sum(chunk.rows_by_epoch.values())) for chunk in done]

    def discard(self) -> bool:
        """Drop what was not committed; whether there was any."""
        for chunk in self.chunks:
            with contextlib.suppress(OSError):
                chunk.path.unlink(missing_ok=True)
        return bool(self.chunks or self.tables)

    def _cut(self, chunk: _Chunk, upto: int) -> tuple[_Chunk | None, _Chunk | None]:
        """A chunk as what belongs to the epochs up to `upto`, and what comes after."""
        if max(chunk.rows_by_epoch) <= upto:
            return chunk, None
        if min(chunk.rows_by_epoch) > upto:
            return None, chunk
        table = self.form.read(chunk.path, chunk.schema)
        tables, at = {}, 0
        for epoch, rows in chunk.rows_by_epoch.items():
            tables[epoch] = table.slice(at, rows)
            at += rows
        halves = (
            self._store({e: t for e, t in tables.items() if e <= upto}),
            self._store({e: t for e, t in tables.items() if e > upto}),
        )
        chunk.path.unlink()
        return halves

    def _store(self, tables: dict[int, Any]) -> _Chunk:
        """Write tables, by epoch, into a temporary file."""
        import pyarrow as pa

        epochs = sorted(tables)
        table = pa.concat_tables([tables[e] for e in epochs])
        path = unfinished(self.folder, self.prefix)
        self.form.write(table, path)
        return _Chunk(path, table.schema, {e: tables[e].num_rows for e in epochs})


@contextmanager
def _writing(path: AnyPlace) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{error.filename or path} cannot be written: {reason(error)}",
            hint=f"{advice(error)} What was committed before is whole.".strip(),
        ) from None
