"""`TableSink`: a sink whose rows go to one table of a database that speaks SQL."""

from __future__ import annotations

import os
from abc import abstractmethod
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from raystream.api.batch import Batch
from raystream.errors import ConfigError, GraphError, OutputError, RaystreamError
from raystream.filesystem import absolute, reason, try_writing
from raystream.io.databases.advice import advice_of
from raystream.io.databases.markers import Existing
from raystream.io.databases.rows import TableShape, check_table_options, shape_of, table_of
from raystream.io.databases.sink import TransactionalSink, Visible
from raystream.io.databases.sql import SqlConnection
from raystream.schema.lengths import Seconds
from raystream.schema.types import KeyRange, SinkContext


class TableSink(TransactionalSink):
    """A sink whose rows go to one table of a database.

    Args:
        table: the table, with its schema before it if that is given.
        key: fields of the record: a row replaces the one with the same key. Without any, rows are
            only added.
        delete: a bool field of the record: rows for which it is true are deleted by their key.
        create: whether the table is made if it is not there.
        columns: names of columns by field, where they are others.
        visible, existing, wait: see `TransactionalSink`. With a key `existing` is `"keep"` unless
            given: rows that are written again replace themselves.
    """

    function: ClassVar[str]
    """What users call to make it."""
    connection: ClassVar[type[SqlConnection]]
    """What talks to the database."""

    def __init__(
        self,
        table: str,
        key: Any,
        delete: str | None,
        columns: Any,
        *,
        create: bool,
        visible: Visible | None,
        existing: Existing | None,
        wait: Seconds,
    ) -> None:
        names, called = check_table_options(self.function, table, key, delete, columns)
        given: Existing = existing if existing is not None else "keep" if names else "refuse"
        super().__init__(visible=visible, existing=given, wait=wait)
        self.table = table
        self.key = names
        self.delete = delete
        self.columns = called
        self.create = create
        self._shape: TableShape | None = None

    @property
    def keyed_by(self) -> tuple[str, ...] | None:
        """The key, by which the input is partitioned."""
        return self.key or None

    def accept(self, record: type[Any], /) -> None:
        """Refuse records that the table cannot hold, and a second type of records."""
        shape = shape_of(record, self.key, self.delete, self.columns)
        if self._shape is not None and self._shape.record is not shape.record:
            raise GraphError(
                f"the table {self.table} has rows of {self._shape.record.name}, so it cannot hold"
                f" {shape.record.name}",
                hint="Give each type of records a sink and a table of its own.",
            )
        self._shape = shape

    @abstractmethod
    def database(self) -> str:
        """The database, as messages name it. It must not hold a password."""

    @abstractmethod
    def options(self, context: SinkContext) -> dict[str, Any]:
        """The arguments of the connection that differ between databases."""

    def describe(self) -> str:
        return f"The table {self.table} in {self.database()}"

    def connect(self, context: SinkContext) -> SqlConnection:
        return self.connection(
            sink=self.name_of(context),
            table=self.table,
            shape=self.shape(),
            create=self.create,
            name=self.describe(),
            **self.options(context),
        )

    def check(self) -> str:
        """Connect, and try all that the sink does, in a transaction that is undone."""
        keys = KeyRange(0, 1)
        context = SinkContext("check", "check", keys, None, 0.0, None, job="check")
        try:
            connection = self.connect(context)
            try:
                return connection.check()
            finally:
                connection.close()
        except RaystreamError:
            raise
        except Exception as error:
            words = self.words_of(error)
            raise OutputError(
                f"{self.describe()} cannot be written: {type(error).__name__}: {words}",
                hint=self.advice(error),
            ) from None

    def advice(self, error: Exception) -> str:
        """Databases say in words of their own that a table has no unique index over a key."""
        if not self.key or "conflict" not in str(error).lower():
            return advice_of(error)
        columns = ", ".join(dict(self.columns).get(name, name) for name in self.key)
        return f"With key= the table needs a unique index: CREATE UNIQUE INDEX ... ({columns})."

    def shape(self) -> TableShape:
        """The columns of the table."""
        if self._shape is None:
            raise ConfigError(f"{self.function} was opened, but no records go there")
        return self._shape

    def encode(self, batch: Batch[Any]) -> Any:
        """The batch as an Arrow table."""
        return table_of(self.shape(), batch)

    def name_of(self, context: SinkContext) -> str:
        """What the sink is called in the tables of markers, also after it was renamed."""
        return f"{context.job}/{context.mark or context.operator}/{self.table}"


class FileTableSink(TableSink):
    """A sink whose rows go to one table of a database in a file.

    Args:
        path: the file.
    """

    def __init__(self, path: str | os.PathLike[str], table: str, **options: Any) -> None:
        super().__init__(table, **options)
        self.path = str(Path(absolute(path)))

    def database(self) -> str:
        return self.path

    def check(self) -> str:
        """As of other tables; without the file whether it can be made."""
        if os.path.exists(self.path):
            return super().check()
        folder = Path(self.path).parent
        try:
            made = try_writing(folder)
        except OSError as error:
            raise OutputError(f"{self.path} cannot be made: {reason(error)}") from None
        if made != folder or not self.create:
            what = f"the folder {folder}" if made != folder else f"{self.path}"
            raise OutputError(
                f"{self.describe()}: {what} does not exist", hint="Make it, or say create=True."
            )
        return f"{self.describe()} can be made"

    def options(self, context: SinkContext) -> dict[str, Any]:
        folder = Path(self.path).parent
        if not folder.is_dir():
            raise OutputError(
                f"{self.describe()}: the folder {folder} does not exist",
                hint=f"Make it: mkdir -p {folder}",
            )
        return {"path": self.path}


def driver_of(function: str, module: str, extra: str) -> Any:
    """The module of another package that talks to a database.

    Args:
        function: what users call. extra: the extra of raystream that brings the package.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{function} needs {module}, which cannot be imported: {error}",
            hint=f'pip install "raystream[{extra}]"',
        ) from None
