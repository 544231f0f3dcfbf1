"""Records as messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from raystream.api.batch import Batch
from raystream.errors import GraphError
from raystream.io.formats import Codec, part_of
from raystream.io.formats.base import registries, taken_from
from raystream.io.kafka.journal import Outgoing
from raystream.io.kafka.layout import Layout
from raystream.schema.records import record_schema


class Encoder:
    """Makes messages of records. It belongs to one thread.

    Args:
        call: what the user has called. topic: to which they go.

    Raises:
        GraphError: messages cannot stand for such records.
    """

    def __init__(self, call: str, record: type[Any], layout: Layout, topic: str) -> None:
        layout.check(call, record)
        schema = record_schema(record)
        for name in layout.key:
            if (f := schema.field(name)) is not None and f.optional:
                raise GraphError(f"{call}: {schema.name}.{f} is in the key, so it may not be None")
        if layout.timestamp is not None:
            f = schema.field(layout.timestamp)
            if f is None or f.value is None or f.optional:
                raise GraphError(
                    f"{call}(timestamp={layout.timestamp!r}): a datetime, and not {f}",
                    hint="An int does not say in which unit it is.",
                )
        self._layout = layout
        self._values = layout.value_of(record)
        self._value = _codec(layout.format, record, self._values, f"{topic}-value")
        self._key = _codec(layout.key_format, record, layout.key, f"{topic}-key")

    def check(self) -> str:
        """What is to be added to the answer of `raystream check`."""
        return registries(self._value, self._key, writes=True)

    def __call__(self, batch: Batch[Any]) -> list[Outgoing]:
        """The messages of records, one of each, in order."""
        number, layout = len(batch), self._layout
        keys: list[bytes | None] = [None] * number
        values: list[bytes | None] = [b""] * number
        times: list[int | None] = [None] * number
        headers: list[tuple[tuple[str, bytes], ...]] = [()] * number
        if self._key is not None:
            keys = [*self._key.encode(taken_from(batch, layout.key))]
        if self._value is not None:
            values = [*self._value.encode(taken_from(batch, self._values))]
        if layout.delete is not None:
            gone = np.asarray(batch[layout.delete]).tolist()
            values = [None if g else v for g, v in zip(gone, values, strict=True)]
        if layout.timestamp is not None:
            times = (batch._columns.column(layout.timestamp).astype(np.int64) // 1000).tolist()
        if layout.headers:
            headers = _headers(batch, layout.headers)
        return [*map(Outgoing._make, zip(keys, values, times, headers, strict=True))]


def _headers(
    batch: Batch[Any], named: tuple[tuple[str, str], ...]
) -> list[tuple[tuple[str, bytes], ...]]:
    """The headers of each record; what is None is left out."""
    columns = [(header, batch[name].to_pylist()) for name, header in named]
    return [
        tuple(
            (header, v.encode() if isinstance(v, str) else v)
            for header, column in columns
            if (v := column[n]) is not None
        )
        for n in range(len(batch))
    ]


def _codec(format: Any, record: Any, names: tuple[str, ...], subject: str) -> Codec[Any] | None:
    return format.codec(part_of(record, names), subject=subject) if names else None
