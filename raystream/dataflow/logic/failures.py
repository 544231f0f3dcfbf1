"""Logics of operators with `on_error="stream"`: a record that fails becomes a record of its own.

Each call of the user's code is an attempt. If it raises, or emits what does not fit, the row, the
alarm and all that it emitted are as before, and an `rs.FailedRecord` is emitted in its place.
A timer that fails has rung, and a window whose `close` fails is over: otherwise they would fail in
each epoch that follows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import PurePath
from typing import Any, TypeVar

import numpy as np

from raystream.api.operators import FailedRecord, OperatorSpec
from raystream.api.row_shapes import kept_shape
from raystream.api.windows.kinds import Session
from raystream.dataflow.logic.base import Logic
from raystream.dataflow.logic.interpreted import Collector, KeyedLogic, Stateless, in_order
from raystream.dataflow.logic.sessions import SessionWindows
from raystream.dataflow.logic.timed import TimedLogic, Untimely
from raystream.dataflow.logic.undo import UndoTable
from raystream.dataflow.logic.windows import FixedWindows, WindowLogic
from raystream.errors import InternalError, RaystreamError, user_frame
from raystream.schema.blocks import Input, Output, sizes
from raystream.schema.records import record_schema
from raystream.schema.storing import from_records
from raystream.schema.types import BEFORE_ALL, NEVER, Window

R = TypeVar("R")

_ADDRESS = re.compile(r"\b0x[0-9a-f]{6,}\b")
"""An address of memory, which is another one in each process."""


class Attempts:
    """The calls of an operator's code, one after the other.

    Args:
        table: the rows of the operator; None if it keeps none.
    """

    def __init__(self, spec: OperatorSpec, table: UndoTable | None) -> None:
        self.spec = spec
        self.table = table
        self.undone: dict[Any, bool] = {}
        """The keys of the last attempt that failed, and whether each has a row again."""
        self._begun = 0

    def begin(self, collector: Collector) -> None:
        """What was done before stays, whatever follows."""
        self._begun = len(collector.out)
        if self.table is not None:
            self.table.begin()

    def make(
        self, collector: Collector, call: Callable[[], R], failed: Callable[[Exception], Any]
    ) -> tuple[bool, R | None]:
        """Whether a call went well, and its result.

        Args:
            call: emits into the collector, and changes rows.
            failed: makes the record that is emitted if it raises.
        """
        self.begin(collector)
        try:
            result = call()
            _check(collector, self._begun)
        except InternalError:
            raise
        except Exception as error:
            if self.table is not None:
                self.undone = self.table.undo()
            del collector.out[self._begun :]
            collector.out.append(failed(error))
            return False, None
        if self.table is not None:
            self.table.end()
        return True, result

    def failed(self, error: Exception, step: str, time: int, key: Any, what: Any) -> FailedRecord:
        """The record of a failure. what: the record, or the parts of a window."""
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        where = user_frame(cause) or self.spec.where
        if isinstance(cause, Untimely):
            reason = f"the timer was set to {cause.due!r:.80}, which is no time"
        elif isinstance(cause, RaystreamError):
            reason = cause.message
        else:
            reason = f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
        return FailedRecord(
            time=time,
            operator=self.spec.name,
            step=step,
            key=None if not self.spec.key else repr(key),
            record=None if step != "process" else type(what).__name__,
            data=_json(what),
            reason=_ADDRESS.sub("0x...", reason),
            place="" if where is None else f"{PurePath(where.file).name}:{where.line}",
        )

    def of_record(self, record: Any, key: Any = None) -> Callable[[Exception], FailedRecord]:
        """Makes the record of a failure of `process`."""
        time = getattr(record, self.spec.time, 0)
        time = int(time) if isinstance(time, int | np.integer) else 0
        return lambda error: self.failed(error, "process", time, key, record)


def _check(collector: Collector, begun: int) -> None:
    """Refuse what was emitted since and does not fit. Otherwise it would end the job at the end of
    the epoch, when nothing can be undone."""
    emitted = collector.out[begun:]
    if not emitted:
        return
    known = {s.cls: s for s in collector.schemas}
    for record in emitted:
        if type(record) not in known:
            collector.stranger()
        from_records(known[type(record)], [record])


def _json(what: Any) -> bytes:
    """In UTF-8. What JSON has no form for is its `repr`."""
    if type(what) is not dict:
        what = {name: getattr(what, name) for name in record_schema(type(what)).names}
    text = json.dumps(what, default=lambda value: _ADDRESS.sub("0x...", repr(value)))
    return text.encode("utf-8", "backslashreplace")


# ---------------------------------------------------------------- by record


class FailingStateless(Stateless):
    """See the module."""

    def process(self, given: Input, epoch: int, watermark: int, upto: int = BEFORE_ALL) -> Output:
        collector, attempts = Collector(self.spec, epoch), Attempts(self.spec, None)
        function, extend, bounds = self.spec.process, collector.extend, [0]

        def call(record: Any) -> None:
            emitted = function(record)
            if emitted is not None:
                extend(emitted)

        for record in in_order(given):
            attempts.make(collector, partial(call, record), attempts.of_record(record))
            bounds.append(len(collector.out))
        collector.close_group()
        counts = sizes(np.array(bounds, np.int64))
        return collector.output(origin=np.arange(len(counts)).repeat(counts))


class FailingKeyed(KeyedLogic):
    """See the module."""

    def __init__(self, spec: OperatorSpec, groups: int) -> None:
        super().__init__(spec, groups)
        table = None if spec.state is None else UndoTable(kept_shape(spec), groups)
        self.table, self.attempts = table, Attempts(spec, table)

    def _one_by_one(self, step: Callable[..., None], *args: Any) -> None:
        collector, keys, records, lo, hi = args
        for i in range(lo, hi):
            failed = self.attempts.of_record(records[i], keys[i])
            call = partial(step, collector, keys, records, i, i + 1)
            self.attempts.make(collector, call, failed)

    def _stateless(self, *args: Any) -> None:
        self._one_by_one(super()._stateless, *args)

    def _run(self, *args: Any) -> None:
        self._one_by_one(super()._run, *args)


class FailingTimed(TimedLogic):
    """See the module."""

    def __init__(self, spec: OperatorSpec, groups: int) -> None:
        super().__init__(spec, groups)
        table = UndoTable(kept_shape(spec), groups)
        self.table, self.attempts = table, Attempts(spec, table)
        self._ringing = Attempts(spec, table)
        self._before: int | None = None
        """The alarm of the key before the record."""
        self._within = False
        """Whether records are taken."""

    def _take(
        self, collector: Collector, group: int, taken: Iterator[tuple[Any, Any, int]], hi: int
    ) -> None:
        take, self._within = super()._take, True
        for one in taken:
            record, key, _ = one
            self._before = self.alarms.get(key)
            sound, _ = self.attempts.make(
                collector,
                partial(take, collector, group, iter([one]), hi),
                self.attempts.of_record(record, key),
            )
            if not sound:
                self._alarm(group, key, NEVER if self._before is None else self._before)
        self._within = False

    def _ring(self, collector: Collector, group: int, key: Any, due: int) -> None:
        ring = super()._ring
        sound, _ = self._ringing.make(
            collector,
            partial(ring, collector, group, key, due),
            lambda error: self._ringing.failed(error, "timer", due, key, {"time": due}),
        )
        if not sound:
            row, _ = self.table.touch(key, collector.epoch)
            setattr(row, self.due, NEVER)
            self._alarm(group, key, NEVER)
        if self._within:
            self._before = self.alarms.get(key)
            self.attempts.begin(collector)  # the ring stays, whatever becomes of the record


# ---------------------------------------------------------------- windows


class _FailingWindows(WindowLogic):
    """What fixed windows and sessions have in common."""

    attempts: Attempts

    def _begin(self) -> None:
        table = UndoTable(kept_shape(self.spec), self.groups)
        self.table, self.attempts = table, Attempts(self.spec, table)

    def _take(self, collector: Collector, group: int, key: Any, time: int, record: Any) -> bool:
        take = super()._take
        sound, taken = self.attempts.make(
            collector,
            partial(take, collector, group, key, time, record),
            self.attempts.of_record(record, key),
        )
        if not sound:
            for (_, start), there in self.attempts.undone.items():
                self._restored(group, key, start, there=there)
        return taken is not False

    def _close(self, collector: Collector, key: Any, window: Window) -> None:
        close = super()._close
        parts = {"start": window.start, "end": window.end}
        sound, _ = self.attempts.make(
            collector,
            partial(close, collector, key, window),
            lambda error: self.attempts.failed(error, "close", window.end, key, parts),
        )
        if not sound:
            self.table.remove((key, window.start), collector.epoch)
            self._over(key, window.start)

    def _restored(self, group: int, key: Any, start: int, *, there: bool) -> None:
        """A window is as it was before a record. there: whether it is open."""
        raise NotImplementedError

    def _over(self, key: Any, start: int) -> None:
        """A window is over although its `close` has failed."""


class FailingFixed(_FailingWindows, FixedWindows):
    """See the module."""

    def __init__(self, spec: OperatorSpec, groups: int, ticks: int) -> None:
        super().__init__(spec, groups, ticks)
        self._begin()

    def process(self, given: Input, epoch: int, watermark: int, upto: int = BEFORE_ALL) -> Output:
        return WindowLogic.process(self, given, epoch, watermark, upto)

    def _restored(self, group: int, key: Any, start: int, *, there: bool) -> None:
        if there:
            self._open(group, key, start, self.assigner.end(start))


class FailingSessions(_FailingWindows, SessionWindows):
    """See the module."""

    def __init__(self, spec: OperatorSpec, groups: int, ticks: int) -> None:
        super().__init__(spec, groups, ticks)
        self._begin()

    def _restored(self, group: int, key: Any, start: int, *, there: bool) -> None:
        self.know(key, start, there=there)
        if there:
            self._open(group, key, start, self._end(key, start))

    def _over(self, key: Any, start: int) -> None:
        self.know(key, start, there=False)


def failing_logic(spec: OperatorSpec, groups: int, ticks: int) -> Logic:
    """The logic of an operator with `on_error="stream"`."""
    if spec.window is not None:
        kind: Any = FailingSessions if isinstance(spec.window, Session) else FailingFixed
        made: Logic = kind(spec, groups, ticks)
        return made
    if spec.timer is not None:
        return FailingTimed(spec, groups)
    return FailingKeyed(spec, groups) if spec.keyed else FailingStateless(spec)
