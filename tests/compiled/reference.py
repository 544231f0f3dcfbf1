"""The meaning of operators in forty lines: a dict of rows, functions called one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

import raystream as rs
from raystream.api.operators import OperatorSpec
from raystream.schema.blocks import Input, Output
from raystream.schema.state import FORGOTTEN
from raystream.schema.storing import from_records
from raystream.state.keys import key_group


def key_of(spec: OperatorSpec, record: Any) -> Any:
    values = tuple(getattr(record, k) for k in spec.key)
    return values[0] if len(values) == 1 else values


def group_of(spec: OperatorSpec, record: Any, groups: int) -> int:
    return key_group(key_of(spec, record), groups) if spec.key else 0


def given(spec: OperatorSpec, records: Iterable[Any], groups: int, shuffle: Any = None) -> Input:
    """An input of these records, in canonical order; `shuffle` mixes the rows of the columns."""
    ordered = sorted(records, key=lambda r: group_of(spec, r, groups))
    columns, which, where = [], np.zeros(len(ordered), np.uint8), np.zeros(len(ordered), np.int64)
    for t, schema in enumerate(spec.inputs):
        at = [i for i, r in enumerate(ordered) if type(r) is schema.cls]
        rows = list(range(len(at)))
        if shuffle is not None:
            shuffle.shuffle(rows)
        columns.append(from_records(schema, [ordered[at[rows.index(j)]] for j in range(len(at))]))
        which[at], where[at] = t, rows
    counts = np.bincount([group_of(spec, r, groups) for r in ordered], minlength=groups)
    identity = shuffle is None and len(spec.inputs) == 1
    return Input(
        tuple(columns),
        which if len(spec.inputs) > 1 else None,
        None if identity else where,
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        0,
    )


class Reference:
    """Runs an operator interpreted. Emissions are (key group, record) in canonical order."""

    def __init__(self, spec: OperatorSpec, groups: int, size: int = 0, every: int = 0) -> None:
        self.spec, self.groups, self.size, self.every = spec, groups, size, every
        self.rows: dict[tuple[Any, int], rs.State] = {}
        self.late: list[int] = []

    def process(self, records: Sequence[Any], watermark: int) -> list[tuple[int, Any]]:
        ordered = sorted(records, key=lambda r: group_of(self.spec, r, self.groups))
        out: list[tuple[int, Any]] = []
        self.late = []
        for i, record in enumerate(ordered):
            group = group_of(self.spec, record, self.groups)
            if self.spec.state is None:
                out += [(i if not self.spec.key else group, r) for r in self.spec.process(record)]
                continue
            starts = (
                [0]
                if self.size == 0
                else [
                    s
                    for s in range(-200, 400)
                    if s % self.every == 0
                    and s <= record.time < s + self.size
                    and s + self.size > watermark
                ]
            )
            if not starts:
                self.late.append(i)
            for start in starts:
                at = key_of(self.spec, record), start
                row = self.rows.setdefault(at, self.spec.state.cls())
                out += [(group, r) for r in self.spec.process(record, row) or ()]
                self._keep(at, row)
        return out

    def _keep(self, at: Any, row: Any) -> None:
        """What a table does: forgotten rows go, numbers take their stored width."""
        if row._mark == FORGOTTEN:
            del self.rows[at]
            return
        for f in self.spec.state.fields:  # type: ignore[union-attr]
            if f.kind == "fixed":
                setattr(row, f.name, np.dtype(f.dtype).type(getattr(row, f.name)).item())

    def fire(self, watermark: int) -> list[tuple[int, Any]]:
        out = []
        for group in range(self.groups):
            while due := sorted(
                (self._due(at, row), at)
                for at, row in self.rows.items()
                if key_group(at[0], self.groups) == group
                and self._due(at, row) <= watermark
                and self._due(at, row) != rs.NEVER
            ):
                for time, at in due:
                    row = self.rows[at]
                    out += [(group, r) for r in self._ring(at, time, row)]
        return out

    def _due(self, at: Any, row: Any) -> int:
        if self.size:
            return int(at[1]) + self.size
        timer = self.spec.state.timer  # type: ignore[union-attr]
        return rs.NEVER if timer is None else int(getattr(row, timer))

    def _ring(self, at: Any, time: int, row: Any) -> list[Any]:
        if self.spec.close is not None:
            emitted = list(self.spec.close(at[0], rs.Window(at[1], time), row))
            del self.rows[at]
            return emitted
        assert self.spec.timer is not None
        setattr(row, self.spec.state.timer or "", rs.NEVER)  # type: ignore[union-attr]
        emitted = list(self.spec.timer(at[0], time, row))
        self._keep(at, row)
        return emitted


def assert_same(
    output: Output, expected: list[tuple[int, Any]], spec: OperatorSpec, groups: int
) -> None:
    """Every column, offset and rank is what the reference emitted, bit for bit."""
    for t, schema in enumerate(spec.outputs):
        mine = [(i, g, r) for i, (g, r) in enumerate(expected) if type(r) is schema.cls]
        emitted = output.emitted[t]
        rows = from_records(schema, [r for _, _, r in mine])
        assert list(emitted.rows.records()) == [r for _, _, r in mine]
        for a, b in zip(emitted.rows.arrays, rows.arrays, strict=True):
            assert a.dtype == b.dtype and a.tobytes() == b.tobytes()
        if spec.key:
            counts = np.bincount([g for _, g, _ in mine], minlength=groups)
            assert emitted.offsets.tolist() == [0, *np.cumsum(counts).tolist()]
            assert emitted.origin is None
        else:
            assert emitted.offsets.tolist() == [0, len(mine)]
            assert emitted.origin is not None and emitted.origin.tolist() == [g for _, g, _ in mine]
        if len(spec.outputs) > 1:
            assert emitted.rank is not None and emitted.rank.tolist() == [i for i, _, _ in mine]
        else:
            assert emitted.rank is None
