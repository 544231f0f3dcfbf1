"""An operator whose rows do not all lie in memory: what is done before and after its logic sees an
epoch.

Before: the rows of the epoch's keys, and those that are due, come from disk. After: if rows take
more memory than they may, some go. An epoch with many records, or many rows that are due, is taken
a range of key groups at a time. In canonical order one key group is done before the next begins,
and no key group sees rows of another, so this changes no bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from raystream.api.operators import OperatorSpec
from raystream.dataflow.logic.base import Logic
from raystream.dataflow.logic.batches import RowsLogic
from raystream.dataflow.logic.compiled import CompiledLogic
from raystream.dataflow.logic.interpreted import KeyedLogic, in_order, keys_in_order
from raystream.dataflow.logic.sessions import SessionWindows
from raystream.dataflow.logic.timed import TimedLogic
from raystream.dataflow.logic.windows import FixedWindows
from raystream.errors import RaystreamError, StateError
from raystream.schema.blocks import NAMED, CutOff, Emitted, Input, Output
from raystream.schema.columns import concat, empty
from raystream.schema.types import BEFORE_ALL, FAR, NEVER, KeyRange
from raystream.state.segments.cold_rows import range_of
from raystream.state.tables.backend import Table
from raystream.state.tiers.object_tier import HotRows, ObjectTier
from raystream.state.tiers.structured_tier import StructuredTier

ROW_BYTES = 64
"""The rows of records that an epoch brings take at least so much each."""
LEAST_AT_ONCE = 64
"""How many records of an epoch are taken at once in any case, if they are of one key group."""


def tiered(logic: Logic, spec: OperatorSpec, ticks: int, memory: int, folder: Path) -> Logic:
    """The logic, with rows on disk where it can have some.

    Args:
        ticks: time units of the flow per second.
        memory: how many bytes its rows may take in memory.
        folder: where the others lie.
    """
    if type(logic) is CompiledLogic and logic.table is not None:
        return _Compiled(logic, spec, ticks, memory, folder)
    if type(logic) is RowsLogic:
        return _Structured(logic, spec, ticks, memory, folder)
    if type(logic) is KeyedLogic and logic.table is not None:
        return _Objects(logic, spec, ticks, memory, folder)
    if type(logic) is TimedLogic:
        return _Timed(logic, spec, ticks, memory, folder)
    if type(logic) is FixedWindows:
        return _Windows(logic, spec, ticks, memory, folder)
    if type(logic) is SessionWindows:
        return _Sessions(logic, spec, ticks, memory, folder)
    return logic


class Tiered(Logic):
    """The base of logics with rows on disk. Each has a logic that sees rows in memory alone."""

    inner: Any
    tier: Any

    def __init__(self, inner: Logic, spec: OperatorSpec, memory: int) -> None:
        self.inner, self.spec = inner, spec
        self._at_once = max(LEAST_AT_ONCE, memory // (4 * ROW_BYTES))

    @property
    def table(self) -> Table:  # type: ignore[override]
        """The rows in memory and on disk."""
        table: Table = self.tier
        return table

    def open(self, keys: KeyRange) -> None:
        self._in_memory()
        self.inner.open(keys)

    def warm(self) -> None:
        self.inner.warm()

    def _in_memory(self) -> None:
        """The inner logic works on the rows that are in memory now."""
        self.inner.table = self.tier.hot

    # ------------------------------------------------------------ records

    def process(self, given: Input, epoch: int, watermark: int, upto: int = BEFORE_ALL) -> Output:
        self.tier.epoch = epoch
        outputs = []
        for part in parts_of(given, self._at_once):
            if self.tier.cold and len(part):
                self._brought(self._bring(part, watermark))
            outputs.append((len(part), self.inner.process(part, epoch, watermark, upto)))
            self._after()
        return joined(outputs)

    def _bring(self, given: Input, watermark: int) -> Iterable[Any]:
        """Bring the rows that records need. Returns the keys that alarms are to be set for."""
        raise NotImplementedError

    def _brought(self, keys: Iterable[Any]) -> None:
        """Set the alarms of rows that came from disk."""

    def _after(self) -> None:
        self.tier.note_removals()
        try:
            gone = self.tier.shrink()
        except RaystreamError as error:
            if isinstance(error, StateError) and error.where is None:
                raise StateError(error.message, where=self.spec.where, hint=error.hint) from error
            raise
        if self.inner.table is not self.tier.hot:
            self._in_memory()
        if gone:
            self._left(gone)

    def _left(self, keys: Iterable[Any]) -> None:
        """Forget the alarms of rows that are not in memory any more."""

    # ------------------------------------------------------------ what is due

    def next_due(self) -> int:
        inner: int = self.inner.next_due()
        return min(inner, self.tier.cold.next_due)

    def fire(self, keys: KeyRange, epoch: int, watermark: int, *, last: bool) -> Output | None:
        cold, upto = self.tier.cold, NEVER if last else watermark
        self.tier.epoch = epoch
        if cold.next_due > upto or cold.next_due == NEVER:
            output: Output | None = self.inner.fire(keys, epoch, watermark, last=last)
            self._after()
            return output
        outputs: list[tuple[int, Output]] = []
        for part in self._ranges(keys, upto):
            self._brought(self.tier.bring_due(upto, *range_of(part, self.tier.groups)))
            self.tier.within(part)
            fired = self.inner.fire(part, epoch, watermark, last=last)
            self.tier.within(None)
            outputs.append((0, fired or self._nothing(part)))
            self._after()
        cold.passed(upto)
        return joined(outputs)

    def _nothing(self, keys: KeyRange) -> Output:
        """The output where nothing is due."""
        offsets, none = np.zeros(len(keys) + 1, np.int64), np.zeros(0, np.int64)
        schemas = self.spec.outputs
        ranks = none if len(schemas) > 1 else None
        return Output(tuple(Emitted(empty(s), offsets, ranks) for s in schemas))

    def _ranges(self, keys: KeyRange, upto: int) -> Iterator[KeyRange]:
        """Ranges of key groups with so many rows on disk that are due that memory has room."""
        if self.tier.cold.due_rows(upto) <= self._at_once:
            yield keys
            return
        counts, at, held = self.tier.cold_counts[keys.lo : keys.hi].tolist(), keys.lo, 0
        for group, count in enumerate(counts, keys.lo):
            if group > at and held + count > self._at_once:
                yield KeyRange(at, group)
                at, held = group, 0
            held += count
        yield KeyRange(at, keys.hi)


class _Structured(Tiered):
    """A batch operator whose rows may lie on disk."""

    def __init__(
        self, inner: Any, spec: OperatorSpec, ticks: int, memory: int, folder: Path
    ) -> None:
        super().__init__(inner, spec, memory)
        self.tier = StructuredTier(self._make, folder, spec.name, memory)
        self._in_memory()

    def _make(self) -> Any:
        return self.inner.new_table()

    def _bring(self, given: Input, watermark: int) -> Iterable[Any]:
        self.tier.bring_keys(self._columns(given, watermark))
        return ()

    def _columns(self, given: Input, watermark: int) -> list[Any]:
        parts = [[rows.column(k) for k in self.spec.key] for rows in records_of(given)]
        return [_one(list(columns)) for columns in zip(*parts, strict=True)]


class _Compiled(_Structured):
    """Compiled operators: without windows, with windows, with timers."""

    def __init__(
        self, inner: CompiledLogic, spec: OperatorSpec, ticks: int, memory: int, folder: Path
    ) -> None:
        self._assigner = None if spec.window is None else spec.assigner(ticks)
        super().__init__(inner, spec, ticks, memory, folder)

    def _columns(self, given: Input, watermark: int) -> list[Any]:
        columns = super()._columns(given, watermark)
        if self._assigner is None:
            return columns
        assigner = self._assigner
        times = np.concatenate([r.column(self.spec.time) for r in records_of(given)])
        times = times.astype(np.int64)
        inside = np.abs(times) <= FAR
        which, starts = windows_of(assigner, np.where(inside, times, 0))
        open_ = (assigner.ends(starts) > watermark) & inside[which]
        return [*(c[which[open_]] for c in columns), starts[open_]]


class _Objects(Tiered):
    """Interpreted operators without timers and windows."""

    def __init__(
        self, inner: Any, spec: OperatorSpec, ticks: int, memory: int, folder: Path
    ) -> None:
        super().__init__(inner, spec, memory)
        hot = HotRows(inner.table.shape, inner.table.groups)
        self.tier = ObjectTier(hot, folder, spec.name, memory, **self._due(inner))
        self._in_memory()

    def _due(self, inner: Any) -> dict[str, Any]:
        return {}

    def _bring(self, given: Input, watermark: int) -> Iterable[Any]:
        found: Iterable[Any] = self.tier.bring_keys(self._keys_of(given))
        return found

    def _keys_of(self, given: Input) -> list[Any]:
        return keys_in_order(self.inner.keys_of, given, in_order(given))


class _Timed(_Objects):
    """Interpreted operators with timers."""

    def _due(self, inner: TimedLogic) -> dict[str, Any]:
        return {"due": inner.due}

    def _brought(self, keys: Iterable[Any]) -> None:
        self.inner.set_alarms(keys)

    def _left(self, keys: Iterable[Any]) -> None:
        self.inner.forget_alarms(keys)


class _Windows(_Timed):
    """Tumbling and sliding windows, interpreted."""

    def _due(self, inner: Any) -> dict[str, Any]:
        return {"ends": inner.assigner.ends}

    def _bring(self, given: Input, watermark: int) -> Iterable[Any]:
        assigner = self.inner.assigner
        times = self.inner.times_of(given, 0).tolist()
        wanted = [
            (key, start)
            for key, time in zip(self._keys_of(given), times, strict=True)
            for start, end in assigner.windows(time)
            if end > watermark
        ]
        found: Iterable[Any] = self.tier.bring_keys(wanted)
        return found


class _Sessions(_Timed):
    """Session windows. Which sessions a record joins depends on all of its key."""

    def _due(self, inner: Any) -> dict[str, Any]:
        return {}

    def _bring(self, given: Input, watermark: int) -> Iterable[Any]:
        found: Iterable[Any] = self.tier.bring_windows(self._keys_of(given))
        return found


# ---------------------------------------------------------------- parts of an epoch


def parts_of(given: Input, most: int) -> Iterator[Input]:
    """The records of an epoch, cut into ranges of key groups with at most so many records, or of
    one key group. The whole epoch where that is few enough."""
    if len(given) <= most:
        yield given
        return
    offsets, at = given.offsets, 0
    while at < given.groups:
        last = int(np.searchsorted(offsets, offsets[at] + most, "right")) - 1
        last = min(max(last, at + 1), given.groups)
        lo, hi = int(offsets[at]), int(offsets[last])
        which = None if given.which is None else given.which[lo:hi]
        columns, where = given.columns, None
        if given.where is not None:
            where = given.where[lo:hi]
        else:  # all records are of one type
            columns = tuple(c.slice(lo, hi) if len(c) else c for c in given.columns)
        yield Input(columns, which, where, offsets[at : last + 1] - lo, given.lo + at)
        at = last


def records_of(given: Input) -> list[Any]:
    """Of each input type the columns of the records of an epoch, or of a part of one."""
    if given.where is None:
        return [c for c in given.columns if len(c)]
    found = []
    for t, rows in enumerate(given.columns):
        mine = given.where if given.which is None else given.where[given.which == t]
        if len(mine):
            found.append(rows if len(mine) == len(rows) else rows.take(mine))
    return found


def windows_of(assigner: Any, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(of each window of each record, which record it is; when the window begins): int64 both."""
    if assigner.tumbling:
        return np.arange(len(times)), assigner.starts(times)
    if not assigner.even:
        pairs = [(i, s) for i, t in enumerate(times.tolist()) for s, _ in assigner.windows(t)]
        both = np.array(pairs, np.int64).reshape(-1, 2)
        return both[:, 0], both[:, 1]
    newest = assigner.starts(times)
    back = np.arange(-(-assigner.size // assigner.every)) * assigner.every
    starts = newest[:, None] - back
    held = starts + assigner.size > times[:, None]
    which = np.repeat(np.arange(len(times)), len(back)).reshape(starts.shape)
    return which[held], starts[held]


def joined(outputs: Sequence[tuple[int, Output]]) -> Output:
    """What was emitted for consecutive ranges of key groups, as one output.

    outputs: with how many records each was made from.
    """
    if len(outputs) == 1:
        return outputs[0][1]
    made = [o for _, o in outputs]
    before = np.cumsum([0, *(n for n, _ in outputs)])
    late = [at + o.late for at, o in zip(before.tolist(), made, strict=False) if o.late is not None]
    ranks = np.cumsum([0, *(sum(len(e.rows) for e in o.emitted) for o in made)]).tolist()
    emitted = []
    for each in zip(*(o.emitted for o in made), strict=True):
        rank = None
        if each[0].rank is not None:
            parts = [at + e.rank for at, e in zip(ranks, each, strict=False) if e.rank is not None]
            rank = np.concatenate(parts)
        offsets = end_to_end([e.offsets for e in each])
        emitted.append(Emitted(concat([e.rows for e in each]), offsets, rank))
    cut = [o.cut_off for o in made]
    return Output(
        tuple(emitted), np.concatenate(late) if late else None, _joined_cut_off(made, cut)
    )


def end_to_end(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The offsets of consecutive ranges as those of one."""
    found, at = [np.zeros(1, np.int64)], 0
    for offsets in parts:
        found.append(offsets[1:] - offsets[0] + at)
        at = int(found[-1][-1])
    return np.concatenate(found)


def _joined_cut_off(made: Sequence[Output], cut: Sequence[CutOff | None]) -> CutOff | None:
    if not any(cut):
        return None
    none = [np.zeros_like(o.emitted[0].offsets) for o in made]
    offsets = [c.offsets if c is not None else n for c, n in zip(cut, none, strict=True)]
    keys = tuple(k for c in cut if c is not None for k in c.keys)
    return CutOff(end_to_end(offsets), keys[:NAMED])


def _one(columns: list[Any]) -> Any:
    if len(columns) == 1:
        return columns[0]
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    import pyarrow as pa

    return pa.concat_arrays(columns)
