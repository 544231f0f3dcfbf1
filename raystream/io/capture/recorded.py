"""What both sources of PostgreSQL are: one split, recorded, and how a server is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from raystream.api.batch import Batch
from raystream.api.connectors import Source
from raystream.errors import RaystreamError
from raystream.io.capture.slot import Server
from raystream.io.databases.waiting import Patience
from raystream.schema.columns import empty
from raystream.schema.fields import AnyRecord
from raystream.schema.records import record_schema
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


@dataclass
class ServerReader:
    """Reads a source, with a new connection where one breaks.

    Args:
        source: has `asked.wait`, the seconds for which to try again.
        number: of the batch that was yielded last.
    """

    source: Any
    number: int = 0

    def __post_init__(self) -> None:
        self._nothing: Batch[Any] = Batch._of(empty(record_schema(self.source.record)))

    def _session(self, server: Server) -> Iterator[Any]:
        """What comes over one connection; its end is the end of the split."""
        raise NotImplementedError

    def _sessions(self, server: Server) -> Iterator[Any]:
        """What comes over one connection after the other.

        Raises:
            InputError: the server refuses the source, or it could not be reached for as long as the
                source may wait.
        """
        patience = Patience(self.source.asked.wait)
        while True:
            number = self.number
            try:
                yield from self._session(server)
                return
            except RaystreamError:
                raise
            except Exception as error:
                if self.number != number:
                    patience = Patience(self.source.asked.wait)
                if not (server.passing(error) and patience.left()):
                    raise server.described(error) from None
            yield self.number, self._nothing  # the reader looks whether it should stop
            patience.wait()
