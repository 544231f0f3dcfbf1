"""Which shards a stream has, and which positions stand for what was read of them.

A split is a shard, `shardId-000000000003`. Kinesis numbers shards as they come. Those that are not
there yet have splits as well, as far as there is room; so have those that are gone already, because
a job that goes on has all splits that it had.

    0                    before the first record that there is
    1 + t                before the first record that came at t or later, in Unix milliseconds
    2**64 + n + 1        after the record with sequence number n
    END                  the shard was closed, and all of it was read
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, NamedTuple

from raystream.errors import InputError
from raystream.io.kinesis.client import StreamPlace, patiently

MOMENTS = 1
SEQUENCES = 1 << 64
END = 1 << 256
"""Sequence numbers have up to 186 bits."""

_PREFIX = "shardId-"
_DIGITS = 12


class Shard(NamedTuple):
    """A shard that there is."""

    number: int
    open: bool
    """Whether records still come; otherwise it was split or merged."""


class Listing(NamedTuple):
    """The shards of a stream at a moment."""

    shards: Mapping[int, Shard]
    """By number."""
    at: datetime
    """The moment, on the clock of Kinesis, in whole seconds."""

    @property
    def newest(self) -> int:
        """The greatest number; -1 if there is no shard."""
        return max(self.shards, default=-1)

    def is_gone(self, number: int) -> bool:
        """Whether that shard was there once, and retention has removed it."""
        return number not in self.shards and number < self.newest


def shard_name(number: int) -> str:
    """The name of a shard, which is that of its split."""
    return f"{_PREFIX}{number:0{_DIGITS}}"


def shard_number(name: str) -> int:
    """The number in the name of a shard.

    Raises:
        InputError: it has none.
    """
    digits = name.removeprefix(_PREFIX)
    if digits == name or not digits.isdigit():
        raise InputError(f"a shard is called {name!r:.80}, and not {_PREFIX} with a number")
    return int(digits)


def moment_position(moment: datetime) -> int:
    """The position before what came at a moment or later."""
    return MOMENTS + int(moment.timestamp() * 1000)


def position_after(sequence: int) -> int:
    """The position after the record with a sequence number."""
    return SEQUENCES + sequence + 1


def iterator_at(position: int) -> dict[str, Any]:
    """The arguments of a request for an iterator at a position. After a record it begins at that
    record, so that one can see whether it is still there."""
    if position == 0:
        return {"ShardIteratorType": "TRIM_HORIZON"}
    if (sequence := last_sequence(position)) is not None:
        return {
            "ShardIteratorType": "AT_SEQUENCE_NUMBER",
            "StartingSequenceNumber": str(sequence),
        }
    moment = datetime.fromtimestamp((position - MOMENTS) / 1000, UTC)
    return {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": moment}


def last_sequence(position: int) -> int | None:
    """The sequence number of the record before a position; None if that is not known."""
    return position - SEQUENCES - 1 if SEQUENCES < position < END else None


def listed(client: Any, where: StreamPlace) -> Listing:
    """The shards that there are: open ones, and closed ones whose records are kept.

    Raises:
        InputError: there is no such stream, or it does not answer.
    """
    found: dict[int, Shard] = {}
    arguments: dict[str, Any] = where.named()
    while True:
        ask = partial(client.list_shards, **arguments)
        answer = patiently(where, "could not be asked for its shards", ask)
        for shard in answer["Shards"]:
            number = shard_number(shard["ShardId"])
            is_open = "EndingSequenceNumber" not in shard["SequenceNumberRange"]
            found[number] = Shard(number, is_open)
        if not (token := answer.get("NextToken")):
            return Listing(found, _date_of(answer))
        arguments = {"NextToken": token}


def _date_of(answer: Mapping[str, Any]) -> datetime:
    """When Kinesis has answered: it takes no moment that is later on its own clock."""
    said = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    if said is None:
        return datetime.now(UTC).replace(microsecond=0)
    return parsedate_to_datetime(said).astimezone(UTC)


def spread(listing: Listing, more: int) -> Sequence[int]:
    """The numbers of all shards, gone, there and to come, in such an order that the open ones are
    spread evenly over the instances.

    Args:
        more: for how many shards to come there is room.
    """
    numbers = range(listing.newest + 1 + more)
    is_open = [n for n in numbers if n in listing.shards and listing.shards[n].open]
    others = [n for n in numbers if n not in set(is_open)]
    return [n for _, n in sorted([*_places(is_open, 0.5), *_places(others, 0.25)])]


def _places(numbers: Sequence[int], shift: float) -> Iterable[tuple[float, int]]:
    return [((i + shift) / len(numbers), n) for i, n in enumerate(numbers)]
