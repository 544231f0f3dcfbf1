"""Tables of Delta Lake. The epoch of a snapshot is the version of an application's transaction.

Delta takes the same version of an application twice where the two are not concurrent. So the
version is looked at first, in the state of the table on which the snapshot is then built; of two
that are concurrent Delta itself takes one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from raystream.errors import ConfigError, GraphError, OutputError
from raystream.io.buckets.paths import AnyPlace, folder_at
from raystream.io.buckets.urls import is_bucket, parsed
from raystream.io.tables.sink import LakeTable, other_columns
from raystream.io.tables.staging import StagedFile


@dataclass
class DeltaLakeTable(LakeTable):
    """A table of Delta Lake.

    Args:
        location: a folder or a URL. create: whether it may be made.
    """

    location: str
    create: bool
    _at: Any = field(default=None, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_at": None}

    @property
    def named(self) -> str:
        return str(self.place)

    @property
    def owned(self) -> AnyPlace:
        return self.place

    @property
    def place(self) -> AnyPlace:
        return folder_at(self.location)

    def accept(self, schema: Any) -> None:
        deltalake = _package()
        try:
            deltalake.Schema.from_arrow(schema)
        except Exception as error:
            raise GraphError(
                f"a table of Delta Lake cannot hold such records: {error}",
                hint="Give the field another type; timedelta and UUID have none in Delta Lake.",
            ) from None

    def look(self, schema: Any) -> bool:
        deltalake = _package()
        uri, options = self._reached()
        try:
            if not deltalake.DeltaTable.is_deltatable(uri, storage_options=options):
                if not self.create:
                    raise ConfigError(
                        f"there is no table of Delta Lake at {self.location}",
                        hint="Make it, or say create=True.",
                    )
                return False
            table = deltalake.DeltaTable(uri, storage_options=options)
        except deltalake.exceptions.DeltaError as error:
            raise ConfigError(f"{self.location} cannot be opened: {error}") from None
        self._compare(table, schema)
        return True

    def prepare(self, schema: Any) -> None:
        if self.look(schema):
            return
        deltalake = _package()
        uri, options = self._reached()
        try:
            deltalake.DeltaTable.create(uri, schema, mode="ignore", storage_options=options)
            table = deltalake.DeltaTable(uri, storage_options=options)
        except deltalake.exceptions.DeltaError as error:
            raise ConfigError(f"{self.location} cannot be made: {error}") from None
        self._compare(table, schema)

    def _compare(self, table: Any, schema: Any) -> None:
        held = [f.name for f in table.schema().fields]
        if sorted(held) != sorted(schema.names):
            raise other_columns(self.location, held, schema.names)
        if table.metadata().partition_columns:
            raise ConfigError(
                f"the table at {self.location} is partitioned, which rs.io.delta does not write"
            )

    def marked(self, marker: str) -> int | None:
        deltalake = _package()
        uri, options = self._reached()
        try:
            self._at = deltalake.DeltaTable(uri, storage_options=options)
            found: int | None = self._at.transaction_version(marker)
        except deltalake.exceptions.DeltaError as error:
            raise OutputError(f"{self.location} cannot be read: {error}") from None
        return found

    def append(self, files: Sequence[StagedFile], marker: str, epoch: int) -> bool:
        deltalake = _package()
        from deltalake.transaction import AddAction

        added = [
            AddAction(
                quote(f.path), f.size, {}, f.changed, True, json.dumps({"numRecords": f.rows})
            )
            for f in files
        ]
        properties = deltalake.CommitProperties(
            custom_metadata={"raystream.marker": marker, "raystream.epoch": str(epoch)},
            app_transactions=[deltalake.Transaction(marker, epoch)],
        )
        try:
            self._at.create_write_transaction(
                added, "append", self._at.schema(), commit_properties=properties
            )
        except deltalake.exceptions.CommitFailedError:
            return False
        except deltalake.exceptions.DeltaError as error:
            raise OutputError(f"{self.location} cannot be written: {error}") from None
        return True

    def _reached(self) -> tuple[str, dict[str, str] | None]:
        """The place as the package names it, and the settings that its URL has."""
        if not is_bucket(self.location):
            return self.location, None
        url = parsed(self.location)
        said = dict(url.settings)
        names = {"region": "AWS_REGION", "endpoint": "AWS_ENDPOINT_URL"}
        options = {names[n]: value for n, value in said.items() if n in names}
        if said.get("endpoint", "").startswith("http://"):
            options["AWS_ALLOW_HTTP"] = "true"
        return url.plain, options or None


def _package() -> Any:
    try:
        import deltalake
        import deltalake.exceptions
    except ImportError as error:
        raise ConfigError(
            "rs.io.delta needs deltalake, which is not installed.",
            hint="pip install 'raystream[delta]'",
        ) from error
    return deltalake
