"""What a database has to be able to do for a sink that is visible by epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from raystream.io.databases.markers import Marker, Run
from raystream.schema.types import KeyRange


class Staged(NamedTuple):
    """Rows that the database keeps, and that no reader sees yet."""

    keys: KeyRange
    """The key groups of the instance that staged them."""
    epoch: int
    """The last epoch that they are of."""
    rows: Any
    """The rows, as `TransactionalSink.encode` made them."""


class Transaction(ABC):
    """A transaction of the database. All of it is done, or nothing."""

    @abstractmethod
    def runs(self) -> Sequence[Run]:
        """The runs of the sink. No other transaction may ask for them until this one has ended."""

    @abstractmethod
    def register(self, run: Run) -> None:
        """Add a run of the sink."""

    @abstractmethod
    def markers(self) -> Sequence[Marker]:
        """The markers of the sink. No other transaction may change them until this one has
        ended."""

    @abstractmethod
    def remove(self, markers: Sequence[Marker]) -> None:
        """Delete markers of the sink, by their ranges."""

    @abstractmethod
    def put(self, markers: Sequence[Marker]) -> None:
        """Add markers of the sink."""

    @abstractmethod
    def advance(self, before: Sequence[Marker], after: Sequence[Marker]) -> int:
        """Replace markers of the sink by others with the same ranges and owners, each where it is
        there exactly as it was before.

        Returns how many there were.
        """

    @abstractmethod
    def store(self, rows: Sequence[Any]) -> None:
        """Add rows to the table, in this order: what `TransactionalSink.encode` made."""

    @abstractmethod
    def clear(self) -> None:
        """Delete all rows of the table, and all that are staged for it by this sink."""

    @abstractmethod
    def stage(self, staged: Staged) -> None:
        """Keep rows of the sink where no reader sees them."""

    @abstractmethod
    def staged(self, keys: KeyRange, upto: int) -> Sequence[Staged]:
        """What the sink has staged, of ranges that overlap `keys`, and of epochs up to `upto`; in
        the order of epochs, then in that in which it was staged."""

    @abstractmethod
    def unstage(self, keys: KeyRange, after: int, upto: int) -> None:
        """Delete what the sink has staged, of ranges that overlap `keys`, and of epochs after
        `after` up to `upto`."""


class Connection(ABC):
    """A connection to a database, for one sink and its table."""

    @abstractmethod
    def prepare(self) -> None:
        """Make what is missing: the tables of markers, the table of rows if that was asked for.

        Raises:
            OutputError: the table does not fit the rows.
        """

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Transaction]:
        """A transaction. It is committed when the block ends, and undone if that raises."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection. Raises nothing."""
