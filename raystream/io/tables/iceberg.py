"""Tables of Apache Iceberg. The epoch of a snapshot is a property of the table.

It is written in the transaction that adds the files. A summary of the snapshot says it as well, but
snapshots expire. PyIceberg tries an append again by itself when the table has changed meanwhile,
and would do twice what a process that was thought dead has done already. So it is told not to, and
an instance whose append fails looks at the epoch again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raystream.errors import ConfigError, GraphError, OutputError, caller
from raystream.io.buckets.paths import AnyPlace, folder_at
from raystream.io.tables.sink import LakeTable, other_columns
from raystream.io.tables.staging import StagedFile

_RETRIES = "commit.retry.num-retries"


@dataclass
class IcebergTable(LakeTable):
    """A table of Iceberg; the attributes are the arguments of `rs.io.iceberg`."""

    name: str
    catalog: str
    properties: tuple[tuple[str, Any], ...] = field(repr=False)
    create: bool
    _at: Any = field(default=None, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_at": None}

    @property
    def named(self) -> str:
        return f"the table {self.name}"

    @property
    def place(self) -> AnyPlace:
        if self._at is None:
            self._at = self.load()
        return folder_at(self._at.location())

    def accept(self, schema: Any) -> None:
        _package()
        from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids as converted

        try:
            converted(schema)
        except Exception as error:
            raise GraphError(
                f"a table of Iceberg cannot hold such records: {error}",
                hint="Give the field another type; timedelta has none in Iceberg.",
            ) from None

    def look(self, schema: Any) -> bool:
        if self.create and not self._asked(lambda catalog: catalog.table_exists(self.name)):
            return False
        self._compare(schema)
        return True

    def prepare(self, schema: Any) -> None:
        if self.create:
            self._make(schema)
        self._compare(schema)
        if self._at.properties.get(_RETRIES) != "0":
            with self._at.transaction() as transaction:
                transaction.set_properties({_RETRIES: "0"})

    def _compare(self, schema: Any) -> None:
        self._at = self.load()
        held = [f.name for f in self._at.schema().fields]
        if sorted(held) != sorted(schema.names):
            raise other_columns(self.name, held, schema.names)
        if not self._at.spec().is_unpartitioned():
            raise ConfigError(
                f"the table {self.name} is partitioned, which rs.io.iceberg does not write"
            )

    def marked(self, marker: str) -> int | None:
        self._at = self.load()
        found = self._at.properties.get(marker)
        return None if found is None else int(found)

    def append(self, files: Sequence[StagedFile], marker: str, epoch: int) -> bool:
        from pyiceberg.exceptions import CommitFailedException

        root = self._at.location().rstrip("/")
        told = {"raystream.marker": marker, "raystream.epoch": str(epoch)}
        try:
            with self._at.transaction() as transaction:
                transaction.add_files(
                    [f"{root}/{f.path}" for f in files],
                    snapshot_properties=told,
                    check_duplicate_files=False,
                )
                transaction.set_properties({marker: str(epoch)})
        except CommitFailedException:
            return False
        except (OSError, ValueError) as error:
            raise OutputError(f"the table {self.name} cannot be written: {error}") from None
        return True

    def _make(self, schema: Any) -> None:
        """Make the table and its namespace, if they are not there."""
        from pyiceberg.exceptions import CommitFailedException, TableAlreadyExistsError

        catalog = self._catalog()
        catalog.create_namespace_if_not_exists(self.name.rpartition(".")[0])
        try:
            catalog.create_table_if_not_exists(self.name, schema, properties={_RETRIES: "0"})
        except (CommitFailedException, TableAlreadyExistsError):
            return  # another instance has

    def load(self) -> Any:
        """The table as it is now.

        Raises:
            ConfigError: it is not there.
        """
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return self._asked(lambda catalog: catalog.load_table(self.name))
        except NoSuchTableError:
            raise ConfigError(
                f"there is no table {self.name} in the catalog {self.catalog}",
                hint="Make it, or say create=True.",
            ) from None

    def _catalog(self) -> Any:
        _package()
        from pyiceberg.catalog import load_catalog

        try:
            return load_catalog(self.catalog, **dict(self.properties))
        except Exception as error:
            raise self._unasked(error) from None

    def _asked(self, ask: Callable[[Any], Any]) -> Any:
        """What the catalog answers.

        Raises:
            ConfigError: nothing. NoSuchTableError: there is no such table.
        """
        catalog = self._catalog()
        from pyiceberg.exceptions import NoSuchTableError

        try:
            return ask(catalog)
        except NoSuchTableError:
            raise
        except Exception as error:
            raise self._unasked(error) from None

    def _unasked(self, error: Exception) -> ConfigError:
        words = str(error).partition("\n")[0]
        return ConfigError(
            f"the catalog {self.catalog} cannot be asked: {type(error).__name__}: {words}",
            hint='Its settings are in properties=, such as {"type": "rest", "uri": ...}, or where'
            " PyIceberg looks for them (~/.pyiceberg.yaml).",
        )


def iceberg_table(
    name: str, catalog: str, properties: Mapping[str, Any] | None, *, create: bool
) -> IcebergTable:
    """A table of Iceberg.

    Raises:
        ConfigError: an argument cannot be, or the package is not installed.
    """
    where = caller()[0]
    if not isinstance(name, str) or "." not in name.strip("."):
        raise ConfigError(f"iceberg({name!r:.80}): a table is called namespace.name", where=where)
    if not isinstance(catalog, str) or not catalog:
        raise ConfigError(
            f"iceberg(catalog=) is the name of a catalog, and no {type(catalog).__name__}",
            hint="Its settings are in properties=.",
            where=where,
        )
    if properties is not None and not isinstance(properties, Mapping):
        raise ConfigError("iceberg(properties=...): settings of the catalog by name", where=where)
    return IcebergTable(name, catalog, tuple((properties or {}).items()), create)


def _package() -> Any:
    try:
        import pyiceberg
    except ImportError as error:
        raise ConfigError(
            "rs.io.iceberg needs pyiceberg, which is not installed.",
            hint="pip install 'raystream[iceberg]'",
        ) from error
    return pyiceberg
