"""The base class of logics: what an instance does with the records of an epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod

from raystream.schema.blocks import Input, Output
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange
from raystream.state.tables.backend import Table


class Logic(ABC):
    """How an operator processes the records of an epoch. A logic knows nothing of edges, of pieces,
    or of any time but its arguments."""

    table: Table | None = None
    """The rows of state; None for an operator without state."""

    ends = False
    """Whether what is due rings or closes in the last epoch of the input: `last` of `close` and
    `timer`."""

    takes_several = False
    """Whether `process` may be given the records of several epochs that are one step: it does then
    what is due at the end of each, and `fire` returns what that emitted."""

    def open(self, keys: KeyRange) -> None:  # noqa: B027  a default
        """Prepare for the first epoch, after rows were restored: load references, set alarms.

        Args:
            keys: the range of the instance.
        """

    def warm(self) -> None:
        """Load the code that is called only now and then. Not to be called of a logic in use."""
        if self.table is not None:
            self.table.warm()

    @abstractmethod
    def process(self, given: Input, epoch: int, watermark: int, upto: int = BEFORE_ALL) -> Output:
        """Process the records of an epoch. An alarm for a time up to `upto` rings before the first
        record of its key that has that time or a later one.

        Args:
            given: the records in canonical order.
            watermark: the watermark at the end of the epoch before.
            upto: the watermark at the end of this epoch.
        """

    def next_due(self) -> int:
        """No window closes and no timer rings before the watermark is here; NEVER if there is
        none. It may be too early, but not too late."""
        return NEVER

    def fire(self, keys: KeyRange, epoch: int, watermark: int, *, last: bool) -> Output | None:
        """Close windows and ring timers; None if nothing is due.

        Args:
            keys: the range of the instance.
            watermark: the watermark at the end of this epoch.
            last: whether this is the last epoch.
        """
        return None
