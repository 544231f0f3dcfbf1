"""The sink: records of a stream, at least once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, NamedTuple

from raystream.api.batch import Batch
from raystream.api.connectors import Sink
from raystream.api.looking import counted
from raystream.errors import GraphError, OutputError
from raystream.io.databases.waiting import Patience
from raystream.io.formats import Codec, Format
from raystream.io.formats.base import registries
from raystream.io.kinesis.client import (
    CALL,
    PASSING,
    StreamPlace,
    client_of,
    driver,
    is_expected,
    passes,
    unwritable,
)
from raystream.schema.records import record_schema
from raystream.schema.types import KeyRange, SinkContext

RECORDS_MOST = 500
"""How many records Kinesis takes in one request."""
BYTES_MOST = 4 << 20
"""How many bytes of data and keys a request has, unless one record has more. Kinesis takes 5 MiB at
least."""
KEY_MOST = 256
"""How many characters the key of a record may have."""


class StreamEntry(NamedTuple):
    """A record, as Kinesis is given it."""

    key: str
    data: bytes

    @property
    def size(self) -> int:
        """Its bytes, as Kinesis counts them."""
        return len(self.data) + len(self.key.encode())


class SentStream(Sink[Any]):
    """A sink to a stream. Kinesis has no transactions, so it is at least once: what was written
    after the checkpoint is written again after a failure. The attributes are the arguments of
    `rs.io.kinesis`."""

    kind: ClassVar[Literal["at-least-once"]] = "at-least-once"

    def __init__(self, where: StreamPlace, format: Format, key: str | None) -> None:
        driver()
        self.where, self.format, self.key = where, format, key
        self._record: type[Any] | None = None
        self._begin()

    def _begin(self) -> None:
        self._client: Any = None
        self._codec: Codec[Any] | None = None
        self._kept: list[StreamEntry] = []
        self._bytes = 0

    @property
    def keyed_by(self) -> tuple[str, ...] | None:
        """The field that is the partition key: one instance writes all records of a key."""
        return None if self.key is None else (self.key,)

    def __repr__(self) -> str:
        return f"kinesis({self.where.stream})"

    def __getstate__(self) -> dict[str, Any]:
        dropped = ("_client", "_codec", "_kept", "_bytes")
        return {name: value for name, value in self.__dict__.items() if name not in dropped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __copy__(self) -> SentStream:
        made = object.__new__(type(self))
        made.__setstate__(self.__getstate__())
        return made

    def accept(self, record: type[Any], /) -> None:
        """Refuse records that do not fit, and a second type of records."""
        if self._record is not None and self._record is not record:
            raise GraphError(
                f"{self.where.name} has records of {self._record.__name__}, so it cannot hold"
                f" {record.__name__}",
                hint="Give each type of records a sink and a stream of its own.",
            )
        schema = record_schema(record)
        if self.key is not None:
            f = schema.field(self.key)
            plain = f is not None and f.value is None and not f.optional
            if f is None or not plain or not (f.integer or f.kind == "text"):
                raise GraphError(
                    f"{CALL}(key={self.key!r}): a field of {schema.name} that is a str or an int,"
                    f" and not {f}"
                )
        self.format.codec(record)
        self._record = record

    def open(self, context: SinkContext, /) -> None:
        """Make a client, and see whether the stream is there."""
        self._begin()
        patience = Patience(self.where.wait)
        while True:
            try:
                self._open_shards()
                return
            except Exception as error:
                if not is_expected(error):
                    raise
                if not passes(error) or not patience.left():
                    raise unwritable(self.where, error) from None
                patience.wait()

    def write(self, epoch: int, keys: KeyRange, batch: Batch[Any], /) -> None:
        """Keep the records of a batch until a request is full, or the epoch has ended."""
        if self._codec is None:
            self._codec = self.format.codec(batch.record)
        data = self._codec.encode(batch)
        for key, each in zip(self._keys(batch, data), data, strict=True):
            one = StreamEntry(key, each)
            if len(self._kept) == RECORDS_MOST or self._bytes + one.size > BYTES_MOST:
                self._flush()
            self._kept.append(one)
            self._bytes += one.size

    def _keys(self, batch: Batch[Any], data: Sequence[bytes]) -> Sequence[str]:
        """The partition key of each record. Without a field for it a digest of the data, so that
        records are spread over the shards."""
        if self.key is None:
            return [hashlib.blake2s(each, digest_size=16).hexdigest() for each in data]
        found = [str(value) for value in batch[self.key].to_pylist()]
        for key in found:
            if not 0 < len(key) <= KEY_MOST:
                raise OutputError(
                    f"{self.where.name}: a partition key has 1 to {KEY_MOST} characters, and one of"
                    f" {self.key!r} has {len(key)}"
                )
        return found

    def end_epoch(self, epoch: int, /, *, more: bool) -> None:
        """Write what is kept, unless it can go with the next epoch."""
        if not more:
            self._flush()

    def prepare(self, epoch: int, /) -> None:
        """Write what is kept: a checkpoint counts when Kinesis has the records."""
        self._flush()

    def close(self) -> None:
        """Close the client. All was written at the last checkpoint."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def check(self) -> str:
        """See whether the stream is there. Whether it may be written is not tried."""
        codec = None if self._record is None else self.format.codec(self._record)
        told = registries(codec, writes=True)
        try:
            return f"{self.where.name} has {counted(self._open_shards(), 'open shard')}{told}"
        except Exception as error:
            if not is_expected(error):
                raise
            raise unwritable(self.where, error) from None

    def _open_shards(self) -> int:
        found = self._asked().describe_stream_summary(**self.where.named())
        number: int = found["StreamDescriptionSummary"]["OpenShardCount"]
        return number

    def _asked(self) -> Any:
        if self._client is None:
            self._client = client_of(self.where)
        return self._client

    def _flush(self) -> None:
        """Write what is kept, again what was not taken.

        Raises:
            OutputError: Kinesis does not take it for long, or refuses.
        """
        left, self._kept, self._bytes = self._kept, [], 0
        patience = Patience(self.where.wait)
        while left:
            before = len(left)
            left, error = self._sent(left)
            if not left:
                return
            if len(left) < before:
                patience = Patience(self.where.wait)
            if not patience.left():
                raise OutputError(
                    f"{self.where.name} has not taken {len(left):,} records within"
                    f" {self.where.wait:g} s: {error}",
                    hint="Has it enough shards? One takes 1 MiB and 1,000 records a second.",
                )
            patience.wait()

    def _sent(self, records: list[StreamEntry]) -> tuple[list[StreamEntry], str]:
        """Those that were not taken and may be later, and why."""
        entries = [{"Data": r.data, "PartitionKey": r.key} for r in records]
        try:
            answer = self._asked().put_records(Records=entries, **self.where.named())
        except Exception as error:
            if not is_expected(error) or not passes(error):
                raise (unwritable(self.where, error) if is_expected(error) else error) from None
            return records, str(error)
        failed, said = list[StreamEntry](), ""
        for record, told in zip(records, answer["Records"], strict=True):
            if code := told.get("ErrorCode"):
                failed.append(record)
                said = f"{code}: {told.get('ErrorMessage', '')}"
                if code not in PASSING:
                    raise OutputError(f"{self.where.name} does not take a record: {said}")
        return failed, said
