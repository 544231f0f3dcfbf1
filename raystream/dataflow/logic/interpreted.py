"""Interpreted logic: the user's functions called record by record, in canonical order."""

from __future__ import annotations

import inspect
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import length_hint
from typing import Any

import numpy as np

from raystream.api.operators import OperatorSpec
from raystream.api.row_shapes import kept_shape
from raystream.dataflow.logic.base import Logic
from raystream.errors import OperatorError, StateError, operator_error, shown
from raystream.schema.blocks import Emitted, Input, Output, sizes
from raystream.schema.columns import empty
from raystream.schema.objects import encode
from raystream.schema.records import RecordSchema, apart, record_maker, values_of
from raystream.schema.state import FORGOTTEN
from raystream.schema.storing import from_records
from raystream.schema.types import BEFORE_ALL
from raystream.state.tables.object_table import ObjectTable


class Collector:
    """Collects the records that are emitted in an epoch; `output` turns them into columns.

    Args:
        groups: how many key groups the range of the instance has; 1 where rows have none.
    """

    def __init__(self, spec: OperatorSpec, epoch: int, groups: int = 1) -> None:
        self.spec = spec
        self.epoch = epoch
        self.groups = groups
        self.schemas = spec.outputs
        self.out: list[Any] = []
        self._places: list[int] = []
        self._ends: list[int] = []
        self.frozen = _encoded(spec.outputs)
        self._first, self._range = epoch, groups
        self._begins: np.ndarray | None = None

    def begin(self, given: Input) -> Collector:
        """Take note of how many epochs the records are of. Returns itself."""
        if given.epochs > 1:
            self._first, self._range = self.epoch - given.epochs + 1, given.groups // given.epochs
            self._begins = given.offsets[:: self._range]
        return self

    def beside(self, given: Input) -> Collector:
        """Another one of the same epochs."""
        return Collector(self.spec, self._first + given.epochs - 1, given.groups).begin(given)

    def through(self, given: Input, end: Callable[[int], None]) -> Iterator[tuple[int, int, int]]:
        """Go through the key groups that have records, as `Input.filled`; what is emitted for one
        belongs to it.

        Args:
            end: called at the end of each epoch with its place among the several.
        """
        ended = 0
        for place, lo, hi in given.filled():
            if given.epochs > 1:
                while ended < place // self._range:
                    end(ended)
                    ended += 1
                self.stand(place)
            yield place, lo, hi
            self.close_group(place)
        for of in range(ended, given.epochs):
            end(of)

    def stand(self, at: int) -> None:
        """The records that follow are of a key group of one of several epochs."""
        self.epoch = self._first + at // self._range

    def number(self, at: int) -> str:
        """What a record is called in errors: its number in its epoch."""
        before = 0 if self._begins is None else int(self._begins[self.epoch - self._first])
        return f"record {at - before}"

    def _name_epoch(self, at: int) -> None:
        """Let errors name the epoch in which a record was emitted."""
        if self._begins is not None:
            self.stand(self._places[bisect_right(self._ends, at)])

    @property
    def extend(self) -> Callable[[Any], None]:
        """The function that takes the records that the user's function yields."""
        return self._freeze if self.frozen else self.out.extend

    def _freeze(self, records: Any) -> None:
        """Take records whose values are not all plain. Those that are not are encoded at once,
        because the user may go on changing them."""
        for record in records:
            at = self.frozen.get(type(record))
            if at is not None:
                values = list(values_of(type(record))(record))
                for i in at:
                    values[i] = encode(values[i])
                record = record_maker(type(record))(values)
            self.out.append(record)

    def close_group(self, at: int = 0) -> None:
        """End the key group at a place in the range: all its records were taken. Those before it
        that were not ended have none."""
        self._places.append(at)
        self._ends.append(len(self.out))

    def output(self, *, origin: np.ndarray | None = None, late: list[int] | None = None) -> Output:
        """The records as columns by type.

        origin: the input record of each row, for stateless operators. late: the positions of late
        input records, for windows.
        """
        offsets = np.zeros(self.groups + 1, np.int64)
        if self._places:
            sizes_of = np.diff(self._ends, prepend=0)
            offsets[1:][self._places] = sizes_of
            offsets.cumsum(out=offsets)
        offsets[self._places[-1] + 2 if self._places else 1 :] = len(self.out)
        emitted = (
            self._one(offsets, origin) if len(self.schemas) == 1 else self._many(offsets, origin)
        )
        return Output(emitted, None if late is None else np.array(late, np.int64))

    def _one(self, offsets: np.ndarray, origin: np.ndarray | None) -> tuple[Emitted, ...]:
        schema = self.schemas[0]
        if any(t is not schema.cls for t in set(map(type, self.out))):
            self.stranger()
        return (Emitted(self._columns(schema, self.out), offsets, None, origin),)

    def _many(self, offsets: np.ndarray, origin: np.ndarray | None) -> tuple[Emitted, ...]:
        places: dict[type, list[int]] = {s.cls: [] for s in self.schemas}
        for i, record in enumerate(self.out):
            found = places.get(type(record))
            if found is None:
                self.stranger()
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
            misfit = _misfit(schema, records)
            if self._begins is not None:
                self._name_epoch(self.out.index(misfit))
            at = f"at epoch {self.epoch}, in {shown(misfit)}"
            raise OperatorError(
                f"{self.spec.name} emitted a value that does not fit: {error.message}",
                where=self.spec.where,
                hint="\n  ".join(filter(None, [at, error.hint])),
            ) from None

    def stranger(self) -> None:
        """Refuse what was emitted and is no record of a declared type."""
        known = {s.cls for s in self.schemas}
        at, bad = next((i, r) for i, r in enumerate(self.out) if type(r) not in known)
        self._name_epoch(at)
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
        """The type of the record whose fields were emitted from position `at` on, if they are those
        of a record."""
        if inspect.isgeneratorfunction(self.spec.process):
            return None
        for schema in self.schemas:
            fields = self.out[at : at + len(schema.fields)]
            with suppress(StateError):
                if len(fields) == len(schema.fields) and from_records(schema, [fields]):
                    return schema
        return None


def _misfit(schema: RecordSchema, records: list[Any]) -> Any:
    """The first of some records that cannot be stored."""
    for record in records:
        try:
            from_records(schema, [record])
        except StateError:
            return record
    return records[-1]


@lru_cache(maxsize=256)
def _encoded(schemas: tuple[RecordSchema, ...]) -> dict[type, list[int]]:
    """The places of the fields that are not plain, for each record class that has such fields."""
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
    """The position of the record at which a loop is that takes the records before `hi` from
    `left`."""
    return hi - 1 - length_hint(left)


def key_getter(spec: OperatorSpec, schema: RecordSchema) -> Callable[[Any], Any]:
    """The function that takes a record's key: a value, or a tuple for a key of several fields."""
    return schema.getter(*spec.key)


def keys_in_order(
    getters: list[Callable[[Any], Any]], given: Input, records: list[Any]
) -> list[Any]:
    """The keys of records. getters: by input type."""
    if given.which is None:
        return list(map(getters[0], records))
    return [getters[t](r) for t, r in zip(given.which.tolist(), records, strict=True)]


def values_in_order(given: Input, name: str) -> np.ndarray:
    """int64: the values of an integer field of all records, in canonical order."""
    values: np.ndarray = np.empty(len(given), np.int64)
    for t, rows in enumerate(given.columns):
        mine = slice(None) if given.which is None else given.which == t
        if len(rows):
            found = rows.column(name)
            values[mine] = found if given.where is None else found[given.where[mine]]
    return values


class Stateless(Logic):
    """A flat map. It is fused into the instance that feeds it."""

    takes_several = True

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec = spec

    def process(self, given: Input, epoch: int, watermark: int, upto: int = BEFORE_ALL) -> Output:
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
        if len(self.spec.outputs) == 1 and bounds == [*range(len(bounds))]:
            return collector.output()  # a row for each record
        counts = sizes(np.array(bounds, np.int64))
        return collector.output(origin=np.arange(len(counts)).repeat(counts))


def tidy_rows(table: ObjectTable, spec: OperatorSpec, keys: Iterable[Any]) -> None:
    """Give the values in the rows of an epoch's keys the types that they have after a restore."""
    tidy = spec.state.tidy if spec.state is not None else None
    if tidy is not None:
        for key in dict.fromkeys(keys):
            row = table.get(key)
            if row is not None:
                tidy(row)


class KeyedLogic(Logic):
    """One call per record, with state where declared; see `timed` for timers."""

    takes_several = True

    def __init__(self, spec: OperatorSpec, groups: int) -> None:
        self.spec = spec
        self.groups = groups
        self.keys_of = [key_getter(spec, s) for s in spec.inputs] if spec.keyed else []
        self.table: ObjectTable | None = None
        if spec.state is not None:
            self.table = ObjectTable(kept_shape(spec), groups)

    def process(self, given: Input, epoch: int, watermark: int, upto: int = BEFORE_ALL) -> Output:
        collector = Collector(self.spec, epoch, given.groups).begin(given)
        records = in_order(given)
        keys: list[Any] = [None] * len(records)
        if self.keys_of:
            keys = keys_in_order(self.keys_of, given, records)
        step = self._stateless if self.table is None else self._run

        def end(of: int) -> None:
            self._tidy(given.of_epoch(of, keys))

        for _, lo, hi in collector.through(given, end):
            step(collector, keys, records, lo, hi)
        return collector.output()

    def _tidy(self, keys: Sequence[Any]) -> None:
        """keys: those of the records of an epoch."""
        if self.table is not None:
            tidy_rows(self.table, self.spec, keys)

    def _stateless(
        self, collector: Collector, keys: list[Any], records: list[Any], lo: int, hi: int
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
                self.spec,
                error,
                epoch=collector.epoch,
                key=keys[at],
                doing=collector.number(at),
            ) from error

    def _run(
        self, collector: Collector, keys: list[Any], records: list[Any], lo: int, hi: int
    ) -> None:
        assert self.table is not None and self.spec.state is not None
        get, new = self.table.get, self.table.new
        extend, function = collector.extend, self.spec.process
        settle, epoch = self.spec.state.settle, collector.epoch
        left, key = iter(records[lo:hi]), None
        try:
            for record, key in zip(left, keys[lo:hi], strict=True):
                row = get(key)
                if row is None:
                    row = new(key)
                row._mark = epoch
                emitted = function(record, row)
                if emitted is not None:
                    extend(emitted)
                if settle is not None:
                    settle(row)
                if row._mark == FORGOTTEN:
                    self.table.remove(key, epoch)
        except Exception as error:
            raise operator_error(
                self.spec, error, epoch=epoch, key=key, doing=collector.number(reached(left, hi))
            ) from error
