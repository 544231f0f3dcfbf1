"""What users call for Kafka. What it makes is imported then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from raystream.api.arguments import check_record
from raystream.errors import ConfigError, placed
from raystream.io.formats import Format
from raystream.schema.fields import AnyRecord

if TYPE_CHECKING:
    from raystream.io.kafka.source import Topics

U = TypeVar("U", bound=AnyRecord)

_CALL = "rs.io.kafka"


@placed
def kafka(
    topic: str | Sequence[str],
    record: type[U],
    /,
    *,
    servers: str | Sequence[str],
    format: Format | None = None,
    key: str | Sequence[str] | None = None,
    key_format: Format | None = None,
    timestamp: str | None = None,
    headers: Mapping[str, str] | None = None,
    delete: str | None = None,
    tombstones: Literal["refuse", "skip"] = "refuse",
    start: Literal["earliest", "latest"] | datetime | Mapping[str, int] = "earliest",
    end: Literal["latest"] | None = None,
    group: str | None = None,
    wait: float = 60.0,
    settings: Mapping[str, Any] | None = None,
) -> Topics[U]:
    """Topics of Kafka as a source. It needs the extra `kafka`.

        orders = flow.source(rs.io.kafka("orders", Order, servers="localhost:9092"))

    Each partition is a split, and the positions are the job's own: no group divides partitions, so
    nothing is ever rebalanced. Messages of aborted or open transactions are not read.

    Args:
        topic: the name of a topic, or of several ones whose messages are such records.
        record: their type.
        servers: `"host:port"`, or a list of them; some servers of the cluster are enough.
        format: how values stand for records; `rs.io.formats.json()` unless given.
        key: the field, or fields, in the key of the message. Unless given, keys are not read.
        key_format: how keys stand for these; unless given a single field is
            `rs.io.formats.raw()`, several are `json()`.
        timestamp: the field that is the timestamp of the message, a datetime or an int in the
            flow's unit.
        headers: fields that are headers, of which the name is given: `{"trace": "trace-id"}`.
        delete: a bool field that is true in a message without a value (a tombstone). The fields of
            its value are then their defaults, or None.
        tombstones: what becomes of such messages without `delete=`: `"refuse"` ends the job,
            `"skip"` leaves them out.
        start: where a job begins that is not resumed: `"earliest"`, `"latest"`, the first message
            with this timestamp or a later one, or an offset for some partitions
            (`{"orders/0": 1200}`; the others begin with their first message).
        end: `"latest"` ends the input with what is there when the job begins. Such a source may be
            cut into epochs by time.
        group: where to commit offsets after each checkpoint, for tools that show how far a group
            is behind. They are not read.
        wait: for how many seconds to try again when the cluster cannot be reached.
        settings: of the client, by names of librdkafka: `{"security.protocol": "SASL_SSL", ...}`.
            Passwords are not shown.

    Raises:
        ConfigError: an argument cannot be, or confluent-kafka is not installed.
        GraphError: the record does not fit.
    """
    from raystream.io.kafka.layout import layout_of
    from raystream.io.kafka.partitions import check_start, check_topics
    from raystream.io.kafka.settings import settings_of
    from raystream.io.kafka.source import Topics

    topics = check_topics(_CALL, topic)
    check_record(_CALL, record)
    layout = layout_of(
        _CALL,
        record,
        format=format,
        key=key,
        key_format=key_format,
        timestamp=timestamp,
        headers=headers,
        delete=delete,
    )
    layout.check_blanks(_CALL, record)
    if tombstones not in ("refuse", "skip"):
        raise ConfigError(f'{_CALL}(tombstones={tombstones!r:.80}): "refuse" or "skip"')
    if end not in (None, "latest"):
        raise ConfigError(f'{_CALL}(end={end!r:.80}): "latest", or None to read on')
    if group is not None and not (isinstance(group, str) and group):
        raise ConfigError(f"{_CALL}(group={group!r:.80}): the name of a group")
    return Topics(
        topics,
        record,
        settings_of(_CALL, servers, settings, wait),
        layout,
        start=check_start(_CALL, start),
        bounded=end == "latest",
        group=group,
        tombstones=tombstones,
    )
