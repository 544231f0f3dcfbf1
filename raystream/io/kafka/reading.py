"""A partition: its messages from an offset on."""

from __future__ import annotations

from typing import Any

from raystream.errors import InputError
from raystream.io.databases.waiting import Patience
from raystream.io.kafka.client import (
    ASK_SECONDS,
    Trouble,
    consumer,
    driver,
    failed,
    is_refused,
    words_of,
)
from raystream.io.kafka.partitions import check_there, extent, offset_of, partition_of
from raystream.io.kafka.settings import Settings

GROWTH_SECONDS = 60.0
"""How often it is looked whether a topic has new partitions."""
MESSAGES_MOST = 5_000
"""How many messages are taken at once at most."""


class PartitionReader:
    """Reads a partition with a client of its own, by `assign`: no group divides the partitions.

    Args:
        split: the partition.
        position: see `partitions`.

    Raises:
        InputError: what is to be read is not there, or the cluster does not answer.
    """

    def __init__(self, settings: Settings, split: str, position: int) -> None:
        self.split = split
        self._settings = settings
        self._trouble = Trouble(settings)
        self._client = consumer(settings, None, self._trouble)
        self._again: Patience | None = None
        try:
            there = extent(self._client, settings, split)
            self.next = offset_of(position, there.low)
            """The offset after the last message that was taken, or after what is not shown."""
            check_there(split, self.next, there)
            place = driver().TopicPartition(*partition_of(split), self.next)
            self._client.assign([place])
            self._known = self._partitions()
            self._growth = Patience(GROWTH_SECONDS)
        except BaseException:
            self._client.close()
            raise

    def take(self, seconds: float) -> list[Any]:
        """The messages that there are; waits so long for the first one.

        Raises:
            InputError: messages are gone, or the cluster cannot be reached for too long.
        """
        first = self._client.poll(seconds)
        if first is None:
            self._trouble.check(self._reached)
            return []
        found = []
        for message in [first, *self._client.consume(MESSAGES_MOST - 1, 0)]:
            if (error := message.error()) is None:
                found.append(message)
                self.next = message.offset() + 1
            elif error.code() == driver().KafkaError._PARTITION_EOF:
                self.next = max(self.next, message.offset())
                self._trouble.over()
            else:
                self._failed(error)
        if found:
            self._again = None
            self._trouble.over()
        return found

    def grown(self) -> int:
        """How many partitions the topic has, if there are new ones since the last call; 0 if not.
        Only the reader of its first partition looks, every `GROWTH_SECONDS`."""
        if self._growth.left() or partition_of(self.split)[1]:
            return 0
        self._growth = Patience(GROWTH_SECONDS)
        before, self._known = self._known, max(self._known, self._partitions())
        return self._known if self._known > before else 0

    def _partitions(self) -> int:
        """How many partitions the topic has, as far as the client can learn."""
        topic, _ = partition_of(self.split)
        try:
            found = self._client.list_topics(topic, ASK_SECONDS).topics.get(topic)
        except driver().KafkaException:
            return 0
        return 0 if found is None else len(found.partitions)

    def _failed(self, error: Any) -> None:
        """See what an error means that came instead of a message."""
        codes = driver().KafkaError
        if error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            check_there(self.split, self.next, extent(self._client, self._settings, self.split))
            self._read_again(error)
            return
        if is_refused(error) or error.fatal():
            raise failed(self._settings, f"does not let {self.split} be read", error)
        self._trouble(error)
        self._trouble.check(self._reached)

    def _read_again(self, error: Any) -> None:
        """Read on where it was: the offset is there, although the cluster has said otherwise. So it
        is for a moment where a partition is new, or has a new leader."""
        if self._again is None:
            self._again = Patience(self._settings.wait)
        if not self._again.left():
            said = self._settings.words(words_of(error))
            raise InputError(f"{self.split} cannot be read on at offset {self.next:,}: {said}")
        self._again.wait()
        place = driver().TopicPartition(*partition_of(self.split), self.next)
        self._client.assign([place])

    def _reached(self) -> bool:
        """Whether the cluster answers, and has the partition."""
        topic, partition = partition_of(self.split)
        try:
            found = self._client.list_topics(topic, ASK_SECONDS).topics.get(topic)
        except driver().KafkaException:
            return False
        return found is not None and found.error is None and partition in found.partitions

    def close(self) -> None:
        """Close the client."""
        self._client.close()
