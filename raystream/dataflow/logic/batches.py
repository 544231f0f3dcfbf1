"""Interpreted logic of batch operators: the user's function called once per epoch on columns.

Rows of the output are put into canonical order by the input record that they come from. So the
result does not depend on how records were cut into batches, as long as the function treats every
record by itself.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from raystream.api.batch import Batch, Rows
from raystream.api.operators import OperatorSpec
from raystream.api.row_shapes import kept_shape
from raystream.dataflow.logic.base import Logic
from raystream.errors import OperatorError, RaystreamError, operator_error
from raystream.schema.blocks import Emitted, Input, Output
from raystream.schema.columns import Columns, empty
from raystream.schema.records import RecordSchema
from raystream.schema.types import BEFORE_ALL, KeyRange
from raystream.state.tables.structured_table import StructuredTable


def _batch_of(given: Input) -> Columns:
    rows = given.columns[0]
    return (rows if given.where is None else rows.take(given.where)).ranked(None)


def _without_rows(schema: RecordSchema) -> str:
    return f"rs.Batch({schema.name}, { {n: [] for n in schema.names} })"


class _Batches(Logic):
    """The base of all batch logics: one call per epoch, whose result is put into order."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec = spec

    def process(self, given: Input, epoch: int, watermark: int, upto: int = BEFORE_ALL) -> Output:
        if not len(given):
            nothing = np.zeros_like(given.offsets)
            return Output(
                tuple(
                    Emitted(empty(s), nothing, origin=np.zeros(0, np.int64))
                    for s in self.spec.outputs
                )
            )
        rows = _batch_of(given)
        try:
            result = self._call(rows, epoch)
        except Exception as error:
            raise operator_error(
                self.spec, error, epoch=epoch, doing=f"batch of {len(rows)}"
            ) from error
        return Output((self._emitted(result, given),))

    def _call(self, rows: Columns, epoch: int) -> Any:
        raise NotImplementedError

    def _emitted(self, result: Any, given: Input) -> Emitted:
        schema = self.spec.outputs[0]
        if not isinstance(result, Batch) or result._columns.schema is not schema:
            raise OperatorError(
                f"{self.spec.name} returned {result!r:.80}, not a Batch of {schema.name}",
                where=self.spec.where,
                hint=f"Where nothing is to be emitted, return {_without_rows(schema)}.",
            )
        rows = result._columns
        origin = result._origin if len(rows) else np.zeros(0, np.int64)
        if origin is None:
            if len(rows) != len(given):
                raise OperatorError(
                    f"{self.spec.name} returned {len(rows)} rows for {len(given)} records and"
                    " does not say where each comes from",
                    where=self.spec.where,
                    hint="rs.Batch(..., origin=positions of the input records)",
                )
            return Emitted(rows, given.offsets)
        if len(origin) and (origin.min() < 0 or origin.max() >= len(given)):
            raise OperatorError(
                f"{self.spec.name}: origin names a record that is not in the batch",
                where=self.spec.where,
            )
        if len(origin) and (np.diff(origin) < 0).any():
            order = np.argsort(origin, kind="stable")
            rows, origin = rows.take(order), origin[order]
        return Emitted(rows, np.searchsorted(origin, given.offsets).astype(np.int64), origin=origin)


class BatchLogic(_Batches):
    """The logic of a batch operator without state."""

    def _call(self, rows: Columns, epoch: int) -> Any:
        return self.spec.process(Batch._of(rows))


class ReferenceLogic(_Batches):
    """The logic of a batch operator with a reference table, loaded once for the range."""

    data: Any = None

    def open(self, keys: KeyRange) -> None:
        assert self.spec.load is not None
        try:
            self.data = self.spec.load(keys)
        except RaystreamError:
            raise
        except Exception as error:
            raise operator_error(self.spec, error, epoch=0, doing=f"load of {keys}") from error

    def _call(self, rows: Columns, epoch: int) -> Any:
        return self.spec.process(Batch._of(rows), self.data)


class RowsLogic(_Batches):
    """The logic of a batch operator with state: the function gets the rows of the batch's distinct
    keys as columns."""

    def __init__(self, spec: OperatorSpec, groups: int) -> None:
        super().__init__(spec)
        self.groups = groups
        self.table: StructuredTable = self.new_table()

    def new_table(self) -> StructuredTable:
        """An empty table for the rows of the operator."""
        shape, keys = kept_shape(self.spec), len(self.spec.key)
        return StructuredTable(shape.state, keys=keys, groups=self.groups, shape=shape)

    def warm(self) -> None:
        """Also load the code that finds and writes the rows of a batch."""
        self.table.warm_batches()

    def _call(self, rows: Columns, epoch: int) -> Any:
        table = self.table
        slots, index = table.slots_of([rows.column(k) for k in self.spec.key], epoch)
        state = Rows[Any](table.schema, lambda name: table.read(slots, name), len(slots), index)
        result = self.spec.process(Batch._of(rows), state)
        table.write(slots, state._stored(), epoch)
        return result
