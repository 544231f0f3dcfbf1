"""The committed output of a job's file sink, as a source of Spark.

An offset is an epoch: all parts up to it that the sink's manifests show. They never change, so a
batch that is computed again has the same rows. Parts that are not committed are no output: a job
that fails writes them again, maybe cut otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

import raystream as rs
from raystream.errors import ConfigError, InputError, JobError

KNOWN = ("path", "record", "key_groups")
NOTHING: dict[str, Any] = {"epoch": 0, "first": ""}
"""The offset before all output."""


@dataclass(frozen=True)
class Output:
    """What the options of a reader say. folder: that of the sink. record: the name of the record
    class, "" where the sink has one. key_groups: those of the flow."""

    folder: str
    record: str
    key_groups: int

    def parts(self, *, partial: bool = True) -> list[Any]:
        """What is committed, in order; nothing where no sink has begun."""
        try:
            found = rs.io.parts(self.folder, key_groups=self.key_groups, partial=partial)
        except InputError:
            if os.path.isdir(self.folder) and any(
                name.startswith("_manifest-") for name in os.listdir(self.folder)
            ):
                raise
            return []
        return found

    def of_record(self, parts: Sequence[Any]) -> list[Any]:
        """The parts of the record that was asked for.

        Raises:
            ConfigError: the sink has several, and none was named.
        """
        names = sorted({part.record for part in parts})
        if not self.record and len(names) > 1:
            raise ConfigError(
                f"raystream: {self.folder} holds records of several types: {', '.join(names)}",
                hint='Name one of them: .option("record", "...")',
            )
        return [part for part in parts if not self.record or part.record == self.record]

    def schema(self) -> StructType:
        """The columns of the first part.

        Raises:
            ConfigError: there is no part yet.
        """
        for part in self.of_record(self.parts()):
            schema: StructType = from_arrow_schema(pq.read_schema(os.fspath(part.path)))
            return schema
        raise ConfigError(
            f"raystream: {self.folder} holds no output yet, so its columns are not known",
            hint='Say them: .schema("word string, n long")',
        )


def output(options: Mapping[str, str]) -> Output:
    """What the options of a reader say.

    Raises:
        ConfigError: one is missing, unknown, or cannot be.
    """
    given = {name.lower(): value for name, value in options.items()}
    if unknown := sorted(set(given) - set(KNOWN)):
        raise ConfigError(
            f"raystream: there is no option {unknown[0]!r} of a reader", hint=f"Options: {KNOWN}"
        )
    if not (folder := given.get("path", "").removeprefix("file:")):
        raise ConfigError("raystream: name the folder of the sink", hint='.load("/data/counts")')
    groups = given.get("key_groups", "256")
    if not groups.isdecimal() or not int(groups):
        raise ConfigError(f"raystream: key_groups={groups!r}: a whole number")
    return Output(folder, given.get("record", ""), int(groups))


class _File(InputPartition):
    """A part, which a task reads."""

    def __init__(self, path: str, rows: int) -> None:
        super().__init__(None)
        self.path, self.rows = path, rows


def _files(parts: Sequence[Any]) -> list[_File]:
    return [_File(os.fspath(part.path), part.rows) for part in parts if part.rows]


def _read(file: _File, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The rows of a part, in their order.

    Raises:
        InputError: it is no Parquet, or not what its manifest says.
    """
    arrow = to_arrow_schema(schema)
    try:
        table = pq.read_table(file.path, columns=arrow.names, partitioning=None)
        found = table.select(arrow.names).cast(arrow)
    except (OSError, KeyError, pa.ArrowException) as error:
        raise InputError(
            f"{file.path} cannot be read: {error}",
            hint="Spark reads what rs.io.parquet writes, by the names of columns.",
        ) from None
    if found.num_rows != file.rows:
        raise InputError(
            f"{file.path} has {found.num_rows} rows, and its manifest says {file.rows}"
        )
    yield from found.to_batches()


class OutputStream(DataSourceStreamReader):
    """Of `spark.readStream`."""

    def __init__(self, output: Output, schema: StructType) -> None:
        self._output, self._schema = output, schema

    def initialOffset(self) -> dict[str, Any]:
        return NOTHING

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """As far as all is committed.

        Raises:
            InputError: the folder has the output of another run by now.
        """
        try:
            parts = self._output.parts()
        except JobError:
            if start == NOTHING:
                return start  # not all instances of the sink have begun
            raise
        if not parts:
            return self._same(start, "", 0)
        return self._same(start, parts[0].path.name, max(part.upto for part in parts))

    def _same(self, start: dict[str, Any], first: str, epoch: int) -> dict[str, Any]:
        if start != NOTHING and (first != start["first"] or epoch < start["epoch"]):
            raise InputError(
                f"{self._output.folder} does not hold the output that was read before, up to epoch"
                f" {start['epoch']}",
                hint="A job that began anew has replaced it. Read that with another query.",
            )
        return {"epoch": epoch, "first": first} if first else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The parts of the epochs between two offsets."""
        between = [p for p in self._output.parts() if start["epoch"] < p.upto <= end["epoch"]]
        return _files(self._output.of_record(between))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _File)
        return _read(partition, self._schema)


class OutputTable(DataSourceReader):
    """Of `spark.read`: what is committed by now."""

    def __init__(self, output: Output, schema: StructType) -> None:
        self._output, self._schema = output, schema

    def partitions(self) -> Sequence[InputPartition]:
        return _files(self._output.of_record(self._output.parts()))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _File)
        return _read(partition, self._schema)
