"""What users call for Kafka. What it makes is imported then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from raystream.api.arguments import check_flag, check_record, refuse_others, whole
from raystream.errors import ConfigError, placed
from raystream.io.formats import Format
from raystream.schema.fields import AnyRecord
from raystream.schema.lengths import Seconds

if TYPE_CHECKING:
    from raystream.io.databases.sink import Visible
    from raystream.io.kafka.layout import Layout
    from raystream.io.kafka.settings import Settings
    from raystream.io.kafka.sink import SentTopic, TransactionalTopic
    from raystream.io.kafka.source import Topics

U = TypeVar("U", bound=AnyRecord)
Start = Literal["earliest", "latest"] | datetime | Mapping[str, int]

CALL = "rs.io.kafka"


@overload
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
    tombstones: Literal["refuse", "skip"] | None = None,
    bad: Literal["refuse", "stream"] | None = None,
    start: Start | None = None,
    end: Literal["latest"] | Mapping[str, int] | None = None,
    group: str | None = None,
    partitions: int | None = None,
    wait: Seconds = 60.0,
    settings: Mapping[str, Any] | None = None,
) -> Topics[U]: ...
@overload
def kafka(
    topic: str,
    /,
    *,
    servers: str | Sequence[str],
    exactly_once: Literal[False],
    format: Format | None = None,
    key: str | Sequence[str] | None = None,
    key_format: Format | None = None,
    timestamp: str | None = None,
    headers: Mapping[str, str] | None = None,
    delete: str | None = None,
    create: bool | None = None,
    wait: Seconds = 60.0,
    settings: Mapping[str, Any] | None = None,
) -> SentTopic: ...
@overload
def kafka(
    topic: str,
    /,
    *,
    servers: str | Sequence[str],
    format: Format | None = None,
    key: str | Sequence[str] | None = None,
    key_format: Format | None = None,
    timestamp: str | None = None,
    headers: Mapping[str, str] | None = None,
    delete: str | None = None,
    create: bool | None = None,
    exactly_once: Literal[True] | None = None,
    visible: Visible | None = None,
    existing: Literal["refuse", "keep"] | None = None,
    journal: str | None = None,
    wait: Seconds = 60.0,
    settings: Mapping[str, Any] | None = None,
) -> TransactionalTopic: ...
@placed
def kafka(
    topic: Any,
    record: type[Any] | None = None,
    /,
    *,
    servers: str | Sequence[str],
    format: Format | None = None,
    key: str | Sequence[str] | None = None,
    key_format: Format | None = None,
    timestamp: str | None = None,
    headers: Mapping[str, str] | None = None,
    delete: str | None = None,
    tombstones: str | None = None,
    bad: str | None = None,
    start: Any = None,
    end: Any = None,
    group: str | None = None,
    partitions: int | None = None,
    create: bool | None = None,
    exactly_once: bool | None = None,
    visible: Any = None,
    existing: Any = None,
    journal: str | None = None,
    wait: Seconds = 60.0,
    settings: Mapping[str, Any] | None = None,
) -> Any:
    """Topics of Kafka: with a record type a source, without one a sink. It needs the extra `kafka`.

        orders = flow.source(rs.io.kafka("orders", Order, servers="localhost:9092"))
        totals.to(rs.io.kafka("totals", servers="localhost:9092", key="shop"))

    As a source each partition is a split, and the positions are the job's own: no group divides
    partitions, so nothing is ever rebalanced. Messages of aborted or open transactions are not
    read. As a sink it writes the messages of an epoch and a marker in one transaction, so readers
    of what is committed see each record exactly once, as soon as its epoch is written.

    Args:
        topic: the name of a topic; of a source also of several whose messages are such records.
        record: what messages of a source are.
        servers: `"host:port"`, or a list of them; some servers of the cluster are enough.
        format: how values stand for records; `rs.io.formats.json()` unless given.
        key: the field, or fields, in the key of the message. Unless given, keys are not read, and
            messages are written without one. The input of a sink is partitioned by it.
        key_format: how keys stand for these; unless given a single field is
            `rs.io.formats.raw()`, several are `json()`.
        timestamp: the field that is the timestamp of the message: a datetime, or of a source also
            an int in the flow's unit.
        headers: fields that are headers, of which the name is given: `{"trace": "trace-id"}`.
        delete: a bool field that is true where a message has no value (a tombstone). When it is
            read, the fields of its value are their defaults, or None.
        tombstones: of a source, what becomes of such messages without `delete=`: `"refuse"` ends
            the job and happens unless given, `"skip"` leaves them out.
        bad: of a source, what becomes of messages that are no such records. `"refuse"` ends the job
            and happens unless given; with `"stream"` `stream[rs.io.BadMessage]` has them, and
            `stream[Order]` the records. Such a source is cut by arrival.
        start: of a source, where a job begins that is not resumed: `"earliest"` (unless given),
            `"latest"`, the first message with this timestamp or a later one, or an offset for some
            partitions (`{"orders/0": 1200}`; the others begin with their first message).
        end: of a source: `"latest"` ends the input with what is there when the job begins, offsets
            (`{"orders/0": 1200}`) end partitions before these. Such a source may be cut into epochs
            by time.
        group: of a source, where to commit offsets after each checkpoint, for tools that show how
            far a group is behind. They are not read.
        partitions: of a source, for how many partitions of each topic there is room. Those that are
            added while the job runs, up to this many, are read from their first message. Unless
            given, only those that are there when the job begins.
        create: of a sink: whether the topic is made if it is not there, with as many partitions as
            is usual in the cluster.
        exactly_once: of a sink: False writes without transactions; messages after the committed
            checkpoint are then written again after a failure.
        visible: of a sink: `"saved"` shows messages only when a checkpoint is committed; with a
            durable tier, when it is saved. That is what happens unless given with a durable tier
            and epochs cut by arrival; otherwise messages show at once.
        existing: of a sink, what a run that begins at the beginning does if an earlier one broke
            off: `"refuse"` does not begin, and is what happens unless given; `"keep"` adds to what
            that one has written.
        journal: of a sink, the compacted topic for its markers; `"raystream-journal"` unless given.
            It is made if it is not there. All jobs may share it.
        wait: for how many seconds to try again when the cluster cannot be reached.
        settings: of the client, by names of librdkafka: `{"security.protocol": "SASL_SSL", ...}`.
            Passwords are not shown.

    Raises:
        ConfigError: an argument cannot be, or confluent-kafka is not installed.
        GraphError: the record does not fit.
    """
    from raystream.io.kafka.client import check_settings
    from raystream.io.kafka.layout import layout_of
    from raystream.io.kafka.settings import settings_of

    given: dict[str, Any] = {"tombstones": tombstones, "bad": bad, "start": start, "end": end}
    given |= {"group": group, "partitions": partitions}
    writing: dict[str, Any] = {"create": create, "exactly_once": exactly_once}
    writing |= {"visible": visible, "existing": existing, "journal": journal}
    if record is not None:
        check_record(CALL, record)
    refuse_others(
        CALL, "topics", writing if record is not None else given, reading=record is not None
    )
    layout = layout_of(
        CALL,
        record,
        format=format,
        key=key,
        key_format=key_format,
        timestamp=timestamp,
        headers=headers,
        delete=delete,
    )
    checked = settings_of(CALL, servers, settings, wait)
    check_settings(checked, reading=record is not None)
    if record is not None:
        return _source(topic, record, checked, layout, **given)
    return _sink(topic, checked, layout, **writing)


def _source(
    topic: Any,
    record: type[Any],
    settings: Settings,
    layout: Layout,
    *,
    tombstones: Any,
    bad: Any,
    start: Any,
    end: Any,
    group: Any,
    partitions: Any,
) -> Topics[Any]:
    from raystream.io.kafka.partitions import check_end, check_start, check_topics
    from raystream.io.kafka.source import Topics

    topics = check_topics(CALL, topic)
    layout.check_blanks(CALL, record)
    if tombstones not in (None, "refuse", "skip"):
        raise ConfigError(f'{CALL}(tombstones={tombstones!r:.80}): "refuse" or "skip"')
    if group is not None and not (isinstance(group, str) and group):
        raise ConfigError(f"{CALL}(group={group!r:.80}): the name of a group")
    room = 0 if partitions is None else whole(CALL, "partitions", partitions, 1, 4096, ConfigError)
    if room and end is not None:
        raise ConfigError(f"{CALL}(partitions=): with end= the partitions are those that are there")
    made = Topics(
        topics,
        record,
        settings,
        layout,
        start="earliest" if start is None else check_start(CALL, start),
        end=check_end(CALL, end),
        group=group,
        tombstones=tombstones or "refuse",
        room=room,
    )
    made.sifting(CALL, "refuse" if bad is None else bad)
    return made


def _sink(
    topic: Any,
    settings: Settings,
    layout: Layout,
    *,
    create: Any,
    exactly_once: Any,
    visible: Any,
    existing: Any,
    journal: Any,
) -> SentTopic | TransactionalTopic:
    from raystream.io.kafka.partitions import check_topics
    from raystream.io.kafka.sink import SentTopic, TransactionalTopic

    (name,) = check_topics(CALL, topic, one=True)
    for what, value in (("create", create), ("exactly_once", exactly_once)):
        if value is not None:
            check_flag(CALL, what, value)
    if exactly_once is False:
        for what, value in (("visible", visible), ("existing", existing), ("journal", journal)):
            if value is not None:
                raise ConfigError(f"{CALL}({what}=) is for a sink that is exactly once")
        return SentTopic(name, settings, layout, create=bool(create))
    (noted,) = check_topics(CALL, "raystream-journal" if journal is None else journal, one=True)
    return TransactionalTopic(
        name,
        settings,
        layout,
        create=bool(create),
        journal=noted,
        visible=visible,
        existing="refuse" if existing is None else existing,
    )
