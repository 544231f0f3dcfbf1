"""What users call for Kinesis. What it makes is imported then."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from raystream.api.arguments import check_record, refuse_others, whole
from raystream.errors import ConfigError, placed
from raystream.io.aws import check_region
from raystream.io.formats import Format
from raystream.schema.fields import AnyRecord
from raystream.schema.lengths import Seconds, wait_of

if TYPE_CHECKING:
    from raystream.io.kinesis.sink import SentStream
    from raystream.io.kinesis.source import KinesisStream

U = TypeVar("U", bound=AnyRecord)

CALL = "rs.io.kinesis"
MORE = 8
EVERY = 0.25

_STREAM = re.compile(r"[a-zA-Z0-9_.-]{1,128}|arn:[\w-]+:kinesis:[\w-]+:\d+:stream/[\w.-]{1,128}")


@overload
def kinesis(
    stream: str,
    record: type[U],
    /,
    *,
    region: str | None = None,
    format: Format | None = None,
    bad: Literal["refuse", "stream"] | None = None,
    start: Literal["earliest", "latest"] | datetime | None = None,
    end: Literal["latest"] | None = None,
    more: int | None = None,
    every: Seconds | None = None,
    wait: Seconds = 60.0,
) -> KinesisStream[U]: ...
@overload
def kinesis(
    stream: str,
    /,
    *,
    region: str | None = None,
    format: Format | None = None,
    key: str | None = None,
    wait: Seconds = 60.0,
) -> SentStream: ...
@placed
def kinesis(
    stream: str,
    record: type[Any] | None = None,
    /,
    *,
    region: str | None = None,
    format: Format | None = None,
    key: str | None = None,
    bad: str | None = None,
    start: Any = None,
    end: Any = None,
    more: int | None = None,
    every: Seconds | None = None,
    wait: Seconds = 60.0,
) -> Any:
    """A stream of Amazon Kinesis: with a record type a source, without one a sink. It needs the
    extra `kinesis`.

        orders = flow.source(rs.io.kinesis("orders", Order, region="eu-central-1"))
        totals.to(rs.io.kinesis("totals", key="shop"))

    As a source each shard is a split, and positions are sequence numbers: each record counts
    exactly once. Shards that follow others, when the stream is resharded, are read while the job
    runs. As a sink it is at least once. Credentials are as boto3 finds them, on every node.

    Args:
        stream: its name, or its ARN.
        record: what records of a source are; the data of each is one.
        region: of the stream, where boto3 does not find it.
        format: how data stand for records; `rs.io.formats.json()` unless given.
        key: of a sink, the field that is the partition key, a str or an int. Its input is
            partitioned by it. Unless given, records are spread over the shards.
        bad: of a source, what becomes of data that are no such records: `"refuse"` ends the job and
            happens unless given, with `"stream"` they are in `stream[rs.io.BadMessage]`.
        start: of a source, where a job begins that is not resumed: `"earliest"` (unless given),
            `"latest"`, or with what came at this moment or later.
        end: of a source: `"latest"` ends the input with what is there when the job begins.
        more: of a source, for how many shards that come while the job runs there is room; 8 unless
            given.
        every: of a source, how many seconds lie between two requests for records of a shard that
            had no more; 0.25 unless given. Kinesis takes five requests a second for each shard,
            of all readers together.
        wait: for how many seconds to try again where Kinesis cannot be reached or is asked too
            much.

    Raises:
        ConfigError: an argument cannot be, or boto3 is not installed.
        GraphError: the record does not fit.
    """
    from raystream.io.formats.json import JsonFormat
    from raystream.io.kinesis.client import StreamPlace

    if not isinstance(stream, str) or not _STREAM.fullmatch(stream):
        raise ConfigError(f"{CALL}({stream!r:.80}): the name of a stream, or its ARN")
    check_region(CALL, region)
    if format is not None and not isinstance(format, Format):
        raise ConfigError(f"{CALL}(format={format!r:.80}): a format of rs.io.formats")
    where = StreamPlace(
        stream,
        region,
        wait_of(CALL, "wait", wait),
    )
    form = format or JsonFormat()
    reading = {"bad": bad, "start": start, "end": end, "more": more, "every": every}
    refuse_others(
        CALL, "streams", {"key": key} if record is not None else reading, reading=record is not None
    )
    if record is not None:
        return _source(record, where, form, **reading)
    from raystream.io.kinesis.sink import SentStream

    if key is not None and not (isinstance(key, str) and key):
        raise ConfigError(f"{CALL}(key={key!r:.80}): the name of a field")
    return SentStream(where, form, key)


def _source(
    record: type[Any], where: Any, form: Format, *, bad: Any, start: Any, end: Any, more: Any,
    every: Any,
) -> KinesisStream[Any]:  # fmt: skip
    from raystream.io.kinesis.source import KinesisStream, ShardOptions

    check_record(CALL, record)
    moment = isinstance(start, datetime) and start.tzinfo is not None
    if start not in (None, "earliest", "latest") and not moment:
        raise ConfigError(
            f"{CALL}(start={start!r:.80}): where to begin",
            hint='"earliest", "latest", or a datetime with its zone.',
        )
    if end not in (None, "latest"):
        raise ConfigError(f'{CALL}(end={end!r:.80}): "latest"; None reads on for ever')
    room = MORE if more is None else whole(CALL, "more", more, 0, 1024, ConfigError)
    pause = EVERY if every is None else wait_of(CALL, "every", every, zero=False)
    asked = ShardOptions(start or "earliest", end is not None, room, pause)
    made = KinesisStream(record, where, form, asked)
    made.sifting(CALL, "refuse" if bad is None else bad)
    return made
