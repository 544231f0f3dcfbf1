"""A split that is cut into epochs as its data arrives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from raystream.dataflow.register import Boundary
from raystream.dataflow.sources.ahead import AheadGuard
from raystream.dataflow.sources.idling import Idle, Idling
from raystream.errors import InputError
from raystream.schema.columns import Columns
from raystream.schema.types import BEFORE_ALL, NEVER


class ArrivalSplit:
    """A split cut by arrival: the batches that were read and not yet published, each with the
    position at which it ends.

    Args:
        name: the name of the split, as its source calls it.
        registered: the name of the split in the boundary register. It differs from `name`, because
            another source may have a split with the same name.
        time_column: the column that holds event time, if the records have one.
        disorder: by how much records may be behind those before them, in the flow's unit.
        idling: when the split is idle; None: it never is.
        position: where reading begins.
        watermark: the watermark of the split at that position.
        beyond: of a split that is idle at that position `Boundary.beyond`; None of one that is not.
    """

    def __init__(
        self,
        name: str,
        registered: str,
        time_column: str | None,
        disorder: int,
        idling: Idling | None = None,
        position: int = 0,
        watermark: int = BEFORE_ALL,
        beyond: int | None = None,
    ) -> None:
        self.name = name
        self.registered = registered
        self.time_column = time_column
        self.disorder = disorder
        self.read: list[tuple[int, Columns]] = []
        self.position = position
        self.watermark = watermark
        self.done = False
        self.later = False
        """Whether the split may not be there yet: until its first record it is idle."""
        self.idling = idling
        self.idle: Idle | None = None if beyond is None else Idle(beyond, 0.0)
        """Its state since it was first seen idle; None if it is not idle after the last epoch."""
        self.beyond = beyond or 0
        self._silent = 0.0
        self.guard: AheadGuard | None = None
        self._aside: dict[int, np.ndarray] = {}
        self._ends: dict[int, np.ndarray] = {}
        """The positions after each row of a batch, by the batch's position; only where known."""
        self.taken_aside: np.ndarray = np.zeros(0, bool)
        """bool [n]: with a guard, which of the rows that were taken last are set aside."""

    def set_aside_by(self, guard: AheadGuard) -> None:
        """Set rows aside that are far ahead, as this guard says. Called before the first batch."""
        self.guard = guard
        if BEFORE_ALL < self.watermark < NEVER:
            guard.greatest = self.watermark + self.disorder

    def add(self, position: int, rows: Columns, ends: Any = None) -> None:
        """Take a batch that was read and ends at `position`.

        Args:
            ends: the position after each row, if the source says so: an epoch may end there.

        Raises:
            InputError: a record is far ahead, and the source refuses such records.
        """
        if self.guard is not None and (aside := self.guard.aside(rows)) is not None:
            self._aside[position] = aside
        if ends is not None:
            self._ends[position] = ends
        self.read.append((position, rows))

    def wanted(self, silent: float = 0.0) -> Boundary:
        """The boundary that would publish everything that was read.

        Args:
            silent: for how many seconds nothing has come, on the clock of the reader.
        """
        self._silent = silent
        due = self._due()
        position, watermark = self._position_after(due), self.watermark
        for at, rows in due:
            if self.time_column is not None and len(rows):
                times = rows.column(self.time_column)
                if at in self._aside:
                    times = times[~self._aside[at]]
                if len(times):
                    watermark = max(watermark, int(times.max()) - self.disorder)
        if self.done and len(due) == len(self.read):
            return Boundary(position, NEVER, True)
        came = any(len(rows) for _, rows in due)
        if self.later and position == 0 and not came:
            return Boundary(position, watermark, False, True, 0)
        if self.idling is None or came or watermark == NEVER:  # it had ended before
            return Boundary(position, watermark, False)
        beyond = self.idling.beyond(self.idle, silent)
        return Boundary(position, watermark, False, beyond is not None, beyond or 0)

    def _due(self) -> Sequence[tuple[int, Columns]]:
        """The batches that the next boundary is to publish."""
        return self.read

    def _position_after(self, due: Sequence[tuple[int, Columns]]) -> int:
        """The position after these batches."""
        return due[-1][0] if due else self.position

    def reaches(self, boundary: Boundary) -> bool:
        """Whether what was read can be cut at a boundary, so that it can be taken."""
        if self.read and self.read[-1][0] in self._ends:
            return self.position <= boundary.position <= self.read[-1][0]
        ends = (self.position, *(position for position, _ in self.read))
        return boundary.position in ends

    def take(self, boundary: Boundary) -> list[Columns]:
        """The rows up to a boundary that the register holds.

        Raises:
            InputError: the source does not yield what it did.
        """
        taken = self._rows_upto(boundary)
        self.watermark = boundary.watermark
        if not boundary.idle:
            self.idle = None
        elif self.idle is None:
            self.idle = Idle(boundary.beyond, self._silent)
        self.beyond = boundary.beyond
        return taken

    def _cut_first(self, position: int) -> None:
        """Cut the first batch at a position inside it, if the source says where its rows end.

        Reading again yields the same rows, but in other batches: those of before may have been cut
        by what was there at that moment.
        """
        at, rows = self.read[0]
        ends = self._ends.get(at)
        if ends is None or at <= position:
            return
        n = int(ends.searchsorted(position, "right"))
        self.read[:1] = [(position, rows.slice(0, n)), (at, rows.slice(n, len(rows)))]
        self._ends[position], self._ends[at] = ends[:n], ends[n:]
        if (aside := self._aside.get(at)) is not None:
            self._aside[position], self._aside[at] = aside[:n], aside[n:]

    def _rows_upto(self, boundary: Boundary) -> list[Columns]:
        taken, marks = [], [np.zeros(0, bool)]
        while self.read and self.position != boundary.position:
            self._cut_first(boundary.position)
            self.position, rows = self.read.pop(0)
            self._ends.pop(self.position, None)
            taken.append(rows)
            if self.guard is not None:
                aside = self._aside.pop(self.position, None)
                marks.append(np.zeros(len(rows), bool) if aside is None else aside)
        self.taken_aside = np.concatenate(marks)
        if self.position != boundary.position:
            raise InputError(
                f"split {self.name} ended an epoch at position {boundary.position} before, which"
                " reading it again does not reach",
                hint="read(split, position) must yield the same batches again.",
            )
        return taken
