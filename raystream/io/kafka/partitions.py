"""Where partitions begin and end, and which positions stand for their offsets.

A split is a partition, `orders/3`. Its position 0 stands for the first message that there is: so a
partition that is new when a job is resumed is read from its first message, whatever `start=` says.
Position n + 1 stands for offset n.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from raystream.errors import ConfigError, InputError
from raystream.io.databases.waiting import Patience
from raystream.io.kafka.client import ASK_SECONDS, driver, patiently
from raystream.io.kafka.settings import Settings

Start = str | datetime | Mapping[str, int]
"""`"earliest"`, `"latest"`, a moment, or offsets by split."""


End = str | Mapping[str, int]
"""`"latest"`, or offsets by split."""


class Extent(NamedTuple):
    """What there is of a partition."""

    low: int
    """The offset of its first message."""
    high: int
    """The offset of the next message that comes."""


def position_of(offset: int) -> int:
    """The position at which the message with this offset comes next."""
    return offset + 1


def offset_of(position: int, low: int) -> int:
    """The offset of the message that comes next at a position.

    Args:
        low: of the first message that there is.
    """
    return position - 1 if position else low


def split_name(topic: str, partition: int) -> str:
    """The name of a split."""
    return f"{topic}/{partition}"


def partition_of(split: str) -> tuple[str, int]:
    """The topic and the number of the partition of a split."""
    topic, _, number = split.rpartition("/")
    return topic, int(number)


def check_topics(call: str, topics: Any, *, one: bool = False) -> tuple[str, ...]:
    """The topics of a user. one: there may be no more than one.

    Raises:
        ConfigError: one is no name of a topic.
    """
    found: tuple[Any, ...] = (topics,) if isinstance(topics, str) else ()
    if isinstance(topics, list | tuple):
        found = tuple(topics)
    wrong = [t for t in found if not (isinstance(t, str) and _TOPIC.fullmatch(t))]
    if wrong or not found or (one and len(found) > 1) or len(set(found)) != len(found):
        raise ConfigError(
            f"{call}({topics!r:.80}): the name of a topic, or a list of different ones",
            hint="Letters, digits, dots, underscores and hyphens; patterns are not taken.",
        )
    return found


_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


def check_start(call: str, start: Any) -> Start:
    """Where a user wants to begin.

    Raises:
        ConfigError: that is no place.
    """
    if isinstance(start, str) and start in ("earliest", "latest"):
        return start
    if isinstance(start, datetime) and start.tzinfo:
        return start
    if _are_offsets(start):
        return dict(start)
    raise ConfigError(
        f"{call}(start={start!r:.80}): where to begin",
        hint='"earliest", "latest", a datetime with its zone, or offsets by partition:'
        ' {"orders/0": 1200}.',
    )


def check_end(call: str, end: Any) -> End | None:
    """Where a user wants the input to end.

    Raises:
        ConfigError: that is no place.
    """
    if end is None or (isinstance(end, str) and end == "latest"):
        return end
    if _are_offsets(end):
        return dict(end)
    raise ConfigError(
        f"{call}(end={end!r:.80}): where to end",
        hint='"latest", or offsets by partition: {"orders/0": 1200}; None reads on for ever.',
    )


def _are_offsets(given: Any) -> bool:
    """Whether these are offsets by partition."""
    return isinstance(given, Mapping) and all(
        isinstance(k, str) and "/" in k and type(v) is int and v >= 0 for k, v in given.items()
    )


# ---------------------------------------------------------------- what the cluster says


def partitions_of(client: Any, settings: Settings, topic: str, *, was_there: bool = False) -> int:
    """How many partitions a topic has.

    Args:
        was_there: whether the cluster had it before. It may not know it for a moment after it was
            started again, so it is asked again for a while.

    Raises:
        InputError: there is no such topic, or the cluster does not answer.
    """
    patience = Patience(settings.wait if was_there else 0.0)
    while True:
        listed = patiently(
            settings,
            client,
            "could not be asked for topics",
            lambda: client.list_topics(topic, ASK_SECONDS),
        )
        found = listed.topics.get(topic)
        if found is not None and found.error is None and found.partitions:
            return len(found.partitions)
        if patience.left():
            patience.wait()
            continue
        said = "" if found is None or found.error is None else f": {found.error.str()}"
        raise InputError(
            f"Kafka at {settings.servers} has no topic {topic}{said}",
            hint="Make it first, or correct the name. It may also be that the user may not see it.",
        )


def extent(client: Any, settings: Settings, split: str) -> Extent:
    """What there is of a partition. client: a consumer."""
    place = driver().TopicPartition(*partition_of(split))
    low, high = patiently(
        settings,
        client,
        f"could not be asked for the offsets of {split}",
        lambda: client.get_watermark_offsets(place, ASK_SECONDS),
    )
    return Extent(low, high)


def begins(client: Any, settings: Settings, splits: Sequence[str], start: Start) -> dict[str, int]:
    """By split the offset at which a job begins that reads it for the first time.

    Raises:
        InputError: an offset is not there, or the cluster does not answer.
    """
    _refuse_unknown("start", start, splits)
    extents = {split: extent(client, settings, split) for split in splits}
    if isinstance(start, datetime):
        return _at(client, settings, extents, start)
    if isinstance(start, Mapping):
        for split, offset in start.items():
            check_there(split, offset, extents[split])
        return {split: start.get(split, there.low) for split, there in extents.items()}
    return {s: there.low if start == "earliest" else there.high for s, there in extents.items()}


def ends(client: Any, settings: Settings, splits: Sequence[str], end: End) -> dict[str, int]:
    """By split the offset at which the input ends. Partitions that are not named end with what is
    there now.

    Raises:
        InputError: the cluster does not answer.
    """
    _refuse_unknown("end", end, splits)
    given = end if isinstance(end, Mapping) else {}
    return {
        split: given[split] if split in given else extent(client, settings, split).high
        for split in splits
    }


def _refuse_unknown(name: str, given: object, splits: Sequence[str]) -> None:
    unknown = [s for s in given if s not in splits] if isinstance(given, Mapping) else []
    if unknown:
        raise InputError(
            f"{name}= names {unknown[0]}, which is no partition of the topic",
            hint=f"There are {', '.join(splits[:8])}{' ...' if len(splits) > 8 else ''}.",
        )


def _at(
    client: Any, settings: Settings, extents: Mapping[str, Extent], start: datetime
) -> dict[str, int]:
    """The first offsets with this timestamp or a later one; the ends where there are none."""
    moment = int(start.timestamp() * 1000)
    places = [driver().TopicPartition(*partition_of(split), moment) for split in extents]
    found = patiently(
        settings,
        client,
        "could not be asked for offsets of a time",
        lambda: client.offsets_for_times(places, ASK_SECONDS),
    )
    at = {split_name(p.topic, p.partition): p.offset for p in found}
    return {s: at[s] if at[s] >= 0 else there.high for s, there in extents.items()}


def check_there(split: str, offset: int, there: Extent) -> None:
    """Check that reading may go on at an offset.

    Raises:
        InputError: messages from there on are gone, or the partition ends before.
    """
    if offset < there.low:
        raise InputError(
            f"{split} begins at offset {there.low:,} now, and the job is to read on at {offset:,}:"
            f" {there.low - offset:,} offsets are gone by the topic's retention.",
            hint="Nothing is skipped silently. Begin the job again from the start (--fresh,"
            " resume=False), or with start= at an offset that is there; and keep messages longer"
            " than the job may stand still (retention.ms, retention.bytes).",
        )
    if offset > there.high:
        raise InputError(
            f"{split} ends at offset {there.high:,}, and the job is to read on at {offset:,}: the"
            " topic was made again, or has lost messages that had been read.",
            hint="Begin the job again from the start (--fresh, resume=False).",
        )
