"""`TransactionalSink`: a sink that writes the rows of an epoch and a marker in one transaction.

    open        takes the range over (`markers.take_over`): from then on nobody else writes it
    already_there
                tells the instance what is there already, which it leaves out
    write       keeps rows in memory
    end_epoch   writes them, unless the next epoch is at hand and not too much is kept
    prepare     writes what is left: a checkpoint counts when the database has the rows
    close       says in the markers that the input has ended

That is *visible by epoch*: readers of the table see an epoch as soon as it is written. A sink that
is *visible when saved* writes rows and markers in the same way, but to a place where nobody sees
them; `commit` moves them to the table, in one transaction again. It is meant for epochs that a run
which has lost everything would cut in another way.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, get_args

from raystream.api.batch import Batch
from raystream.api.connectors import Sink
from raystream.errors import ConfigError, InternalError, OutputError, RaystreamError
from raystream.io.databases.connection import Connection, Staged, Transaction
from raystream.io.databases.markers import (
    EXISTING,
    LAST,
    Existing,
    Marker,
    lost,
    replaced,
    take_over,
)
from raystream.io.databases.waiting import Patience
from raystream.schema.lengths import Seconds, wait_of
from raystream.schema.types import KeyRange, SinkContext

Visible = Literal["epoch", "saved"]
VISIBLE: tuple[str, ...] = get_args(Visible)

ROWS_MOST = 20_000
"""A transaction takes further epochs that are at hand until it has this many rows."""
EPOCHS_MOST = 64
"""A transaction takes this many epochs at most."""
WHOLE = "What was written before is whole, and is not written again."


class TransactionalSink(Sink[Any]):
    """A sink to a database with transactions. Derive from it and define `connect`, and `encode` if
    the database takes something else than batches.

    Args:
        visible: `"epoch"` shows rows as soon as an epoch is written; `"saved"` shows them when a
            checkpoint is committed, and with a durable tier when it is saved. None: `"saved"` for a
            job with a durable tier whose epochs are cut by arrival, `"epoch"` for all others.
        existing: what a run that begins at the beginning does with the rows of an earlier run.
            `"replace"` deletes all rows of the table. `"keep"` adds to them. `"refuse"` adds to
            those of a run that has ended, and refuses to begin if a run broke off.
        wait: for how many seconds to try again when the database cannot be reached.
    """

    kind: ClassVar[Literal["by-epoch"]] = "by-epoch"
    scales = True

    def __init__(
        self,
        *,
        visible: Visible | None = None,
        existing: Existing = "refuse",
        wait: Seconds = 60.0,
    ) -> None:
        if visible is not None and not (isinstance(visible, str) and visible in VISIBLE):
            raise ConfigError(f'visible={visible!r}: "epoch" or "saved"')
        if not isinstance(existing, str) or existing not in EXISTING:
            raise ConfigError(f'existing={existing!r}: "refuse", "keep" or "replace"')
        self.visible = visible
        self.existing = existing
        self.wait = wait_of("", "wait", wait)
        self._range: _OpenRange | None = None

    @abstractmethod
    def connect(self, context: SinkContext) -> Connection:
        """A new connection to the database, for the sink of `context`."""

    def encode(self, batch: Batch[Any]) -> Any:
        """What the database stores of a batch. Called in the instance, once per batch."""
        return batch

    def describe(self) -> str:
        """The table, as messages name it. It must not hold a password."""
        return type(self).__name__

    def passing(self, error: Exception) -> bool:
        """Whether an error may be gone when a new connection tries again: the server restarts,
        another transaction was in the way."""
        return False

    def words_of(self, error: Exception) -> str:
        """An error of the database in words. They must not hold a password."""
        return str(error).strip()

    def advice(self, error: Exception) -> str:
        """What users can do about an error; nothing if that is not known."""
        return ""

    # ------------------------------------------------------------ called by the instance

    def open(self, context: SinkContext, /) -> None:
        """Take the range over.

        Raises:
            OutputError: the instance was replaced, or the run cannot go on with what is there.
        """
        at_once = not (context.lasting and not context.repeatable)
        by_epoch = at_once if self.visible is None else self.visible == "epoch"
        if by_epoch and not at_once:
            raise ConfigError(
                f'{context.operator}: visible="epoch" cannot be had with a durable tier and epochs'
                " that are cut by arrival, or an operator that asks the world: after a loss of the"
                " cluster they would hold something else than the table does.",
                hint='Leave out visible, or say visible="saved".',
            )
        self._range = _OpenRange(self, context, by_epoch=by_epoch)
        self._range.open()

    def already_there(self) -> Sequence[tuple[KeyRange, int]]:
        """What the table holds already."""
        return self._opened().written

    def write(self, epoch: int, keys: KeyRange, batch: Batch[Any], /) -> None:
        """Keep a batch until the epoch has ended."""
        self._opened().add(epoch, self.encode(batch), len(batch))

    def end_epoch(self, epoch: int, /, *, more: bool) -> None:
        """Write what is kept, unless it can be written with the next epoch."""
        self._opened().end_epoch(more=more)

    def prepare(self, epoch: int, /) -> None:
        """Write what is kept, and in any case the marker: a successor goes on after this epoch."""
        self._opened().flush(epoch)

    def commit(self, epoch: int, /) -> None:
        """Show what was staged up to `epoch`; what is visible by epoch is visible already."""
        self._opened().show(epoch)

    def close(self) -> None:
        """Say in the markers that the input has ended."""
        self._opened().close()
        self._range = None

    def _opened(self) -> _OpenRange:
        if self._range is None:
            raise InternalError(f"{self.describe()} was used before it was opened.")
        return self._range

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_range": None}

    def __copy__(self) -> TransactionalSink:
        made = object.__new__(type(self))
        made.__dict__.update(self.__getstate__())
        return made


class _OpenRange:
    """What one instance has of its range: the connection, its markers, rows that wait."""

    def __init__(self, sink: TransactionalSink, context: SinkContext, *, by_epoch: bool) -> None:
        self.sink = sink
        self.context = context
        self.by_epoch = by_epoch
        self.markers: tuple[Marker, ...] = ()
        self.written: list[tuple[KeyRange, int]] = []
        self._connection: Connection | None = None
        self._tried: tuple[Marker, ...] = ()
        """The markers of an attempt to take the range over."""
        self._kept: list[tuple[int, Any]] = []
        self._rows = 0
        self._epochs = 0

    # ------------------------------------------------------------ taking over

    def open(self) -> None:
        self.markers = self._transact(self._take_over, prepare=True)
        self.written = [(m.keys, m.epoch) for m in self.markers if m.epoch > self.context.committed]

    def _take_over(self, tx: Transaction, again: bool) -> tuple[Marker, ...]:
        context, sink = self.context, self.sink
        runs, markers = tx.runs(), tx.markers()
        if again and self._tried and set(self._tried) <= set(markers):
            return self._tried  # the answer to the commit was lost
        change = take_over(sink.describe(), runs, markers, context, sink.existing)
        if change.clear:
            tx.clear()
        if change.register is not None:
            tx.register(change.register)
        tx.remove(change.remove)
        tx.unstage(context.keys, change.forget, LAST)
        tx.put(change.put)
        self._tried = change.mine
        if not self.by_epoch or all(m.shown == m.epoch for m in change.mine):
            return change.mine
        mine = tuple(m.at(0, shown=True) for m in change.mine)
        self._advance(tx, change.mine, mine)
        self._show_staged(tx, LAST)
        self._tried = mine
        return mine

    # ------------------------------------------------------------ rows

    def add(self, epoch: int, rows: Any, number: int) -> None:
        self._kept.append((epoch, rows))
        self._rows += number

    def end_epoch(self, *, more: bool) -> None:
        if not self._kept:
            return
        self._epochs += 1
        if not more or self._rows >= ROWS_MOST or self._epochs >= EPOCHS_MOST:
            self.flush()

    def flush(self, upto: int = 0) -> None:
        """Write what is kept, and the markers with it, in one transaction.

        Args:
            upto: the markers are to say at least this epoch; after it there are no rows yet.
        """
        if not self._kept and not upto:
            return
        epoch = max(upto, self._kept[-1][0]) if self._kept else upto
        rows = [rows for _, rows in self._kept]

        def write(tx: Transaction) -> None:
            if self.by_epoch and rows:
                tx.store(rows)
            if self.by_epoch:
                return
            for each in rows:
                tx.stage(Staged(self.context.keys, epoch, each))

        self._step([m.at(epoch, shown=self.by_epoch) for m in self.markers], write)
        self._kept, self._rows, self._epochs = [], 0, 0

    def show(self, epoch: int) -> None:
        """Move what was staged up to an epoch to the table."""
        self.flush()
        shown = [m._replace(shown=max(m.shown, min(m.epoch, epoch))) for m in self.markers]
        self._step(shown, lambda tx: self._show_staged(tx, epoch))

    def _show_staged(self, tx: Transaction, epoch: int) -> None:
        if found := tx.staged(self.context.keys, epoch):
            tx.store([staged.rows for staged in found])
            tx.unstage(self.context.keys, 0, epoch)

    def close(self) -> None:
        self.flush()
        self._step([m._replace(ended=True) for m in self.markers], lambda tx: None)
        self._disconnect()

    # ------------------------------------------------------------ transactions

    def _step(self, after: Sequence[Marker], work: Callable[[Transaction], None]) -> None:
        """Advance the markers and do what belongs to it, in one transaction. Nothing is done if no
        marker advances.

        Raises:
            OutputError: a marker is not there any more: the instance was replaced.
        """
        before = self.markers
        changed = [(was, m) for was, m in zip(before, after, strict=True) if was != m]

        def do(tx: Transaction, again: bool) -> None:
            if again and {m for _, m in changed} <= set(tx.markers()):
                return  # an earlier attempt has done it, and its answer was lost
            self._advance(tx, *zip(*changed, strict=True))
            work(tx)

        if changed:
            self._transact(do)
            self.markers = tuple(after)

    def _advance(self, tx: Transaction, before: Sequence[Marker], after: Sequence[Marker]) -> None:
        if tx.advance(before, after) == len(before):
            return
        there = {(m.keys, m.owner) for m in tx.markers()}
        if all((m.keys, m.owner) in there for m in before):
            raise lost(self.sink.describe(), max(m.epoch for m in before))
        raise replaced(self.sink.describe())

    def _transact(self, work: Callable[[Transaction, bool], Any], *, prepare: bool = False) -> Any:
        """Do something in a transaction; again, when the database could not be reached.

        Args:
            work: is called with the transaction, and whether it may have been done before.
        """
        patience = Patience(self.sink.wait)
        again = False
        while True:
            try:
                connection = self._connected()
                if prepare:
                    connection.prepare()
                with connection.transaction() as tx:
                    return work(tx, again)
            except RaystreamError:
                self._disconnect()
                raise
            except Exception as error:
                passing = self.sink.passing(error)
                self._disconnect()
                if not passing or not patience.left():
                    raise self._failed(error) from error
                patience.wait()
                again = True

    def _failed(self, error: Exception) -> OutputError:
        words = self.sink.words_of(error)
        return OutputError(
            f"{self.sink.describe()} could not be written: {type(error).__name__}: {words}",
            hint=f"{self.sink.advice(error)} {WHOLE}".strip(),
        )

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = self.sink.connect(self.context)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
