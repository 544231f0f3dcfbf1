"""Messages as records: their keys, values, timestamps and headers become columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

from raystream.api.batch import Batch
from raystream.errors import InputError, StateError
from raystream.io.formats import Codec, joined, part_of
from raystream.io.formats.base import At, registries, whole
from raystream.io.kafka.layout import Layout, blank_of
from raystream.schema.columns import concat, empty
from raystream.schema.records import record_schema

Tombstones = Literal["refuse", "skip"]
"""What becomes of messages without a value, where no field says that something is deleted."""

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class Decoded(NamedTuple):
    """Messages as records."""

    batch: Batch[Any]
    ends: np.ndarray[Any, np.dtype[np.int64]]
    """The offset after the message of each record."""


class MessageDecoder:
    """Makes records of messages. It belongs to one thread.

    Args:
        topic: of the messages.
    """

    def __init__(
        self, record: type[Any], layout: Layout, tombstones: Tombstones, topic: str
    ) -> None:
        self._record, self._layout, self._tombstones = record, layout, tombstones
        self._value = _codec(layout.format, record, layout.value_of(record), f"{topic}-value")
        self._key = _codec(layout.key_format, record, layout.key, f"{topic}-key")
        self.nothing: Batch[Any] = Batch._of(empty(record_schema(record)))

    def check(self) -> str:
        """What is to be added to the answer of `raystream check`."""
        return registries(self._value, self._key, writes=False)

    def __call__(self, messages: Sequence[Any], where: At | None = None) -> Decoded:
        """The records of messages, one of each; what is skipped has none.

        Args:
            where: says in errors where a message is; unless given, by topic, partition and offset.

        Raises:
            InputError: a message is no record.
        """
        if not messages:
            return Decoded(self.nothing, np.zeros(0, np.int64))
        values = [message.value() for message in messages]
        if self._layout.delete is None and self._value is not None and None in values:
            messages = self._without(messages, values, where)
            if not messages:
                return Decoded(self.nothing, np.zeros(0, np.int64))
            values = [message.value() for message in messages]
        at = where or partial(_at, messages)
        parts = []
        if self._value is not None:
            parts.append(_decoded(self._value, values, "value", at))
        if self._key is not None:
            parts.append(_decoded(self._key, [m.key() for m in messages], "key", at))
        try:
            batch = joined(self._record, parts, self._columns(messages, values, at))
        except StateError as error:
            those = at(0) if len(messages) == 1 else f"{at(0)} and after it"
            raise InputError(f"{those}: {error.message}", hint=error.hint) from None
        return Decoded(batch, offsets_after(messages))

    def shown(self, messages: Sequence[Any]) -> list[Any]:
        """The messages that are not to be left out because they have no value."""
        if self._layout.delete is not None or self._value is None or self._tombstones == "refuse":
            return list(messages)
        return [message for message in messages if message.value() is not None]

    def _without(
        self, messages: Sequence[Any], values: Sequence[Any], where: At | None
    ) -> list[Any]:
        """The messages that have a value."""
        if self._tombstones == "refuse":
            at = where or partial(_at, messages)
            raise InputError(
                f"{at(values.index(None))} has no value: in a compacted topic such a message,"
                " a tombstone, deletes what has its key",
                hint='delete="FIELD" makes such a message a record in which that bool field is'
                ' true, and tombstones="skip" leaves it out.',
            )
        return [m for m, value in zip(messages, values, strict=True) if value is not None]

    def _columns(self, messages: Sequence[Any], values: Sequence[Any], at: At) -> dict[str, Any]:
        """The fields that are neither in keys nor in values."""
        layout, found = self._layout, {}
        if layout.timestamp is not None:
            found[layout.timestamp] = self._times(messages)
        if layout.headers:
            told = [dict(m.headers() or ()) for m in messages]  # of one name the last one counts
            for name, header in layout.headers:
                found[name] = self._header(name, header, told, at)
        if layout.delete is not None:
            found[layout.delete] = [value is None for value in values]
        return found

    def _times(self, messages: Sequence[Any]) -> Any:
        """The timestamps, which Kafka has in milliseconds."""
        times = np.fromiter((m.timestamp()[1] for m in messages), np.int64, len(messages))
        f = record_schema(self._record).field(self._layout.timestamp or "")
        assert f is not None
        if f.value is not None:
            return times.astype("datetime64[ms]")
        per = _PER_SECOND[self._layout.unit]
        return times * (per // 1000) if per >= 1000 else times // 1000

    def _header(self, name: str, header: str, told: Sequence[dict[str, Any]], at: At) -> Any:
        f = record_schema(self._record).field(name)
        assert f is not None
        blank = blank_of(self._record, name)
        values: list[Any] = []
        for n, headers in enumerate(told):
            value = headers.get(header)
            if value is None:
                if blank is None and not f.optional:
                    raise InputError(
                        f"{at(n)} has no header {header!r}",
                        hint=f"Let {self._record.__name__}.{name} be None, or give it a default.",
                    )
                values.append(blank)
                continue
            try:
                values.append(value.decode() if f.kind == "text" else value)
            except UnicodeDecodeError:
                raise InputError(f"{at(n)}: the header {header!r} is not UTF-8") from None
        return values


def offsets_after(messages: Sequence[Any]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The offset after each message."""
    return np.fromiter((m.offset() for m in messages), np.int64, len(messages)) + 1


def _codec(format: Any, record: Any, names: tuple[str, ...], subject: str) -> Codec[Any] | None:
    return format.codec(part_of(record, names), subject=subject) if names else None


def _decoded(codec: Codec[Any], parts: Sequence[bytes | None], what: str, at: At) -> Batch[Any]:
    """The records of keys or values, of which some may be missing."""
    record: Any = codec.record
    there = [part for part in parts if part is not None]
    if len(there) == len(parts):
        return whole(there, codec.decode, record, at)
    blanks = {name: blank_of(record, name) for name in record_schema(record).names}
    schema = record_schema(record)
    missing = [n for n, part in enumerate(parts) if part is None]
    for name, blank in blanks.items():
        f = schema.field(name)
        if blank is None and f is not None and not f.optional:
            raise InputError(
                f"{at(missing[0])} has no {what}, and {schema.name}.{name} is in it",
                hint="Let it be None, or give it a default.",
            )
    places = [n for n, part in enumerate(parts) if part is not None]
    found = whole(there, codec.decode, record, lambda n: at(places[n]))
    without = Batch(record, {name: [blank] * len(missing) for name, blank in blanks.items()})
    order = np.empty(len(parts), np.int64)
    order[places] = np.arange(len(places))
    order[missing] = np.arange(len(places), len(parts))
    return Batch._of(concat([found._columns, without._columns]).take(order))


def _at(messages: Sequence[Any], n: int) -> str:
    """Where the nth message is."""
    message = messages[n]
    return f"{message.topic()}/{message.partition()}, offset {message.offset()}"
