"""What both sources of PostgreSQL are: one split, recorded, of a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from raystream.api.connectors import Source
from raystream.io.capture.slot import Server
from raystream.schema.fields import AnyRecord
from raystream.schema.types import Split

U = TypeVar("U", bound=AnyRecord)


class CapturedSource(Source[U]):
    """A source of one split, whose rows the job records.

    Args:
        url: of the server. table: what is read. split: the name of the split.
    """

    recorded: ClassVar[bool] = True
    call: ClassVar[str]
    """What users call."""

    def __init__(self, record: type[U], url: str, table: str, split: str) -> None:
        self.record = record
        self._place = url, table, split
        self._known: dict[str, int] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_known": {}}

    def __repr__(self) -> str:
        return f"{self.call}({self.server().name!r}, table={self._place[1]!r})"

    def server(self) -> Server:
        """The server that is read."""
        url, _, split = self._place
        return Server(url, split)

    def splits(self) -> Sequence[Split]:
        return [Split(self._place[2])]

    def knows(self, split: Split, sequences: Mapping[str, int], /) -> None:
        """Remember what is recorded, for when reading begins."""
        self._known = {**self._known, **sequences}
