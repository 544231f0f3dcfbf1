"""The source: shards of a stream, also those that come while the job runs."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import numpy as np

from raystream.api.batch import Batch
from raystream.api.looking import counted
from raystream.errors import InputError
from raystream.io.databases.waiting import Beat, Patience, pause
from raystream.io.files.bad_lines import mixed, sifted
from raystream.io.formats import Codec, Format
from raystream.io.formats.bad_messages import MessageSource
from raystream.io.formats.base import registries, whole
from raystream.io.kinesis.client import StreamPlace, client_of, driver
from raystream.io.kinesis.reading import ShardReader
from raystream.io.kinesis.shards import (
    END,
    Listing,
    listed,
    moment_position,
    position_after,
    shard_name,
    shard_number,
    spread,
)
from raystream.schema.columns import empty
from raystream.schema.fields import AnyRecord
from raystream.schema.records import record_schema
from raystream.schema.types import Split

U = TypeVar("U", bound=AnyRecord)

LOOK_SECONDS = 0.2
"""Seconds between two batches without records while a reader waits for a shard, or its records."""
LIST_SECONDS = 10.0
"""How often a process asks whether there are new shards."""
CHECK_SECONDS = 5.0
"""How long `raystream check` waits for a record."""
SPLITS_MOST = 4096


class ShardOptions(NamedTuple):
    """What the user has asked for."""

    start: str | datetime
    """`"earliest"`, `"latest"` or a moment."""
    ends: bool
    """Whether the input ends with what is there when the job begins."""
    more: int
    """For how many shards that come later there is room."""
    every: float
    """How many seconds lie between two requests for records of a shard that has no more."""


class KinesisStream(MessageSource[U]):
    """Each shard is a split. See `rs.io.kinesis`."""

    waits = True

    def __init__(
        self, record: type[U], where: StreamPlace, format: Format, asked: ShardOptions
    ) -> None:
        driver()
        self.record = self.declared = record
        self.where, self.format, self.asked = where, format, asked
        format.codec(record)  # what does not fit is refused while the flow is built
        self._newest = -1
        """The greatest number of a shard when the job was planned."""
        self._end: datetime | None = None
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._made: Any = None
        self._listing: Listing | None = None
        self._beat = Beat(LIST_SECONDS)
        self._warned = False

    def __getstate__(self) -> dict[str, Any]:
        dropped = ("_lock", "_made", "_listing", "_beat", "_warned")
        return {name: value for name, value in self.__dict__.items() if name not in dropped}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def __repr__(self) -> str:
        return f"kinesis({self.where.stream}, {self.declared.__name__})"

    def splits(self) -> Sequence[Split]:
        """The shards that there are, those that are gone and those for which there is room.

        Raises:
            InputError: there is no such stream, or too many shards.
        """
        listing = listed(self._client(), self.where)
        self._newest = listing.newest
        self._end = listing.at + timedelta(seconds=1) if self.asked.ends else None
        more = 0 if self.asked.ends else self.asked.more
        if listing.newest + more >= SPLITS_MOST:
            raise InputError(
                f"{self.where.name} has numbered its shards up to {listing.newest:,}, and a source"
                f" has {SPLITS_MOST:,} splits at most, one for each",
                hint="Make a new stream with the shards that it needs now.",
            )
        start, begin = self.asked.start, 0
        if start != "earliest":
            begin = moment_position(start if isinstance(start, datetime) else listing.at)
        # What is gone by now is over. What goes later was not read to its end, wherever that stood.
        return [
            Split(
                shard_name(n),
                END if listing.is_gone(n) else begin if n in listing.shards else 0,
            )
            for n in spread(listing, more)
        ]

    def comes_later(self, split: str, /) -> bool:
        """Whether a shard was not there when the job was planned."""
        return shard_number(split) > self._newest

    def read(self, split: Split, position: int, /) -> Iterator[Any]:
        """What there is, in batches; a batch without records when nothing comes for a while.

        Raises:
            InputError: a record is none as declared, or the shard cannot be read.
        """
        nothing: Batch[Any] = Batch._of(empty(record_schema(self.record)))
        none = np.zeros(0, object)
        while position < END and not self._is_there(split.name):
            yield position, nothing, none
            pause(LOOK_SECONDS)
        if position < END:
            yield from self._records(split.name, position)
            self._shards(now=True)  # those that follow it are there, if it was closed
        while self._lacks(split.name):
            yield END, nothing, none
            pause(LOOK_SECONDS)

    def _records(self, split: str, position: int) -> Iterator[Any]:
        """The records of a shard that is there, up to its end."""
        codec, reader = self._codec(), ShardReader(self._client(), self.where, split, position)
        nothing, none = self._decoded(codec, split, []), np.zeros(0, object)
        while True:
            taken = reader.take()
            records = taken if self._end is None else _upto(taken, self._end)
            if records:
                position = position_after(int(records[-1]["SequenceNumber"]))
            yield position, self._decoded(codec, split, records), _ends(records)
            if reader.closed and len(records) == len(taken):
                yield END, nothing, none
                return
            if self._end is not None and (reader.caught_up or len(records) < len(taken)):
                return
            for _ in self._pauses() if reader.caught_up else ():
                yield position, nothing, none

    def _pauses(self) -> Iterator[None]:
        left = self.asked.every
        while left > 0:
            pause(min(left, LOOK_SECONDS))
            left -= LOOK_SECONDS
            if left > 0:
                yield

    def _is_there(self, split: str) -> bool:
        """Whether a shard is there; otherwise it may come.

        Raises:
            InputError: it was there, and is gone.
        """
        number, listing = shard_number(split), self._shards()
        if listing.is_gone(number):
            raise InputError(
                f"{self.where.name}: {split} is gone by retention before all of it was read",
                hint="Nothing is skipped silently. Begin the job again from the start (--fresh,"
                " resume=False), and keep records for longer than the job may stand still.",
            )
        return number in listing.shards

    def _shards(self, *, now: bool = False) -> Listing:
        """The shards, as of `LIST_SECONDS` ago at most: many splits may wait for one."""
        client = self._client()
        with self._lock:
            if now or self._listing is None or self._beat.due():
                self._listing, self._beat = listed(client, self.where), Beat(LIST_SECONDS)
            return self._listing

    def _lacks(self, split: str) -> bool:
        """Whether there are shards for which there is no split. Then a split whose shard was closed
        does not end: with the last one the job would."""
        room = self._newest + self.asked.more
        if self._end is not None or self._newest < 0 or self._shards().newest <= room:
            return False
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.where.name}: {split} was closed, and this run has no room for shards after"
                f" {shard_name(room)}. Stop the job (raystream stop --save) and resume it: they are"
                " then read from their first records. more= makes more room.",
                RuntimeWarning,
                stacklevel=3,
            )
        return True

    def _codec(self) -> Codec[U]:
        return self.format.codec(self.declared)

    def _client(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = client_of(self.where)
            return self._made

    def _decoded(self, codec: Codec[U], split: str, records: Sequence[Any]) -> Batch[Any]:
        if not records:
            return Batch._of(empty(record_schema(self.record)))
        data = [bytes(r["Data"]) for r in records]
        if self.apart:
            found = sifted(data, codec.decode)
            name, none = f"{self.where.name}, {split}", [-1] * len(data)
            return mixed(self.declared, name, none, data, found, timed=False)

        def place(n: int) -> str:
            return f"{self.where.name}, {split}, sequence {records[n]['SequenceNumber']}"

        return whole(data, codec.decode, self.declared, place)

    def close(self) -> None:
        """Close the client."""
        with self._lock:
            made, self._made = self._made, None
        if made is not None:
            made.close()

    def check(self) -> str:
        """Look what is there, and read a record."""
        told = registries(self._codec(), writes=False)
        return self._looked() + told

    def _looked(self) -> str:
        listing = listed(self._client(), self.where)
        is_open = [n for n, shard in listing.shards.items() if shard.open]
        said = counted(len(is_open), "open shard")
        codec = self._codec()
        readers = [
            ShardReader(self._client(), self.where, shard_name(n), 0) for n in listing.shards
        ]
        patience = Patience(CHECK_SECONDS)
        while readers and patience.left():
            reader = readers.pop(0)
            if records := reader.take():
                found = whole(
                    [bytes(records[0]["Data"])], codec.decode, self.declared, lambda n: "a record"
                )
                return f"{said}; read a record ({found.record.__name__})"
            if not reader.closed and not reader.caught_up:
                readers.append(reader)
        return f"{said}; no records now"


def _upto(records: list[Any], end: datetime) -> list[Any]:
    """The records before the first one that came after a moment."""
    late = (n for n, r in enumerate(records) if r["ApproximateArrivalTimestamp"] > end)
    return records[: next(late, len(records))]


def _ends(records: Sequence[Any]) -> np.ndarray:
    """The position after each record."""
    return np.array([position_after(int(r["SequenceNumber"])) for r in records], object)
