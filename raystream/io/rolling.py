"""Sinks to files: epoch-addressed, so a part that is written again replaces itself.

What comes in is kept by epoch and written in chunks to temporary files. `prepare(epoch)`, at each
cut, makes parts of all rows up to that epoch, gives them their names and then lists them in the
manifest of the range (`raystream.io.manifest`); `commit(epoch)` says there that they count. So
parts roll with the cut and not with every epoch, and memory stays within a chunk and an epoch.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from raystream.api.batch import Batch
from raystream.errors import ConfigError, InternalError, OutputError
from raystream.io.conform import table_of
from raystream.io.files import make_folder, reason, sync
from raystream.io.manifest import (
    Manifest,
    Part,
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
from raystream.schema.types import KeyRange, SinkContext

CHUNK_ROWS = 262_144
"""Rows of a type that are kept in memory before they are written."""


class Form(Protocol):
    """How a part is stored. `write` and `read` are each other's inverse on Arrow tables."""

    suffix: ClassVar[str]

    def write(self, table: Any, path: Path) -> None: ...
    def read(self, path: Path, schema: Any) -> Any: ...


@dataclass
class Parts:
    """A sink of files; each instance writes the parts and the manifest of its key groups.

    The folder belongs to the sink: output that an earlier run left there is removed when a run
    begins, but for what came up to the saved cut from which the run goes on. A folder is for one
    job at a time.
    """

    folder: Path
    form: Form
    kind: ClassVar[Literal["epoch-addressed"]] = "epoch-addressed"
    _range: _Range | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def owns(self) -> Path:
        """The folder, which no other sink or source of the flow may use."""
        return self.folder

    def open(self, context: SinkContext) -> None:
        """Make the folder, go on from what was committed, discard what came later.

        Raises:
            ConfigError: the folder cannot be made or written.
            OutputError: what was committed is not there.
        """
        try:
            make_folder(self.folder)
            self._range = _Range(self.folder, self.form, _begin(self.folder, context))
        except OSError as error:
            raise ConfigError(
                f"The sink {context.operator} cannot write to {self.folder}: {reason(error)}.",
                hint="Name a folder that can be written.",
            ) from error

    def write(self, epoch: int, keys: KeyRange, batch: Batch[Any], /) -> None:
        """Keep the rows of an epoch. Those of an epoch that is committed are there already."""
        self._opened().write(epoch, batch)

    def prepare(self, epoch: int) -> None:
        """Make parts of everything up to the cut at `epoch` and list them. In a job with a durable
        tier they are on the disk then: a saved cut outlives the power, and is not to know of output
        that is gone.

        A successor goes on from there: what it is given again is recognised by its epoch.
        """
        self._opened().prepare(epoch)

    def commit(self, epoch: int, /) -> None:
        """Nothing up to `epoch` will come again: let readers count on it."""
        self._opened().prepare(epoch)
        self._opened().show(epoch)

    def close(self) -> None:
        """Say in the manifest that no more will come."""
        self._opened().close()

    def _opened(self) -> _Range:
        if self._range is None:
            raise InternalError(f"The sink to {self.folder} was used before it was opened.")
        return self._range


def _begin(folder: Path, context: SinkContext) -> Manifest:
    """The manifest to go on from; leftovers of earlier runs and lives are removed."""
    run, keys, cut = context.run, context.keys, context.committed
    found = read_manifests(folder) if cut else newest(left_behind(folder))
    mine = next((m for m in found if (m.run, m.keys) == (run, keys)), None)
    if mine is not None and mine.generation > context.generation:
        raise replaced(folder)
    if cut:
        if any(context.number < m.number and m.upto(context.resumed) for m in found):
            raise replaced(folder)  # by a run that went on from there, too, and began before this
        mine = mine or take_over(folder, found, run, keys, context.resumed, cut)
        if mine.committed < cut:
            raise lacks(folder, keys, cut)
    elif mine is None or mine.ended:
        mine = Manifest(run, keys)
    mine = replace(
        mine, lasting=context.lasting, generation=context.generation, number=context.number
    )
    mine = listed(folder, mine)
    write_manifest(folder, mine)
    if cut:
        gone = superseded(read_manifests(folder), run)
    else:  # what has ended under the same name was another run
        gone = [m for m in found if m.run != run or (m.ended and _meet(m.keys, keys))]
    _clear(folder, mine, gone)
    return mine


def _meet(one: KeyRange, two: KeyRange) -> bool:
    return one.lo < two.hi and two.lo < one.hi


_PART = re.compile(r"(.+)-\d{9,}-\d{9,}-(\d{5}-\d{5})-\d{3,}\.\w+")
_TEMPORARY = re.compile(r"\.(\d{5}-\d{5})-.*\.tmp")


def _clear(folder: Path, mine: Manifest, gone: Sequence[Manifest]) -> None:
    """Remove what manifests that no longer count have listed, and then these, those of smaller
    generations with them; and what was made of their ranges and of this one and is not listed.

    Parts go first: a manifest that is still there says whose leftovers to look for.
    """
    there = list(folder.glob("*/*"))  # before the manifests: what others have made is listed in one
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

    def __init__(self, folder: Path, form: Form, manifest: Manifest) -> None:
        self.folder = folder
        self.form = form
        self.manifest = manifest
        self.types: dict[str, _Pending] = {}
        self._written = self._there()

    def write(self, epoch: int, batch: Batch[Any]) -> None:
        if epoch <= self.manifest.committed or not len(batch):
            return  # committed: these are the same rows, made again after a restart
        name = batch.record.__name__
        with _writing(self.folder / name):
            if name not in self.types:
                folder = self.folder / name
                folder.mkdir(exist_ok=True)
                self.types[name] = _Pending(folder, self.form, self.manifest.keys)
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
                    part = Part(
                        path, name, self.manifest.committed, epoch, self.manifest.keys, number, rows
                    )
                    final = part_path(self.folder, self.manifest.run, part, self.form.suffix)
                    if self.manifest.lasting:
                        sync(path)
                    os.replace(path, final)
                    parts.append(part._replace(path=final))
                if made and self.manifest.lasting:
                    sync(self.folder / name)
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
        """Whoever begins later in the folder removes the manifest, and a successor goes on with it:
        a process that was thought dead is to put its own there no more."""
        with _writing(self.folder):
            there = self._there()
        if there != self._written:
            raise replaced(self.folder)


def replaced(folder: Path) -> OutputError:
    """What is raised by whoever has no place any more."""
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


class _Pending:
    """Rows of one record type by epoch: the newest in memory, those before in chunks."""

    def __init__(self, folder: Path, form: Form, keys: KeyRange) -> None:
        self.folder = folder
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
        self.tables[epoch] = table_of(batch)
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
        handle, name = tempfile.mkstemp(prefix=self.prefix, suffix=".tmp", dir=self.folder)
        os.close(handle)
        os.chmod(name, 0o644)  # as other files, not as a secret
        self.form.write(table, Path(name))
        return _Chunk(Path(name), table.schema, {e: tables[e].num_rows for e in epochs})


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{error.filename or path} cannot be written: {reason(error)}",
            hint="What was committed before is whole.",
        ) from None
