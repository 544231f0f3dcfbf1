"""The source: partitions of topics, read by `assign` with positions of its own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from raystream.api.batch import Batch
from raystream.api.looking import counted
from raystream.io.databases.waiting import Beat, pause
from raystream.io.files.bad_lines import mixed, sifted
from raystream.io.formats.bad_messages import MessageSource
from raystream.io.kafka.client import consumer, driver, failed
from raystream.io.kafka.layout import Layout
from raystream.io.kafka.messages import Decoded, MessageDecoder, Tombstones, offsets_after
from raystream.io.kafka.partitions import (
    End,
    Start,
    begins,
    ends,
    extent,
    partition_of,
    partitions_of,
    position_of,
    split_name,
)
from raystream.io.kafka.reading import GROWTH_SECONDS, PartitionReader
from raystream.io.kafka.settings import Settings
from raystream.schema.fields import AnyRecord
from raystream.schema.types import Split

U = TypeVar("U", bound=AnyRecord)

LOOK_SECONDS = 0.2
"""Seconds between two batches without records while a reader waits for messages."""
CHECK_SECONDS = 5.0
"""How long `raystream check` waits for a record."""


class Topics(MessageSource[U]):
    """Each partition is a split. The attributes are the arguments of `rs.io.kafka`."""

    def __init__(
        self,
        topics: tuple[str, ...],
        record: type[U],
        settings: Settings,
        layout: Layout,
        *,
        start: Start,
        end: End | None,
        group: str | None,
        tombstones: Tombstones,
        room: int,
    ) -> None:
        driver()
        self.topics, self.record, self.declared = topics, record, record
        self.settings, self.layout = settings, layout
        self.start, self.end, self.group = start, end, group
        self.tombstones: Tombstones = tombstones
        self.room = room
        """How many partitions of each topic are read, also those that are not there yet."""
        self._there: dict[str, int] = {}
        """By topic how many partitions there were when the job was planned."""
        self.waits = end is None
        self._ends: dict[str, int] = {}
        """With `end=`: by split the offset at which it ends, as of when it was planned."""
        self._teller: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_teller": None}

    def __repr__(self) -> str:
        return f"kafka({', '.join(self.topics)}, {self.declared.__name__}, {self.settings.servers})"

    def in_unit(self, unit: str, /) -> Topics[U]:
        """Timestamps are given in this unit where the record declares an int."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__getstate__(), layout=replace(self.layout, unit=unit))
        return made

    def splits(self) -> Sequence[Split]:
        """The partitions that there are now, in order of topics and numbers.

        Raises:
            InputError: there is no such topic, or the cluster does not answer.
        """
        with closing(consumer(self.settings, None)) as client:
            names = self._names(client)
            if self.end is not None:
                self._ends = ends(client, self.settings, names, self.end)
            first = begins(client, self.settings, names, self.start)
        found = [Split(name, position_of(first[name])) for name in names]
        for topic, there in self._there.items():
            found += [Split(split_name(topic, n)) for n in range(there, self.room)]
        return found

    def comes_later(self, split: str, /) -> bool:
        """Whether a partition was not there when the job was planned."""
        topic, number = partition_of(split)
        return number >= self._there.get(topic, number + 1)

    def _names(self, client: Any) -> list[str]:
        self._there = {t: partitions_of(client, self.settings, t) for t in self.topics}
        return [split_name(topic, n) for topic, there in self._there.items() for n in range(there)]

    def read(self, split: Split, position: int, /) -> Iterator[Any]:
        """What there is, in batches; a batch without records when nothing comes for a while.

        Raises:
            InputError: messages are gone or are no records, or the cluster cannot be reached.
        """
        end = self._ends.get(split.name)
        topic, _ = partition_of(split.name)
        decode = self._decoder(topic)
        if not position and self.comes_later(split.name):
            nothing, after = self._decoded(decode, split.name, [])
            for _ in self._awaited(split.name):
                yield 0, nothing, after
        with closing(PartitionReader(self.settings, split.name, position)) as reader:
            while end is None or reader.next < end:
                messages = reader.take(LOOK_SECONDS)
                if end is None and (more := reader.grown()) > self.room:
                    warnings.warn(_more(topic, more), RuntimeWarning, stacklevel=2)
                if end is not None and reader.next > end:
                    messages = [m for m in messages if m.offset() < end]
                batch, after = self._decoded(decode, split.name, messages)
                upto = reader.next if end is None else min(reader.next, end)
                yield position_of(upto), batch, _positions(after)

    def _awaited(self, split: str) -> Iterator[None]:
        """Yields now and then, until a partition is there."""
        topic, number = partition_of(split)
        beat = Beat(0.0)
        while True:
            if beat.due():
                with closing(consumer(self.settings, None)) as client:
                    if partitions_of(client, self.settings, topic, was_there=True) > number:
                        return
                beat = Beat(GROWTH_SECONDS)
            yield
            pause(LOOK_SECONDS)

    def _decoded(self, decode: MessageDecoder, split: str, messages: Sequence[Any]) -> Decoded:
        if not self.apart:
            return decode(messages)
        messages = decode.shown(messages)
        found = sifted(messages, lambda some: decode(some, _nowhere).batch)
        numbers, data = [m.offset() for m in messages], [m.value() for m in messages]
        rows = mixed(self.declared, split, numbers, data, found, timed=False)
        return Decoded(rows, offsets_after(messages))

    def commit(self, positions: Mapping[str, int], /) -> None:
        """Commit the offsets of the group, for tools that look at how far it is."""
        if self.group is None:
            return
        places = [
            driver().TopicPartition(*partition_of(name), position - 1)
            for name, position in positions.items()
            if position
        ]
        if not places:
            return
        if self._teller is None:
            self._teller = consumer(self.settings, self.group)
        try:
            self._teller.commit(offsets=places, asynchronous=False)
        except driver().KafkaException as error:
            raise failed(
                self.settings, f"did not take the offsets of the group {self.group}", error
            ) from None

    def close(self) -> None:
        """Close the client that commits."""
        teller, self._teller = self._teller, None
        if teller is not None:
            teller.close()

    def check(self) -> str:
        """Look what is there, and read a record."""
        decoders = {topic: self._decoder(topic) for topic in self.topics}
        registries = "".join(dict.fromkeys(d.check() for d in decoders.values()))
        with closing(consumer(self.settings, None)) as client:
            names = self._names(client)
            there = {name: extent(client, self.settings, name) for name in names}
        offsets = sum(e.high - e.low for e in there.values())
        said = f"{counted(len(names), 'partition')}, {counted(offsets, 'offset')}"
        full = next((name for name, e in there.items() if e.high > e.low), None)
        if full is None:
            return f"{said}; no records now{registries}"
        decode = decoders[partition_of(full)[0]]
        with closing(PartitionReader(self.settings, full, 0)) as reader:
            batch: Batch[Any] = decode(reader.take(CHECK_SECONDS)[:1]).batch
        if not len(batch):
            return f"{said}; no record of {full} came within {CHECK_SECONDS:g} s{registries}"
        return f"{said}; read a record ({self.declared.__name__}) of {full}{registries}"

    def _decoder(self, topic: str) -> MessageDecoder:
        return MessageDecoder(self.declared, self.layout, self.tombstones, topic)


def _more(topic: str, partitions: int) -> str:
    return (
        f"The topic {topic} has {partitions} partitions by now, and this run does not read those"
        " that are new. Stop the job (raystream stop --save) and resume it: they are then read from"
        " their first message. partitions= makes room for more while a job runs."
    )


def _nowhere(n: int) -> str:
    return ""


def _positions(after: Any) -> Any:
    """Positions after messages, from the offsets after them."""
    return after + np.int64(position_of(0))
