"""Records whose time is far ahead of the records before them in the same split (`max_ahead=`).

Such a record is set aside: it moves neither the epoch nor the watermark. Which records that are
follows from the records of the split alone, so every reader of it sets the same ones aside. A
reader that goes on in the middle has to know the greatest time before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from raystream.api.epochs import Epochs
from raystream.errors import InputError, Where
from raystream.schema.columns import Columns
from raystream.schema.types import BEFORE_ALL, NEVER


@dataclass(frozen=True, slots=True)
class AheadRule:
    """The rule of a source."""

    column: str
    """The field that holds the time."""
    most: int
    """By how much a time may be ahead of the greatest before it, in the units of the field."""
    seconds: float
    """The same in seconds, for messages."""
    refuses: bool
    """Whether a record that is further ahead ends the job."""

    def guard(
        self, source: str, split: str, greatest: int = BEFORE_ALL, *, where: Where | None
    ) -> AheadGuard:
        """The guard of a split; see there."""
        return AheadGuard(self, source, split, greatest, where)


def ahead_rule(epochs: Epochs, column: str | None, ticks: int) -> AheadRule | None:
    """The rule of a source; None if it has none. ticks: units of the time column per second."""
    if epochs.max_ahead is None or column is None:
        return None
    most = min(int(epochs.max_ahead * ticks), NEVER)
    return AheadRule(column, most, epochs.max_ahead, epochs.ahead == "refuse")


class AheadGuard:
    """Sets records of one split aside.

    Args:
        source, split: their names, for messages.
        greatest: the greatest time of the records before; BEFORE_ALL if there are none.
        where: where the source joins the flow, for the error.
    """

    def __init__(
        self,
        rule: AheadRule,
        source: str,
        split: str,
        greatest: int = BEFORE_ALL,
        where: Where | None = None,
    ) -> None:
        self.rule = rule
        self.greatest = greatest
        self._names = source, split
        self._where = where

    def aside(self, rows: Columns) -> np.ndarray | None:
        """bool [n]: which of the next rows are set aside; None if there are none.

        Raises:
            InputError: there is one, and the rule refuses it.
        """
        times = rows.column(self.rule.column).astype(np.int64)
        if not len(times):
            return None
        if self.greatest == BEFORE_ALL:
            self.greatest = int(times[0])  # nothing is before the first record
        upto = np.maximum.accumulate(np.concatenate([[self.greatest], times]))
        if not (times > np.minimum(upto[:-1], NEVER - self.rule.most) + self.rule.most).any():
            self.greatest = int(upto[-1])
            return None
        found = np.zeros(len(times), bool)
        for i, time in enumerate(times.tolist()):
            if time <= self.greatest + self.rule.most:
                self.greatest = max(self.greatest, time)
            elif self.rule.refuses:
                raise self._refused(time)
            else:
                found[i] = True
        return found

    def _refused(self, time: int) -> InputError:
        source, split = self._names
        return InputError(
            f"{source}: split {split} has a record with {self.rule.column}={time}, more than"
            f" {self.rule.seconds:g} s after {self.greatest}, the greatest time before it",
            where=self._where,
            hint='If the time is wrong: ahead="drop" beside max_ahead=, or ahead=True of source(),'
            " which makes a stream of such records. If it is right: a longer max_ahead=.",
        )


def stilled(times: np.ndarray, aside: np.ndarray, before: int) -> np.ndarray:
    """int64 [n]: times in which those of records that were set aside are the greatest before them.

    Args:
        before: the greatest time before the first.
    """
    known = np.where(aside, before, times.astype(np.int64))
    upto = np.maximum.accumulate(np.concatenate([[before], known]))[1:]
    return np.where(aside, upto, times)
