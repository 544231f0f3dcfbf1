"""A compiled operator as an instance calls it: once per epoch for records, once for what is due."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from raystream.api.operators import OperatorSpec
from raystream.api.row_shapes import shape_of
from raystream.compiled import driver
from raystream.compiled.buffers import Block, BlockLayout, grouped
from raystream.compiled.rerun import Rerun, key_of_row
from raystream.errors import InternalError, OperatorError
from raystream.schema.blocks import NAMED, CutOff, Emitted, Input, Output
from raystream.schema.columns import empty, read_only
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange
from raystream.state.tables.structured_table import StructuredTable

if TYPE_CHECKING:
    from raystream.compiled.build import Built

_NONE = np.zeros(0, np.int64)


def compile_operator(spec: OperatorSpec, *, groups: int, ticks: int = 1) -> CompiledOperator:
    """Compile an operator for one instance; what is in memory or on disk is not made again.

    Args:
        groups: the number of key groups of the job.
        ticks: time units per second.

    Raises:
        GraphError: the operator cannot be compiled; it names the line and the reason.
        ConfigError: the cache folder cannot be written.
    """
    os.environ.setdefault("NUMBA_DISABLE_INTEL_SVML", "1")  # its results depend on the processor
    from raystream.compiled.build import build

    return CompiledOperator(spec, build(spec, ticks), groups)


class CompiledOperator:
    """The compiled form of one operator, for one instance; the table is the caller's.

    Emitted columns are new memory in each epoch: nothing that was handed out is ever changed.
    """

    def __init__(self, spec: OperatorSpec, built: Built, groups: int) -> None:
        self.spec = spec
        self.shape = built.shape
        self.groups = groups
        # Nobody sees in which order timers ring that emit nothing: as the rows lie is the quickest.
        self._silent = spec.timer is not None and not inspect.isgeneratorfunction(spec.timer)
        self._process, self._fire = built.process, built.fire
        self.parameters: tuple[Any, ...] = () if built.parameters is None else (built.parameters,)
        if built.shape.windows is not None and built.shape.calendar:
            from raystream.compiled.runtime.calendars import calendar_of

            self.parameters = (calendar_of(built.shape.windows), *self.parameters)
        self.control_dtype = driver.control_dtype(built.shape)
        outputs = list(enumerate(spec.outputs))
        self._records = _Call(self, [BlockLayout(built.shape, t, s) for t, s in outputs])
        self._due = _Call(self, [BlockLayout(built.shape, t, s) for t, s in outputs])

    @property
    def drivers(self) -> list[Any]:
        """The functions that go through records, and through what is due."""
        return [f for f in (self._process, self._fire) if f is not None]

    def new_table(self) -> StructuredTable | None:
        """A table for the operator's state; None for an operator without state."""
        if self.spec.state is None:
            return None
        windows = self.shape.windows
        return StructuredTable(
            self.spec.state,
            keys=len(self.spec.key),
            groups=self.groups,
            window=None if windows is None else 0 if self.shape.calendar else windows.size,
            ends=windows.ends if windows is not None and self.shape.calendar else None,
            shape=shape_of(self.spec),
        )

    def process(
        self,
        batch: Input,
        table: StructuredTable | None,
        epoch: int,
        watermark: int,
        upto: int = BEFORE_ALL,
    ) -> Output:
        """Process the records of an epoch.

        Args:
            watermark: at the end of the epoch before: windows that end by then are closed.
            upto: at the end of this epoch: alarms up to then ring before the first record of their
                key that is not earlier.

        Raises:
            OperatorError: the user's function raised.
        """
        n = len(batch)
        call = self._records
        call.begin(batch.offsets, n, table, epoch, watermark)
        late = _NONE if self.shape.windows is None else np.empty(n, np.int64)
        call.run[driver.INDIRECT] = batch.where is not None
        call.run[driver.UPTO] = min(upto, NEVER - 1)
        if n:
            call.go(
                self._process,
                self._inputs(batch, late),
                lambda e: Rerun(self.spec, self.shape, call.run, table).told(batch, e),
            )
        lates = int(call.run[driver.LATE])
        return Output(call.emitted(), late[:lates] if lates else None)

    def _inputs(self, batch: Input, late: np.ndarray) -> list[np.ndarray]:
        kinds = []
        if len(self.spec.inputs) > 1:
            only = next((t for t, c in enumerate(batch.columns) if len(c)), 0)
            kinds = [np.full(len(batch), only, np.uint8) if batch.which is None else batch.which]
        where = _NONE if batch.where is None else batch.where
        columns = [a for c in batch.columns for a in c.arrays]
        return [
            *map(read_only, [*kinds, where]),
            *([] if self.shape.windows is None else [late]),
            *map(read_only, columns),
        ]

    def fire(
        self,
        table: StructuredTable | None,
        keys: KeyRange,
        epoch: int,
        watermark: int,
        *,
        last: bool,
    ) -> Output:
        """Close the windows and ring the timers that are due at `watermark`.

        A timer that is set again and is due again rings in the next round. At the `last` time all
        are due, so there the number of rounds is limited.

        Raises:
            OperatorError: the user's function raised.
        """
        if table is None or self._fire is None:
            nothing = np.zeros(len(keys) + 1, np.int64)
            self._due.begin(nothing, 0, None, epoch, watermark)
            return Output(self._due.emitted())
        upto = NEVER if last else watermark
        # Where nothing is said the order does not show, and at the end there may be many millions.
        parts = table.timers.due_in_parts(upto) if self._silent else [table.timers.due(upto)]
        most = self.spec.end_rings if last and self.spec.timer is not None else NEVER
        rounds: list[Output] = []
        left: list[np.ndarray] = []
        for slots in parts:
            many = 0
            while many < most and (len(slots) or not rounds):
                rounds.append(self._round(table, slots, keys, epoch, last))
                many += 1
                if self.spec.timer is None:
                    break
                slots = table.timers.due_again(slots, upto)
            else:
                left.append(slots)
        output = grouped(rounds or [self._round(table, _NONE, keys, epoch, last)])
        if any(map(len, left)):
            output.cut_off = self._cut_off(table, np.concatenate(left), keys)
        return output

    def _cut_off(self, table: StructuredTable, slots: np.ndarray, keys: KeyRange) -> CutOff:
        slots, offsets = table.timers.in_firing_order(slots)
        named = [key_of_row(self.spec, table.rows[slot]) for slot in slots[:NAMED]]
        return CutOff(offsets[keys.lo : keys.hi + 1], tuple(map(repr, named)))

    def _round(
        self, table: StructuredTable, slots: np.ndarray, keys: KeyRange, epoch: int, last: bool
    ) -> Output:
        if self._silent:
            offsets = np.repeat([0, len(slots)], [1, len(keys)])
        else:
            slots, offsets = table.timers.in_firing_order(slots)
            offsets = offsets[keys.lo : keys.hi + 1]
        if offsets[-1] - offsets[0] != len(slots):
            raise InternalError(f"{self.spec.name} holds rows outside of the key groups {keys}")
        call = self._due
        call.begin(offsets, len(slots), table, epoch, BEFORE_ALL)
        call.run[driver.LAST] = last
        if len(slots):
            assert self._fire is not None
            table.removals.reserve(len(slots))
            call.go(
                self._fire, [read_only(slots)], Rerun(self.spec, self.shape, call.run, table).due
            )
        return Output(call.emitted())

    def warm(self) -> None:
        """Call the drivers with nothing to do: they are compiled, or loaded."""
        table, nothing = self.new_table(), np.zeros(2, np.int64)
        batch = Input(tuple(map(empty, self.spec.inputs)), None, None, nothing, 0)
        self._records.begin(nothing, 0, table, 0, BEFORE_ALL)
        self._records.go(self._process, self._inputs(batch, _NONE), None)
        if self._fire is not None:
            self._due.begin(nothing, 0, table, 0, BEFORE_ALL)
            self._due.go(self._fire, [read_only(_NONE)], None)


class _Call:
    """One run of a driver over an epoch: its progress, its outputs, and growing what is full.

    There is one for the records of all epochs and one for what is due in them: what a driver works
    with is kept from one epoch to the next, because most epochs are small. What it hands out is
    new.
    """

    def __init__(self, operator: CompiledOperator, layouts: list[BlockLayout]) -> None:
        self.operator = operator
        self.layouts = layouts
        self.run = np.zeros(driver.RUN, np.int64)
        self.homes = np.empty(driver.HOMES, np.int64)
        self.control = np.zeros(1, operator.control_dtype)
        self._words = self.control.view(np.int64)
        self._entry: Callable[..., int] | None = None
        """The driver's machine code, once it was called."""
        self._saved: np.ndarray | None = None

    def begin(
        self,
        offsets: np.ndarray,
        n: int,
        table: StructuredTable | None,
        epoch: int,
        watermark: int,
    ) -> None:
        """Prepare for an epoch."""
        self.offsets = offsets
        self.n = n
        self.table = table
        run = self.run
        run.fill(0)
        run[driver.EPOCH], run[driver.WATERMARK], run[driver.SLOT] = epoch, watermark, -1
        self.ends = np.zeros((len(self.layouts), len(offsets)), np.int64)
        self.blocks: list[Block] = []

    def go(
        self,
        function: Callable[..., int],
        inputs: Sequence[np.ndarray],
        explain: Callable[[Exception], OperatorError] | None,
    ) -> None:
        """Run a driver to its end. `explain` makes the error to raise if the user's code raised."""
        control, words, call = self.control, self._words, self._entry or function
        words.fill(0)
        self.blocks = [Block(layout, words, layout.guess(self.n)) for layout in self.layouts]
        offsets, saved = read_only(self.offsets), self._saved
        if saved is None and self.table is not None:
            saved = self._saved = self.table.store.defaults.copy()
        while True:
            failure = None
            try:
                code = call(
                    self.run,
                    offsets,
                    self.ends,
                    control,
                    *inputs,
                    *self._state(saved),
                    *self.operator.parameters,
                )
            except Exception as error:
                if self.table is not None and saved is not None and self.run[driver.SLOT] >= 0:
                    self.table.rows[self.run[driver.SLOT]] = saved[0]
                if explain is None:
                    raise
                failure = explain(error)
            if failure is not None:  # raised here, so that Numba's own error is not its context
                raise failure
            if code == driver.DONE:
                break
            self._make_room(code)
        if self._entry is None:
            from raystream.native.numba_internals import entry_of

            self._entry = entry_of(function)
        for layout, block in zip(self.layouts, self.blocks, strict=True):
            layout.learn(self.n, len(block))

    def _state(self, saved: np.ndarray | None) -> tuple[Any, ...]:
        table = self.table
        if table is None:
            return ()
        return (
            table.store.rows,
            table.store.index.arrays,
            table.store.meta,
            table.timers.alarms,
            table.store.defaults,
            table.removals.noted,
            table.views.aside,
            saved,
            self.homes,
        )

    def _make_room(self, code: int) -> None:
        if code == driver.FULL_OUTPUT:
            for block in self.blocks:
                block.grow()
            return
        if code == driver.FAR_TIME:
            raise OperatorError(
                f"{self.operator.spec.name}: the time of a record is too far off for a"
                f" window (at epoch {self.run[driver.EPOCH]}, record"
                f" {self.run[driver.RECORD]})",
                where=self.operator.spec.where,
            )
        assert self.table is not None
        if code == driver.NO_LATER:
            raise self.operator.spec.no_later(int(self.run[driver.EPOCH]))
        if code == driver.FULL_TABLE:
            self.table.grow()
        elif code == driver.FULL_ASIDE:
            self.table.views.reserve()
        else:
            self.table.removals.reserve(len(self.table.removals.noted))

    def emitted(self) -> tuple[Emitted, ...]:
        """What was emitted, per output type."""
        if self.blocks:
            return tuple(b.emitted(self.ends[t]) for t, b in enumerate(self.blocks))
        hidden = np.zeros(0, np.int64)
        shape = self.operator.shape
        return tuple(
            Emitted(
                empty(layout.schema),
                self.ends[t],
                hidden if shape.ranked else None,
                hidden if shape.origins else None,
            )
            for t, layout in enumerate(self.layouts)
        )
