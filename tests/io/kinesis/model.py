"""A stream in this process that answers as Kinesis does: shards are closed and gone, sequence
numbers have 186 bits, iterators expire, too many requests are refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from hashlib import md5
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from raystream.io.kinesis import sink, source

BASE = 49590338271490256608559692538361571095921575989136588898
BEGIN = datetime(2026, 11, 29, 12, tzinfo=UTC)


def refused(code: str, status: int = 400) -> ClientError:
    return ClientError(
        {
            "Error": {"Code": code, "Message": "it says"},
            "ResponseMetadata": {"HTTPStatusCode": status},
        },
        "Request",
    )


@dataclass
class ModelShard:
    number: int
    low: int
    high: int
    records: list[dict[str, Any]] = field(default_factory=list)
    open: bool = True

    @property
    def name(self) -> str:
        return f"shardId-{self.number:012}"


class Stream:
    """A stream, and the client of it that boto3 would be."""

    def __init__(self, shards: int, at_once: int = 3) -> None:
        self.at_once = at_once
        """How many records come in one answer."""
        self.now = BEGIN
        self.failing: list[Exception] = []
        """What the next requests raise."""
        self.refusing: list[str] = []
        """Codes with which the next records are not taken."""
        self.asked: list[str] = []
        self._sequences = itertools.count(BASE, 2**70)
        step = 2**128 // shards
        self.shards = {n: ModelShard(n, n * step, (n + 1) * step) for n in range(shards)}
        self.shards[shards - 1].high = 2**128

    # ---------------------------------------------------------------- for tests

    def put(self, key: str, data: bytes, shard: int | None = None) -> None:
        at = int.from_bytes(md5(key.encode()).digest())
        into = next(
            s for s in self.shards.values()
            if s.open and (s.low <= at < s.high if shard is None else s.number == shard)
        )  # fmt: skip
        into.records.append({
            "SequenceNumber": str(next(self._sequences)), "Data": data, "PartitionKey": key,
            "ApproximateArrivalTimestamp": self.now,
        })  # fmt: skip

    def split(self, number: int) -> None:
        """Close a shard; two others follow it."""
        parent, after = self.shards[number], max(self.shards) + 1
        middle = (parent.low + parent.high) // 2
        parent.open = False
        self.shards[after] = ModelShard(after, parent.low, middle)
        self.shards[after + 1] = ModelShard(after + 1, middle, parent.high)

    def expire(self, number: int, records: int | None = None) -> None:
        """Retention removes records, or a shard with all of them."""
        if records is None:
            del self.shards[number]
        else:
            del self.shards[number].records[:records]

    # ---------------------------------------------------------------- as boto3 has it

    def _request(self, name: str) -> None:
        self.asked.append(name)
        if self.failing:
            raise self.failing.pop(0)

    def list_shards(self, **given: Any) -> dict[str, Any]:
        self._request("list_shards")
        named = "StreamName" in given
        assert named != ("NextToken" in given), "either the stream or where to go on"
        first = int(given.get("NextToken", 0))
        some = sorted(self.shards)[first : first + 2]
        shards = []
        for n in some:
            told: dict[str, Any] = {"StartingSequenceNumber": "0"}
            if not self.shards[n].open:
                told["EndingSequenceNumber"] = "1"
            shards.append({"ShardId": self.shards[n].name, "SequenceNumberRange": told})
        date = {"HTTPHeaders": {"date": format_datetime(self.now, usegmt=True)}}
        found: dict[str, Any] = {"Shards": shards, "ResponseMetadata": date}
        if first + 2 < len(self.shards):
            found["NextToken"] = str(first + 2)
        return found

    def get_shard_iterator(self, **given: Any) -> dict[str, Any]:
        self._request("get_shard_iterator")
        shard = next(s for s in self.shards.values() if s.name == given["ShardId"])
        kind, at = given["ShardIteratorType"], 0
        match kind:
            case "AT_SEQUENCE_NUMBER":
                at = int(given["StartingSequenceNumber"])
            case "AT_TIMESTAMP":
                assert given["Timestamp"] <= self.now, "a moment that is to come is refused"
                late = (
                    r
                    for r in shard.records
                    if r["ApproximateArrivalTimestamp"] >= given["Timestamp"]
                )
                first = next(late, None)
                at = int(first["SequenceNumber"]) if first else self._after(shard)
            case _:
                assert kind == "TRIM_HORIZON"
        return {"ShardIterator": f"{shard.number}:{at}"}

    @staticmethod
    def _after(shard: ModelShard) -> int:
        return int(shard.records[-1]["SequenceNumber"]) + 1 if shard.records else 0

    def get_records(self, ShardIterator: str, Limit: int) -> dict[str, Any]:
        self._request("get_records")
        number, at = map(int, ShardIterator.split(":"))
        shard = self.shards[number]
        left = [r for r in shard.records if int(r["SequenceNumber"]) >= at]
        some = left[: min(self.at_once, Limit)]
        found: dict[str, Any] = {
            "Records": some,
            "MillisBehindLatest": 1000 * (len(left) > len(some)),
        }
        after = int(some[-1]["SequenceNumber"]) + 1 if some else at
        if shard.open or len(some) < len(left):
            found["NextShardIterator"] = f"{number}:{after}"
        return found

    def put_records(self, Records: list[Any], StreamName: str) -> dict[str, Any]:
        self._request("put_records")
        assert len(Records) <= 500
        assert sum(len(r["Data"]) + len(r["PartitionKey"]) for r in Records) <= 5 << 20
        told: list[dict[str, str]] = []
        for record in Records:
            if self.refusing:
                told.append({"ErrorCode": self.refusing.pop(0), "ErrorMessage": "not now"})
                continue
            self.put(record["PartitionKey"], record["Data"])
            told.append({"SequenceNumber": "1"})
        return {"Records": told, "FailedRecordCount": sum("ErrorCode" in t for t in told)}

    def describe_stream_summary(self, StreamName: str) -> dict[str, Any]:
        self._request("describe_stream_summary")
        number = sum(s.open for s in self.shards.values())
        return {"StreamDescriptionSummary": {"OpenShardCount": number}}

    def close(self) -> None:
        pass


UNREACHABLE = EndpointConnectionError(endpoint_url="https://kinesis")
Make = Callable[..., Stream]


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a stream, which is that of all sources and sinks from then on."""

    def make(shards: int = 1, **given: Any) -> Stream:
        made = Stream(shards, **given)
        for module in (source, sink):
            monkeypatch.setattr(module, "client_of", lambda where: made)
        monkeypatch.setattr(source, "LOOK_SECONDS", 0.001)
        monkeypatch.setattr(source, "LIST_SECONDS", 0.0)
        return made

    return make


def later(stream: Stream, seconds: float) -> None:
    stream.now += timedelta(seconds=seconds)
