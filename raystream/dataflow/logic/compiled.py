"""Compiled logic: `raystream.compiled` as a `Logic`."""

from __future__ import annotations

from raystream.api.operators import OperatorSpec
from raystream.compiled.operator import compile_operator
from raystream.dataflow.logic.base import Logic
from raystream.schema.blocks import Input, Output
from raystream.schema.types import BEFORE_ALL, NEVER, KeyRange
from raystream.state.tables.structured_table import StructuredTable


class CompiledLogic(Logic):
    """A compiled operator and its table."""

    def __init__(self, spec: OperatorSpec, groups: int, ticks: int) -> None:
        self.spec = spec
        self.operator = compile_operator(spec, groups=groups, ticks=ticks)
        self.table: StructuredTable | None = self.new_table()

    def new_table(self) -> StructuredTable | None:
        """An empty table for the rows of the operator; None if it keeps none."""
        return self.operator.new_table()

    def process(self, given: Input, epoch: int, watermark: int, upto: int = BEFORE_ALL) -> Output:
        return self.operator.process(given, self.table, epoch, watermark, upto)

    def next_due(self) -> int:
        return NEVER if self.table is None else self.table.timers.next_due

    def fire(self, keys: KeyRange, epoch: int, watermark: int, *, last: bool) -> Output | None:
        if self.table is None or self.table.timers.next_due > watermark:
            return None
        return self.operator.fire(self.table, keys, epoch, watermark, last=last)
