"""A sink's transactions: messages and the journal's records, all of them or none.

Kafka has no locks. In their place a *writer* has an id, and of one id only the newest writer can
write: the cluster fences the one before it, and undoes what that one had begun. Ids belong to
ranges of key groups, `WRITERS` of them to each. An instance that takes a range over

    1. reads the journal, and ends if a greater owner is there
    2. begins writers with all ids of its range, which fences the instance before it
    3. notes its run, the first time in a run; a writer with an id for that alone does so, or two
       runs could take one number
    4. claims the range: it writes its owner
    5. reads the journal again. It ends if a greater owner has claimed any of it; otherwise it
       fences the ids of all other ranges that overlap its own, and reads again what they wrote.

Of two instances whose ranges overlap, at least one reads the claim of the other one, because each
writes its own before it reads. So the lesser one ends, or is fenced before it writes anything.

An owner that was fenced by a lesser one, which had been asleep, begins new writers in the same way
and goes on. The lesser one reads the greater claim and ends.

The writers of a range take turns. When a commit has returned, the cluster still has to write the
end of the transaction to each partition. Until it has, it refuses a transaction with the same id,
and the client tries again 20 ms later. Another id may begin at once. A transaction is begun only
when the one before it is committed, and where that is not known the connection is given up: so the
order of messages and of markers is as with one id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from raystream.errors import ConfigError, InternalError
from raystream.io.databases.connection import Connection, Staged, Transaction
from raystream.io.databases.markers import (
    Existing,
    Marker,
    MarkerOwner,
    Run,
    replaced,
    take_over,
)
from raystream.io.kafka.journal import JournalRecord, Outgoing, SinkJournal, unpacked
from raystream.schema.types import KeyRange, SinkContext

WRITERS = 2
"""How many ids the instance of a range has."""


class Writer(Protocol):
    """Writes in transactions, under an id. What it raises may be gone with a new writer."""

    def init(self) -> None:
        """Fence all earlier writers with this id, and undo what they have begun."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, messages: Sequence[Outgoing]) -> None:
        """Write messages to the target."""

    def note(self, entries: Sequence[JournalRecord]) -> None:
        """Write records to the journal."""

    def commit(self) -> None:
        """Commit the transaction."""

    def abort(self) -> None:
        """Undo the transaction."""

    def close(self) -> None:
        """Let go of what it holds. Raises nothing."""


class Log(Protocol):
    """The target and the journal, as an instance of a sink sees them."""

    def prepare(self) -> None:
        """Make what is missing, and see whether all is as it has to be."""

    def writer(self, id: str) -> Writer:
        """A writer."""

    def read(self, *, whole: bool) -> Sequence[JournalRecord]:
        """The records of the journal that are committed, in order.

        Args:
            whole: wait until all that has been written by now is decided. Otherwise what follows a
                transaction that is open may be left out.
        """

    def close(self) -> None:
        """Let go of what it holds. Raises nothing."""


@dataclass
class Standing:
    """What an instance knows of its run, also when it connects again."""

    order: int | None = None
    """Its number among the runs of the sink; None: it is not noted yet."""


class KafkaConnection(Connection):
    """An instance's place in a cluster, from the moment at which it has claimed its range.

    Args:
        log: the target and the journal. sink: the name of the sink in the journal.
        table: the target, for messages. standing: is kept by the instance.

    Raises:
        OutputError: the instance was replaced, or the run cannot go on with what is there.
    """

    def __init__(
        self,
        log: Log,
        sink: str,
        table: str,
        context: SinkContext,
        existing: Existing,
        standing: Standing,
    ) -> None:
        self.journal = SinkJournal(sink)
        self.keys = context.keys
        self._log, self._sink, self._table = log, sink, table
        self._context, self._existing, self._standing = context, existing, standing
        self._begun: list[Writer] = []
        self._turns: deque[Writer] = deque()
        """The writers of the range. The first one writes the next transaction."""
        try:
            self._claim()
        except BaseException:
            self.close()
            raise

    def _claim(self) -> None:
        """Claim the range; see the top of this module."""
        standing, generation = self._standing, self._context.generation
        if standing.order is None:
            self._log.prepare()
        self._read(whole=False)
        if standing.order is None:
            self._change()  # refuses what has no chance, before anybody is fenced
        else:
            self._refuse_replaced(MarkerOwner(standing.order, generation))
        self._turns.extend(self._begin(id) for id in self._ids(self.keys))
        fenced = self._fence(set())
        if standing.order is None:
            standing.order = self._noted()
        owner = MarkerOwner(standing.order, generation)
        with self.turn() as writer:
            writer.note([self.journal.copy().claim(self.keys, owner)])
        while True:
            self._read(whole=True)
            self._refuse_replaced(owner)
            more = self._fence(fenced)
            if more == fenced:
                return
            fenced = more

    def _ids(self, keys: KeyRange) -> list[str]:
        """The first is that which runs of earlier versions have alone."""
        first = f"raystream/{self._sink}/{keys.lo}-{keys.hi}"
        return [first, *(f"{first}/{n}" for n in range(2, WRITERS + 1))]

    @contextmanager
    def turn(self) -> Iterator[Writer]:
        """A transaction of the writer whose turn it is."""
        writer = self._turns[0]
        writer.begin()
        try:
            yield writer
        except BaseException:
            with suppress(Exception):
                writer.abort()
            raise
        writer.commit()
        self._turns.rotate(-1)

    def _begin(self, id: str) -> Writer:
        writer = self._log.writer(id)
        self._begun.append(writer)
        writer.init()
        return writer

    def _fence(self, fenced: set[KeyRange]) -> set[KeyRange]:
        """Fence the writers of other ranges, but for those that are fenced; all that are now."""
        others = self.journal.others(self.keys) - fenced
        for keys in sorted(others):
            for id in self._ids(keys):
                self._begin(id).close()
        return fenced | others

    def _read(self, *, whole: bool) -> None:
        journal = SinkJournal(self._sink)
        for entry in self._log.read(whole=whole):
            journal.take(entry)
        self.journal = journal

    def _refuse_replaced(self, owner: MarkerOwner) -> None:
        if self.journal.has_greater(self.keys, owner):
            raise replaced(self._table)

    def _change(self) -> Any:
        journal = self.journal
        runs = journal.runs.values()
        return take_over(self._table, runs, journal.markers(), self._context, self._existing)

    def _noted(self) -> int:
        """The number of the run, which is noted if it was not."""
        self._read(whole=True)
        if (change := self._change()).register is None:
            return int(change.owner.run)
        writer = self._begin(f"raystream/{self._sink}/runs")
        self._read(whole=True)
        if (change := self._change()).register is not None:
            writer.begin()
            writer.note([self.journal.run(change.register)])
            writer.commit()
        writer.close()
        return int(change.owner.run)

    # ------------------------------------------------------------ for the sink

    def prepare(self) -> None:
        """Nothing: all was made before the range was claimed."""

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with self.turn() as writer:
            transaction = KafkaTransaction(self, writer)
            yield transaction
        self.journal = transaction.journal

    def close(self) -> None:
        for writer in self._begun:
            writer.close()
        self._log.close()


class KafkaTransaction(Transaction):
    """A transaction of the writer of a range. Nobody else writes markers of the range, or this
    transaction cannot be committed."""

    def __init__(self, connection: KafkaConnection, writer: Writer) -> None:
        self.journal = connection.journal.copy()
        self._keys = connection.keys
        self._writer = writer

    def runs(self) -> Sequence[Run]:
        return list(self.journal.runs.values())

    def register(self, run: Run) -> None:
        raise InternalError(f"{run} should be in the journal before a range is claimed.")

    def markers(self) -> Sequence[Marker]:
        return self.journal.markers()

    def remove(self, markers: Sequence[Marker]) -> None:
        """Nothing: those of a greater owner count."""

    def put(self, markers: Sequence[Marker]) -> None:
        """Add those of the range. What is left of others is as it was."""
        self._mark([m for m in markers if m.keys.within(self._keys)])

    def advance(self, before: Sequence[Marker], after: Sequence[Marker]) -> int:
        there = self.journal.markers()
        changed = {was: m for was, m in zip(before, after, strict=True) if was in there}
        mine = [m for m in there if m.keys.within(self._keys)]
        self._mark([changed.get(m, m) for m in mine])
        return len(changed)

    def _mark(self, markers: Sequence[Marker]) -> None:
        self._writer.note([self.journal.mark(self._keys, markers)])

    def store(self, rows: Sequence[Any]) -> None:
        for messages in rows:
            self._writer.send(messages)

    def clear(self) -> None:
        raise ConfigError('existing="replace": messages of a topic cannot be deleted')

    def stage(self, staged: Staged) -> None:
        self._writer.note(self.journal.stage(staged))

    def staged(self, keys: KeyRange, upto: int) -> Sequence[Staged]:
        return [
            Staged(place[0], place[1], unpacked(self.journal.rows[place]))
            for place in self.journal.staged(keys, 0, upto)
        ]

    def unstage(self, keys: KeyRange, after: int, upto: int) -> None:
        places = self.journal.staged(keys, after, upto)
        if places:
            self._writer.note(self.journal.unstage(places))
