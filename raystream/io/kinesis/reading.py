"""A shard: its records from a position on."""

from __future__ import annotations

import warnings
from typing import Any

from raystream.io.aws import code_of
from raystream.io.databases.waiting import Patience
from raystream.io.kinesis.client import (
    StreamPlace,
    is_expected,
    passes,
    patiently,
    unreadable,
)
from raystream.io.kinesis.shards import iterator_at, last_sequence, position_after

RECORDS_MOST = 5_000
"""How many records are asked for at once at most."""


class ShardReader:
    """Reads a shard.

    Args:
        client: of boto3; may be shared.
        shard: its name.
        position: see `shards`.
    """

    def __init__(self, client: Any, where: StreamPlace, shard: str, position: int) -> None:
        self._client, self._where, self._shard = client, where, shard
        self.position = position
        """After the last record that was taken."""
        self.closed = False
        """Whether the shard was split or merged, and all of it was taken."""
        self.caught_up = False
        """Whether nothing more was there at the last request."""
        self._iterator: str | None = None
        self._before: int | None = None
        """The record that was taken last, if it comes again first: it is left out."""
        self._patience: Patience | None = None

    def take(self) -> list[Any]:
        """The records that there are next, as boto3 has them; nothing where the request has to be
        made again later.

        Raises:
            InputError: the shard cannot be read.
        """
        if self._iterator is None:
            self._begin()
        try:
            answer = self._client.get_records(ShardIterator=self._iterator, Limit=RECORDS_MOST)
        except Exception as error:
            self._failed(error)
            return []
        self._patience = None
        self._iterator = answer.get("NextShardIterator")
        self.closed = self._iterator is None
        self.caught_up = not answer.get("MillisBehindLatest")
        return self._new(answer["Records"])

    def _new(self, records: list[Any]) -> list[Any]:
        """Those that were not taken before."""
        if records and self._before is not None:
            first, before, self._before = int(records[0]["SequenceNumber"]), self._before, None
            if first == before:
                records = records[1:]
            else:
                self._warn()
        if records:
            self.position = position_after(int(records[-1]["SequenceNumber"]))
        return records

    def _begin(self) -> None:
        """Ask for an iterator at the position."""
        arguments = {**self._where.named(), "ShardId": self._shard, **iterator_at(self.position)}
        self._before = last_sequence(self.position)
        what = f"does not let {self._shard} be read"
        answer = patiently(self._where, what, lambda: self._client.get_shard_iterator(**arguments))
        self._iterator = answer["ShardIterator"]

    def _failed(self, error: Exception) -> None:
        """See what an error means that came instead of records."""
        if code_of(error) == "ExpiredIteratorException":  # the job was slow for minutes
            self._iterator = None
            return
        if not is_expected(error):
            raise error
        if self._patience is None:
            self._patience = Patience(self._where.wait)
        if not passes(error) or not self._patience.left():
            raise unreadable(self._where, f"does not let {self._shard} be read", error) from None
        self._patience.wait()

    def _warn(self) -> None:
        warnings.warn(
            f"{self._where.name}: the last record that was read of {self._shard} is not kept there"
            " any more. If others came after it and are gone as well, they were never read: keep"
            " records for longer than the job may stand still (retention).",
            RuntimeWarning,
            stacklevel=3,
        )
