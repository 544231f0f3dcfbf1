"""An error in compiled code, found again by calling the user's function interpreted.

Compiled code does not know its lines. So the driver says which record and row it was at, the row is
put back to what it was before the call, and the same call is done in Python: its traceback has the
line. Numbers that do not fit their field are no error in plain Python, so here they are checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from raystream.api.operators import OperatorSpec
from raystream.compiled import driver
from raystream.compiled.driver import DriverShape
from raystream.errors import OperatorError, operator_error
from raystream.schema.blocks import Input
from raystream.schema.fields import Field
from raystream.schema.state import State, StateMeta, StateSchema
from raystream.schema.storing import too_large
from raystream.schema.types import NEVER, Window
from raystream.state.tables.structured_table import StructuredTable


class Rerun:
    """Repeats the call at which a driver stopped. `run`: the driver's progress."""

    def __init__(
        self, spec: OperatorSpec, shape: DriverShape, run: np.ndarray, table: StructuredTable | None
    ) -> None:
        self.spec = spec
        self.shape = shape
        self.run = run
        self.table = table

    def told(self, batch: Input, error: Exception) -> OperatorError:
        """The error of `process`, or of a `timer` that rang among the records."""
        return self.due(error) if self.run[driver.RINGING] else self.record(batch, error)

    def record(self, batch: Input, error: Exception) -> OperatorError:
        """The error of `process`, at the record that the driver had reached."""
        number = int(self.run[driver.RECORD])
        kind = 0 if batch.which is None else int(batch.which[number])
        if batch.which is None and len(batch.columns) > 1:
            kind = next(t for t, c in enumerate(batch.columns) if len(c))
        at = number if batch.where is None else int(batch.where[number])
        record = next(batch.columns[kind].slice(at, at + 1).records())
        values = tuple(getattr(record, k) for k in self.spec.key)
        key = values[0] if len(values) == 1 else values or None
        row = [] if self.table is None else [self._row()]
        return self._call(self.spec.process, (record, *row), error, key, f"record {number}")

    def due(self, error: Exception) -> OperatorError:
        """The error of `close` or `timer`, at the row that the driver had reached."""
        assert self.table is not None and self.spec.state is not None
        stored = self.table.rows[self.run[driver.SLOT]]
        key = key_of_row(self.spec, stored)
        row = self._row()
        told = [bool(self.run[driver.LAST]) for _ in self.spec.told]
        if self.spec.close is not None:
            start = int(stored["_key"][-1])
            assert self.shape.windows is not None
            window = Window(start, self.shape.windows.end(start))
            return self._call(
                self.spec.close,
                (key, window, row, *told),
                error,
                key,
                f"window [{window.start}, {window.end})",
            )
        assert self.spec.timer is not None and self.spec.state.timer is not None
        time = int(stored[self.spec.state.timer])
        setattr(row, self.spec.state.timer, NEVER)
        return self._call(self.spec.timer, (key, time, row, *told), error, key, f"timer {time}")

    def _row(self) -> State:
        assert self.table is not None
        return checked_row(self.table.schema, self.table.rows[self.run[driver.SLOT]])

    def _call(
        self, function: Any, arguments: tuple[Any, ...], error: Exception, key: Any, doing: str
    ) -> OperatorError:
        epoch = int(self.run[driver.EPOCH])
        try:
            self._exhaust(function(*arguments))
        except Exception as natural:
            return operator_error(self.spec, natural, epoch=epoch, key=key, doing=doing)
        place = ", ".join(
            filter(None, [f"key {key!r}" if key is not None else "", f"epoch {epoch}", doing])
        )
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        failure = OperatorError(
            f"{self.spec.name} raised {said} when compiled, but not when the same call was"
            f" interpreted: the two differ here (at {place})",
            where=self.spec.where,
            hint="Compiled integers have 64 bits. Leave out compiled=True, or report this call.",
        )
        failure.__cause__ = error
        return failure

    def _exhaust(self, records: Any) -> None:
        """Take what the function yields; what does not fit is raised at its `yield`."""
        if records is None:
            return
        if not isinstance(records, Iterator) or not hasattr(records, "throw"):
            for record in records:
                if problem := self._misfit(record):
                    raise OverflowError(problem)
            return
        for record in records:
            if problem := self._misfit(record):
                records.throw(OverflowError(problem))

    def _misfit(self, record: tuple[Any, ...]) -> str:
        for schema in self.spec.outputs:
            if type(record) is schema.cls:
                for f, value in zip(schema.fields, tuple(record), strict=True):
                    if problem := misfit(schema.name, f, value):
                        return problem
        return ""


def key_of_row(spec: OperatorSpec, stored: Any) -> Any:
    """The key of a stored row, as the user's functions get it."""
    values = []
    for value, name in zip(stored["_key"].tolist(), spec.key, strict=False):
        field = spec.inputs[0].field(name)
        values.append(bool(value) if field is not None and field.dtype == "?" else value)
    return values[0] if len(values) == 1 else tuple(values)


def misfit(owner: str, f: Field, value: Any) -> str:
    """Why a value does not fit a field of numbers; empty when it does."""
    if value is None:
        return "" if f.optional else f"{owner}.{f.name} is None, but is not declared optional"
    dtype = np.dtype(f.dtype)
    if dtype.kind == "i" and isinstance(value, int):
        info = np.iinfo(dtype)
        return (
            "" if info.min <= value <= info.max else f"{owner}.{f.name}: {value} does not fit {f}"
        )
    fits = isinstance(value, bool) if dtype.kind == "b" else isinstance(value, int | float)
    fits = fits and not (dtype.kind == "f" and too_large(value, dtype))
    return "" if fits and dtype.kind != "i" else f"{owner}.{f.name}: {value!r} does not fit {f}"


def checked_row(schema: StateSchema, stored: Any) -> State:
    """A stored row as a Python row that refuses numbers which do not fit."""
    fields = {f.name: f for f in schema.fields}

    def assign(row: Any, name: str, value: Any) -> None:
        f = fields.get(name)
        if f is not None and f.kind == "fixed" and (problem := misfit(schema.name, f, value)):
            raise OverflowError(problem)
        object.__setattr__(row, name, value)

    # Rows do not inherit from rows for users; this one must still be an instance of their class.
    cls: Any = type.__new__(
        StateMeta, schema.name, (schema.cls,), {"__slots__": (), "__setattr__": assign}
    )
    row: State = cls()
    for name, f in fields.items():
        value = stored[name].tolist()
        setattr(row, name, _Items(schema.name, f, value) if f.kind == "array" else value)
    return row


class _Items(list[Any]):
    """The items of an array field."""

    def __init__(self, owner: str, f: Field, values: list[Any]) -> None:
        super().__init__(values)
        self.owner = owner
        self.field = f

    def __setitem__(self, at: Any, value: Any) -> None:
        if problem := misfit(self.owner, self.field, value):
            raise OverflowError(problem)
        super().__setitem__(at, value)
