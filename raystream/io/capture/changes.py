"""Transactions of a slot as rows of one table, each with a sequence, so that none counts twice.

A row's sequence is the place of its transaction's commit in the log of the server: it rises from
transaction to transaction, and rows of one transaction have the same and stay together. A large
transaction comes in parts, so that no process has to hold all of it: all but the last part are of
a sender of their own, which is the transaction, and their sequences number its rows. So the log may
be cut otherwise when it is read again, and the job leaves out what it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from raystream.errors import InputError
from raystream.io.capture.pgoutput import (
    UNCHANGED,
    BeginMessage,
    Change,
    CommitMessage,
    Message,
    Relation,
    Truncate,
    Value,
)

LOG = "wal"
"""The sender of transactions."""
ROWS_MOST = 10_000
"""A transaction with more rows comes in parts of this many."""


class Row(NamedTuple):
    """What happened to a row of the table."""

    operation: str
    """`read`, `insert`, `update`, `delete` or `truncate`."""
    values: tuple[Value, ...]
    """By column of the record."""
    lsn: int = 0
    """The place of the commit in the log."""
    number: int = 0
    """Of the row among those of the transaction, from 1 on."""
    micros: int = 0
    """When it was committed, in microseconds since 1970."""


class Part(NamedTuple):
    """Rows that are whole transactions, or a part of a large one."""

    sender: str
    sequences: np.ndarray[Any, np.dtype[np.int64]]
    rows: list[Row]


class WatchedTable(NamedTuple):
    """What the server says of a table."""

    oid: int
    name: str
    """With its schema."""
    columns: tuple[str, ...]
    key: tuple[str, ...]
    """The columns of its primary key; none if it has no such key."""
    whole: bool = False
    """Whether its replica identity is FULL: changes hold the whole row before."""
    identified: bool = True
    """Whether the server can say of which row a change is."""
    is_table: bool = True
    """Whether it has rows of its own, or partitions that have; a view has none."""


class Transactions:
    """Makes rows of messages.

    Args:
        table: of whose rows to tell.
        columns: those that the record has, in its order.
    """

    def __init__(self, table: WatchedTable, columns: Sequence[str]) -> None:
        self._table = table
        self._columns = tuple(columns)
        self._places: list[int] = []
        """Of each column its place in a row of the server."""
        self._key: list[int] = []
        """The places of the key."""
        self._done: list[Row] = []
        self._rows: list[Row] = []
        self._begun: BeginMessage | None = None
        self._number = 0
        self.seen = 0
        """The commit of the newest whole transaction."""
        self.added: set[str] = set()
        """Columns that the table has got and the record does not have."""

    @property
    def between(self) -> bool:
        """Whether no transaction is open."""
        return self._begun is None

    @property
    def waiting(self) -> int:
        """How many rows `flush` would give."""
        return len(self._done)

    def take(self, message: Message) -> list[Part]:
        """Go on by a message; the parts of a large transaction that are full by it.

        Raises:
            InputError: the table is not as the record says any more.
        """
        match message:
            case Change():
                if message.relation == self._table.oid:
                    self._change(message)
                    if len(self._rows) >= ROWS_MOST:
                        return self._part()
            case BeginMessage():
                self._begun, self._number = message, 0
            case CommitMessage():
                self._done += self._rows
                self._rows, self._begun, self.seen = [], None, message.lsn
            case Relation():
                self._relation(message)
            case Truncate():
                if self._table.oid in message.relations:
                    self._add("truncate", (None,) * len(self._columns))
        return []

    def flush(self) -> list[Part]:
        """The transactions that are whole."""
        if not self._done:
            return []
        rows, self._done = self._done, []
        return [Part(LOG, np.array([row.lsn for row in rows], np.int64), rows)]

    def _part(self) -> list[Part]:
        assert self._begun is not None
        rows, self._rows = self._rows, []
        numbers = np.array([row.number for row in rows], np.int64)
        return [*self.flush(), Part(f"{LOG} {self._begun.lsn:X}", numbers, rows)]

    def _relation(self, found: Relation) -> None:
        table = self._table
        if found.id != table.oid:
            if found.name == table.name:
                raise InputError(
                    f"{table.name} was dropped and made again while it was read",
                    hint="BeginMessage again, with a new slot.",
                )
            return
        if lacking := [c for c in self._columns if c not in found.columns]:
            others = ", ".join(c for c in found.columns if c not in table.columns)
            raise InputError(
                f"{table.name} has no column {lacking[0]!r} any more"
                + (f"; it has got {others}" if others else ""),
                hint="Change the record, and go on with `resume`: what was committed before the"
                " change of the table comes as it was then.",
            )
        self.added |= {c for c in found.columns if c not in table.columns}
        self._places = [found.columns.index(c) for c in self._columns]
        names = table.key or [c for c, k in zip(found.columns, found.keys, strict=True) if k]
        self._key = [found.columns.index(c) for c in names if c in found.columns]

    def _change(self, change: Change) -> None:
        old, new = change.old, change.new
        if new is None:
            assert old is not None
            self._add("delete", self._taken(old))
            return
        if change.kind == "U" and old is not None:
            if change.whole:
                new = tuple(o if n is UNCHANGED else n for o, n in zip(old, new, strict=True))
            if any(new[i] is not UNCHANGED and old[i] != new[i] for i in self._key):
                # The row with the old key is gone.
                self._add("delete", self._taken(old))
                self._add("insert", self._taken(new))
                return
        self._add("insert" if change.kind == "I" else "update", self._taken(new))

    def _taken(self, values: tuple[Value, ...]) -> tuple[Value, ...]:
        return tuple([values[i] for i in self._places])

    def _add(self, operation: str, values: tuple[Value, ...]) -> None:
        assert self._begun is not None
        self._number += 1
        self._rows.append(Row(operation, values, self._begun.lsn, self._number, self._begun.micros))
