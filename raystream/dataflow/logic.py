"""Interpreted logic: the user's functions called record by record, in canonical order.

A logic is what an instance does with the records of an epoch; it knows nothing of edges, pieces or
time outside its arguments. All logics have `process` for records and `fire` for windows and timers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from heapq import heappop
from operator import itemgetter, length_hint
from typing import Any, Protocol

import numpy as np

from raystream.api.operators import OperatorSpec
from raystream.dataflow.dues import Dues
from raystream.errors import OperatorError, StateError, operator_error
from raystream.schema.blocks import Emitted, Input, Output, sizes
from raystream.schema.columns import empty, from_records
from raystream.schema.objects import encode
from raystream.schema.records import RecordSchema, apart
from raystream.schema.state import FORGOTTEN, State
from raystream.schema.types import NEVER, KeyRange
from raystream.state.objects import ObjectTable


class Logic(Protocol):
    """What an instance does with the records of one epoch."""

    table: Any

    def open(self, keys: KeyRange) -> None: ...
    def process(self, given: Input, epoch: int, watermark: int) -> Output: ...
    def fire(self, keys: KeyRange, epoch: int, watermark: int, *, last: bool) -> Output | None: ...


class Collector:
    """Records as they are emitted in an epoch; `output` turns them into columns."""

    def __init__(self, spec: OperatorSpec, epoch: int) -> None:
        self.spec = spec
        self.epoch = epoch
        self.schemas = spec.outputs
        self.out: list[Any] = []
        self.offsets: list[int] = [0]
        self.frozen = _encoded(spec.outputs)

    @property
    def extend(self) -> Callable[[Any], None]:
        """What takes the records that a function yields."""
        return self._freeze if self.frozen else self.out.extend

    def _freeze(self, records: Any) -> None:
        """Values that are not plain are encoded at once: the user may go on changing them."""
        for record in records:
            at = self.frozen.get(type(record))
            if at is not None:
                values = list(record)
                for i in at:
                    values[i] = encode(values[i])
                record = tuple.__new__(type(record), values)
            self.out.append(record)

    def close_group(self) -> None:
        """All records of the next key group are in."""
        self.offsets.append(len(self.out))

    def output(self, *, origin: np.ndarray | None = None, late: list[int] | None = None) -> Output:
        """Columns per type. `origin`: the input record of each row, for stateless operators."""
        offsets = np.array(self.offsets, np.int64)
        emitted = (
            self._one(offsets, origin) if len(self.schemas) == 1 else self._many(offsets, origin)
        )
        return Output(emitted, None if late is None else np.array(late, np.int64))

    def _one(self, offsets: np.ndarray, origin: np.ndarray | None) -> tuple[Emitted, ...]:
        schema = self.schemas[0]
        if any(t is not schema.cls for t in set(map(type, self.out))):
            self._stranger()
        return (Emitted(self._columns(schema, self.out), offsets, None, origin),)

    def _many(self, offsets: np.ndarray, origin: np.ndarray | None) -> tuple[Emitted, ...]:
        places: dict[type, list[int]] = {s.cls: [] for s in self.schemas}
        for i, record in enumerate(self.out):
            found = places.get(type(record))
            if found is None:
                self._stranger()
            else:
                found.append(i)
        emitted = []
        for schema in self.schemas:
            at = np.array(places[schema.cls], np.int64)
            rows = self._columns(schema, [self.out[i] for i in places[schema.cls]])
            emitted.append(
                Emitted(
                    rows,
                    np.searchsorted(at, offsets).astype(np.int64),
                    at,
                    None if origin is None else origin[at],
                )
            )
        return tuple(emitted)

    def _columns(self, schema: RecordSchema, records: list[Any]) -> Any:
        if not records:
            return empty(schema)
        try:
            return from_records(schema, records)
        except StateError as error:
            raise OperatorError(
                f"{self.spec.name} emitted a value that does not fit: {error.message}",
                where=self.spec.where,
                hint="\n  ".join(filter(None, [f"at epoch {self.epoch}", error.hint])),
            ) from None

    def _stranger(self) -> None:
        known = {s.cls for s in self.schemas}
        at, bad = next((i, r) for i, r in enumerate(self.out) if type(r) not in known)
        declared = f"It declares {' | '.join(s.name for s in self.schemas)}: `yield` records, or"
        if (one := self._returned(at)) is not None:
            what = f"returned a {one.name} itself, of which the fields were taken for records"
        else:
            told, _ = apart(type(bad), self.schemas[0].cls)
            what = f"emitted a {told}, which its annotation does not name"
        raise OperatorError(
            f"{self.spec.name} {what}",
            where=self.spec.where,
            hint=f"{declared} return a list of them.\n  at epoch {self.epoch}",
        )

    def _returned(self, at: int) -> RecordSchema | None:
        """The type of the record whose fields were emitted from there on, if they are one's."""
        if inspect.isgeneratorfunction(self.spec.process):
            return None
        for schema in self.schemas:
            fields = self.out[at : at + len(schema.fields)]
            with suppress(StateError):
                if len(fields) == len(schema.fields) and from_records(schema, [fields]):
                    return schema
        return None


@lru_cache(maxsize=256)
def _encoded(schemas: tuple[RecordSchema, ...]) -> dict[type, list[int]]:
    """By record class the places of the fields that are not plain, where there are any."""
    at = {s.cls: [i for i, f in enumerate(s.fields) if f.kind == "object"] for s in schemas}
    return {cls: places for cls, places in at.items() if places}


def in_order(given: Input) -> list[Any]:
    """The records of an input in canonical order."""
    if given.which is None:
        records = list(given.columns[0].records())
        return records if given.where is None else [records[i] for i in given.where.tolist()]
    lists = [list(c.records()) for c in given.columns]
    if given.where is None:
        iters = [iter(records) for records in lists]
        return [next(iters[t]) for t in given.which.tolist()]
    return [lists[t][i] for t, i in zip(given.which.tolist(), given.where.tolist(), strict=True)]


def reached(left: Iterator[Any], hi: int) -> int:
    """The record that a loop has come to which takes all before `hi` from `left`."""
    return hi - 1 - length_hint(left)


def key_getter(spec: OperatorSpec, schema: RecordSchema) -> Callable[[Any], Any]:
    """What takes a record's key: a value, or a tuple for a key of several fields."""
    return itemgetter(*(schema.names.index(k) for k in spec.key))


def keys_in_order(
    getters: list[Callable[[Any], Any]], given: Input, records: list[Any]
) -> list[Any]:
    """The keys of records. getters: by input type."""
    if given.which is None:
        return list(map(getters[0], records))
    return [getters[t](r) for t, r in zip(given.which.tolist(), records, strict=True)]


class Stateless:
    """A flat map; it is fused into the instance that feeds it."""

    table = None

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec = spec

    def open(self, keys: KeyRange) -> None:
        pass

    def process(self, given: Input, epoch: int, watermark: int) -> Output:
        collector = Collector(self.spec, epoch)
        function, extend, out = self.spec.process, collector.extend, collector.out
        bounds = [0]
        try:
            for record in in_order(given):
                emitted = function(record)
                if emitted is not None:
                    extend(emitted)
                bounds.append(len(out))
        except Exception as error:
            raise operator_error(
                self.spec, error, epoch=epoch, doing=f"record {len(bounds) - 1}"
            ) from error
        collector.close_group()
        counts = sizes(np.array(bounds, np.int64))
        return collector.output(origin=np.arange(len(counts)).repeat(counts))

    def fire(self, keys: KeyRange, epoch: int, watermark: int, *, last: bool) -> Output | None:
        return None


class Keyed:
    """Per record with state and, where declared, timers."""

    def __init__(self, spec: OperatorSpec, groups: int) -> None:
        self.spec = spec
        self.groups = groups
        self.keys_of = [key_getter(spec, s) for s in spec.inputs]
        self.table = ObjectTable(spec.state) if spec.state is not None else None
        self.due = spec.state.timer if spec.state is not None else None
        self.alarms: dict[Any, int] = {}
        self.dues = Dues(self._stands)

    def open(self, keys: KeyRange) -> None:
        """Set the alarms of rows that were restored."""
        if self.due is not None and self.table is not None:
            self.alarms, self.dues = {}, Dues(self._stands)
            from raystream.state.keys import key_group

            for key, row in self.table.rows.items():
                self._alarm(key_group(key, self.groups), key, getattr(row, self.due))

    def process(self, given: Input, epoch: int, watermark: int) -> Output:
        collector = Collector(self.spec, epoch)
        records = in_order(given)
        keys = keys_in_order(self.keys_of, given, records)
        bounds = given.offsets.tolist()
        step = self._stateless if self.table is None else self._run
        for g in range(len(bounds) - 1):
            if bounds[g] < bounds[g + 1]:
                step(collector, given.lo + g, keys, records, bounds[g], bounds[g + 1], epoch)
            collector.close_group()
        return collector.output()

    def _stateless(
        self,
        collector: Collector,
        group: int,
        keys: list[Any],
        records: list[Any],
        lo: int,
        hi: int,
        epoch: int,
    ) -> None:
        extend, function = collector.extend, self.spec.process
        at = lo
        try:
            for at in range(lo, hi):
                emitted = function(records[at])
                if emitted is not None:
                    extend(emitted)
        except Exception as error:
            raise operator_error(
                self.spec, error, epoch=epoch, key=keys[at], doing=f"record {at}"
            ) from error

    def _run(
        self,
        collector: Collector,
        group: int,
        keys: list[Any],
        records: list[Any],
        lo: int,
        hi: int,
        epoch: int,
    ) -> None:
        assert self.table is not None and self.spec.state is not None
        rows, fresh = self.table.rows, self.spec.state.fresh
        get, extend, function = rows.get, collector.extend, self.spec.process
        due, alarms, settle = self.due, self.alarms, self.spec.state.settle
        left, key = iter(records[lo:hi]), None
        try:
            for record, key in zip(left, keys[lo:hi], strict=True):
                row = get(key)
                if row is None:
                    row = rows[key] = fresh()
                row._mark = epoch
                emitted = function(record, row)
                if emitted is not None:
                    extend(emitted)
                if settle is not None:
                    settle(row)
                if row._mark == FORGOTTEN:
                    self._forget(key, epoch)
                elif due is not None and getattr(row, due) != alarms.get(key, NEVER):
                    self._alarm(group, key, getattr(row, due))
        except Untimely as error:
            raise error.told(self.spec, epoch, key) from None
        except Exception as error:
            raise operator_error(
                self.spec, error, epoch=epoch, key=key, doing=f"record {reached(left, hi)}"
            ) from error

    def _forget(self, key: Any, epoch: int) -> None:
        assert self.table is not None
        self.table.remove(key, epoch)
        self.alarms.pop(key, None)

    def _alarm(self, group: int, key: Any, due: Any) -> None:
        if not isinstance(due, int):
            raise Untimely(due)
        if due == NEVER:
            self.alarms.pop(key, None)
            return
        self.alarms[key] = due
        self.dues.push(group, (due, key))

    def _stands(self, due: int, key: Any) -> bool:
        return self.alarms.get(key) == due

    def fire(self, keys: KeyRange, epoch: int, watermark: int, *, last: bool) -> Output | None:
        if not any(heap and heap[0][0] <= watermark for heap in self.dues.heaps.values()):
            return None
        collector = Collector(self.spec, epoch)
        for group in range(keys.lo, keys.hi):
            while ready := self._ready(group, watermark):
                for due, key in ready:
                    self._ring(collector, group, key, due, epoch)
                if last:
                    break
            collector.close_group()
        return collector.output()

    def _ready(self, group: int, watermark: int) -> list[tuple[int, Any]]:
        heap = self.dues.heaps.get(group)
        ready = []
        while heap and heap[0][0] <= watermark:
            due, key = heappop(heap)
            if self._stands(due, key):
                del self.alarms[key]
                ready.append((due, key))
        return ready

    def _ring(self, collector: Collector, group: int, key: Any, due: int, epoch: int) -> None:
        assert self.table is not None and self.due is not None and self.spec.timer is not None
        row = self.table.rows[key]
        row._mark = epoch
        setattr(row, self.due, NEVER)
        try:
            collector.extend(self.spec.timer(key, due, row) or ())
            if self.table.schema.settle is not None:
                self.table.schema.settle(row)
        except Exception as error:
            raise operator_error(
                self.spec, error, epoch=epoch, key=key, doing=f"timer {due}"
            ) from error
        if row._mark == FORGOTTEN:
            self._forget(key, epoch)
            return
        try:
            again = getattr(row, self.due)
            self._alarm(group, key, again)
        except Untimely as error:
            raise error.told(self.spec, epoch, key) from None
        if again <= due:
            raise self.spec.no_later(epoch)


class Untimely(Exception):
    """A timer was set to what is no time."""

    def __init__(self, due: Any) -> None:
        self.due = due

    def told(self, spec: OperatorSpec, epoch: int, key: Any) -> StateError:
        """It as the user is to hear it."""
        assert spec.state is not None
        return StateError(
            f"{spec.name} set the timer {spec.state.name}.{spec.state.timer} of key {key!r} to"
            f" {self.due!r:.80}, which is no time, in epoch {epoch}",
            where=spec.where,
            hint="A time is an int, as in the records; rs.NEVER unsets the timer.",
        )


def row_of(table: ObjectTable, key: Any, epoch: int) -> tuple[State, bool]:
    """The row of a key, made when it is new, marked as touched; and whether it is new."""
    row = table.rows.get(key)
    if row is not None:
        row._mark = epoch
        return row, False
    row = table.rows[key] = table.schema.fresh()
    row._mark = epoch
    return row, True
