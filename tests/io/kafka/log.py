"""A log with transactions in memory, as a cluster is to the sink: for tests of the rules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raystream.api.batch import Batch
from raystream.io.databases.connection import Connection
from raystream.io.databases.sink import TransactionalSink, Visible
from raystream.io.kafka.journal import JournalRecord, Outgoing
from raystream.io.kafka.transactions import KafkaConnection, Standing
from raystream.schema.types import SinkContext


class Fenced(Exception):
    """A newer writer has this one's id."""


class MemoryLog:
    """A target and a journal. Transactions are open, committed or undone."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.target: list[tuple[Outgoing, object]] = []
        self.journal: list[tuple[JournalRecord, object]] = []
        self.committed: set[object] = set()
        self.writers: dict[str, MemoryWriter] = {}

    def prepare(self) -> None:
        pass

    def writer(self, id: str) -> MemoryWriter:
        return MemoryWriter(self, id)

    def read(self, *, whole: bool) -> Sequence[JournalRecord]:
        """What is committed. A reader sees nothing after the first record of an open transaction;
        one that waits for the whole finds none open, because this is one thread: so it is not a
        stand-in for waiting."""
        return [entry for entry, by in self.journal if by in self.committed]

    def messages(self) -> list[Outgoing]:
        return [message for message, by in self.target if by in self.committed]

    def close(self) -> None:
        pass


class MemoryWriter:
    def __init__(self, log: MemoryLog, id: str) -> None:
        self._log, self._id = log, id
        self._by: object = None

    def init(self) -> None:
        self._log.writers[self._id] = self

    def begin(self) -> None:
        self._refuse()
        self._by = object()

    def send(self, messages: Sequence[Outgoing]) -> None:
        self._refuse()
        self._log.target += [(m, self._by) for m in messages]

    def note(self, entries: Sequence[JournalRecord]) -> None:
        self._refuse()
        self._log.journal += [(e, self._by) for e in entries]

    def commit(self) -> None:
        self._refuse()
        self._log.committed.add(self._by)

    def abort(self) -> None:
        self._by = None

    def close(self) -> None:
        pass

    def _refuse(self) -> None:
        if self._log.writers.get(self._id) is not self:
            raise Fenced


class LoggedSink(TransactionalSink):
    """A sink to such a log. Each message is the repr of a record."""

    def __init__(self, log: MemoryLog, visible: Visible | None = None) -> None:
        super().__init__(visible=visible)
        self.memory = log
        self._standing = Standing()

    def open(self, context: SinkContext, /) -> None:
        self._standing = Standing()
        super().open(context)

    def encode(self, batch: Batch[Any]) -> Any:
        return [Outgoing(None, repr(record).encode()) for record in batch.records()]

    def connect(self, context: SinkContext) -> Connection:
        return KafkaConnection(
            self.memory, "check", "the log", context, self.existing, self._standing
        )

    def passing(self, error: Exception) -> bool:
        return isinstance(error, Fenced)
