"""`ChangedRows`: the rows of a table, then its changes, by logical replication.

    a new job        makes the slot, reads the table as it was at that moment, then the changes
    one that goes on asks for the changes after what is recorded

The server keeps its log from the place that the slot has confirmed. That place is moved when a
checkpoint is stored (`Source.stored`), to where the checkpoint is: what a job that goes on needs is
there in any case, also after the loss of everything that was recorded. Where nothing of the table
changes, places of the log without rows are recorded now and then (the *heartbeat*), so that the
server need not keep what is of other tables and databases.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import numpy as np

from raystream.errors import InputError, RaystreamError
from raystream.io.capture.changes import LOG, Part, Row, Transactions, WatchedTable
from raystream.io.capture.pgoutput import lsn_of, lsn_text, parsed
from raystream.io.capture.recorded import CapturedSource, ServerReader
from raystream.io.capture.slot import ChangeStream, Server, SlotState, refuse_unpublished
from raystream.io.capture.values import RowDecoder, ToldFields
from raystream.io.databases.waiting import Beat, Patience
from raystream.schema.fields import AnyRecord
from raystream.schema.types import Split

U = TypeVar("U", bound=AnyRecord)

SNAPSHOT = "snapshot "
"""What the senders of rows of the table begin with. Each reading of the table is one."""
BATCH_ROWS = 4096
LOOK_SECONDS = 0.2
"""How soon a thread that waits for the server sees that it should stop."""


@dataclass(frozen=True, kw_only=True)
class WantedChanges:
    """What the user asked for."""

    url: str
    table: str
    slot: str
    publication: str
    snapshot: bool
    follow: bool
    heartbeat: float
    wait: float


class ChangedRows(CapturedSource[U]):
    """The split is the slot.

    Args:
        told: the fields of the record that are no columns. columns: those of the others.
    """

    call = "postgres_changes"
    read_ahead: ClassVar[int] = 64

    def __init__(
        self, record: type[U], asked: WantedChanges, told: ToldFields, columns: Sequence[str]
    ) -> None:
        super().__init__(record, asked.url, asked.table, asked.slot)
        self.asked, self.told, self.columns = asked, told, tuple(columns)
        self._confirmed = 0
        self._reading = False

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_confirmed": 0, "_reading": False}

    def read(self, split: Split, position: int, /) -> Iterator[Any]:
        """Changes as they come. Numbers of batches count from 1."""
        yield from _Changes(self)

    def stored(self, split: Split, sequences: Mapping[str, int], /) -> None:
        """Tell the server that it may forget the changes which a checkpoint has.

        While the stream of changes is read, that stream tells the server; otherwise this call does.
        """
        upto = sequences.get(LOG, -1) + 1
        if upto <= self._confirmed:
            return
        self._confirmed = upto
        if not self._reading:
            self.server().advance(upto)

    def check(self) -> str:
        """See whether the table and the server are as they have to be; make nothing."""
        server = self.server()
        try:
            with server.connect() as sql:
                table = server.table(sql, self.asked.table)
                check_columns(table, self.columns)
                if server.publication(sql, self.asked.publication, table) is None:
                    refuse_unpublished(table)
                (level,) = sql.execute("SHOW wal_level").fetchone()
                if level != "logical":
                    raise InputError(
                        f"{server.name} has wal_level = {level}, so it sends no changes",
                        hint="ALTER SYSTEM SET wal_level = logical, and restart the server.",
                    )
                state = server.slot_state(sql)
        except RaystreamError:
            raise
        except Exception as error:
            raise server.described(error) from None
        there = "it will be made" if state is None else "it is there"
        return f"{table.name} has the columns; the slot {self.asked.slot}: {there}"


def check_columns(table: WatchedTable, columns: Sequence[str]) -> None:
    """Refuse columns that a table does not have."""
    if lacking := [c for c in columns if c not in table.columns]:
        raise InputError(
            f"{table.name} has no column {lacking[0]!r}; it has {', '.join(table.columns)}",
            hint="Name the column of a field with columns={field: column}.",
        )


@dataclass
class _Changes(ServerReader):
    """Reads the slot from what is known on."""

    source: ChangedRows[Any]
    upto: int | None = None
    """The last commit that was yielded; None before all of the table was."""
    begun: bool = False
    """Whether rows of the table were yielded or recorded."""
    end: int | None = None
    """Where to end, if the source does not follow."""
    connected: bool = False
    """Whether this process has read the slot."""
    confirmed: int = 0
    noted: set[str] = field(default_factory=set)

    def __iter__(self) -> Iterator[Any]:
        source, known = self.source, self.source._known
        self.upto = known.get(LOG)
        self.begun = any(name.startswith(SNAPSHOT) for name in known)
        server = source.server()
        source._reading = True
        try:
            yield from self._sessions(server)
        finally:
            source._reading = False
            # What was stored at the end, the stream may not have said any more.
            if source._confirmed:
                with suppress(Exception):  # the slot stays where it is: what it has comes again
                    server.advance(source._confirmed)

    def _session(self, server: Server) -> Iterator[Any]:
        """What comes over one connection; its end is the end of the split."""
        asked, source = self.source.asked, self.source
        with closing(server.connect()) as sql:
            table = server.table(sql, asked.table)
            check_columns(table, source.columns)
            if not asked.follow and self.end is None:
                found = sql.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
                self.end = lsn_of(found[0])
            server.publish(sql, asked.publication, table)
            yield from self._free(server, sql)
            state = server.slot_state(sql)
            self._refuse(state)
            decoder = RowDecoder(source.record, source.told, source.columns, table.name)
            with closing(ChangeStream(server)) as stream:
                if self.upto is None:
                    yield from self._begin(server, sql, stream, state, table, decoder)
                assert self.upto is not None
                stream.start(asked.publication, self.upto + 1)
                self.connected = True
                yield from self._follow(stream, Transactions(table, source.columns), decoder)

    def _free(self, server: Server, sql: Any) -> Iterator[Any]:
        """Wait until nobody else reads the slot. While this process has not read it, its reader is
        a predecessor, which may hang: its connection is ended, as often as it connects again."""
        patience = Patience(self.source.asked.wait)
        while (state := server.slot_state(sql)) is not None and state.reader:
            if not patience.left():
                raise InputError(
                    f"the slot {server.slot} is read by another process (pid {state.reader} of"
                    " the server)",
                    hint="A slot has one reader: name another slot, or end that process.",
                )
            if not self.connected and state.ours:
                server.end_reader(sql, state)
            yield self.number, self._nothing
            patience.wait()

    def _refuse(self, state: SlotState | None) -> None:
        """Refuse to go on where changes are gone."""
        slot = self.source.asked.slot
        if state is not None and state.usable:
            raise InputError(
                f"the slot {slot} cannot be read any more: {state.usable}",
                hint=f"Begin again: SELECT pg_drop_replication_slot('{slot}'), and run the job"
                " without resume.",
            )
        if self.upto is None:
            return
        if state is None:
            why = "is gone"
        elif state.confirmed > self.upto + 1:
            why = f"has been moved to {lsn_text(state.confirmed)}"
        else:
            return
        raise InputError(
            f"the slot {slot} {why}, and the job has the changes up to {lsn_text(self.upto)}: those"
            " in between are lost",
            hint="Go on from a later checkpoint, or begin again without resume.",
        )

    def _begin(
        self,
        server: Server,
        sql: Any,
        stream: ChangeStream,
        state: SlotState | None,
        table: WatchedTable,
        decoder: RowDecoder,
    ) -> Iterator[Any]:
        """Make the slot and read the table. Where that was begun before, the slot stays and the
        table is read again: a row that was deleted meanwhile comes as deleted later."""
        wanted, moment = self.source.asked.snapshot, None
        if state is not None and wanted and not self.begun:
            server.drop(sql)
            state = None
        if state is None:
            point, moment = stream.create_slot(snapshot=wanted)
        else:
            point = state.confirmed
        if wanted:
            (once,) = sql.execute("SELECT pg_backend_pid() || ' ' || clock_timestamp()").fetchone()
            sender, count = f"{SNAPSHOT}{once}", 0
            with closing(server.connect()) as reader:
                for rows in server.rows(reader, table, self.source.columns, moment):
                    numbers = np.arange(count + 1, count + len(rows) + 1)
                    count += len(rows)
                    self.begun = True
                    part = Part(sender, numbers, [Row("read", values) for values in rows])
                    yield from self._yield([part], decoder)
        yield self._at(point - 1)

    def _follow(
        self, stream: ChangeStream, transactions: Transactions, decoder: RowDecoder
    ) -> Iterator[Any]:
        """Changes as they come."""
        pulse = Beat(self.source.asked.heartbeat)
        while True:
            data = stream.next(0.0)
            if data is not None:
                yield from self._yield(transactions.take(parsed(data)), decoder)
                if transactions.waiting < BATCH_ROWS:
                    continue
            yield from self._yield(transactions.flush(), decoder)
            self._confirm(stream)
            self._note(transactions)
            if data is not None:
                continue
            if transactions.between:
                reached = max(stream.reached, transactions.seen + 1)
                over = self.end is not None and reached >= self.end
                if (over or pulse.due()) and reached - 1 > (self.upto or 0):
                    yield self._at(reached - 1)
                if over:
                    return
            data = stream.next(LOOK_SECONDS)
            if data is not None:
                yield from self._yield(transactions.take(parsed(data)), decoder)
            else:
                stream.confirm(self.confirmed, ask=True)
                yield self.number, self._nothing  # the reader looks whether it should stop

    def _yield(self, parts: list[Part], decoder: RowDecoder) -> Iterator[Any]:
        for part in parts:
            batch = decoder.batch(part.rows)
            self.number += 1
            if part.sender == LOG:
                self.upto = int(part.sequences[-1])
            yield self.number, batch, (part.sender, part.sequences)

    def _at(self, lsn: int) -> Any:
        """A place of the log up to which there are no more rows."""
        self.number += 1
        self.upto = lsn
        return self.number, self._nothing, (LOG, lsn)

    def _confirm(self, stream: ChangeStream) -> None:
        if self.source._confirmed > self.confirmed:
            self.confirmed = self.source._confirmed
            stream.confirm(self.confirmed)

    def _note(self, transactions: Transactions) -> None:
        if new := transactions.added - self.noted:
            self.noted |= new
            warnings.warn(
                f"{self.source.asked.table} has got columns that"
                f" {self.source.record.__name__} does not have: {', '.join(sorted(new))}",
                RuntimeWarning,
                stacklevel=2,
            )
