"""Compiled logic: the instance machine's face of `raystream.compiled`."""

from __future__ import annotations

from raystream.api.operators import OperatorSpec
from raystream.compiled.operator import compile_operator
from raystream.schema.blocks import Input, Output
from raystream.schema.types import KeyRange


class CompiledLogic:
    """A compiled operator and its table."""

    def __init__(self, spec: OperatorSpec, groups: int, ticks: int) -> None:
        self.spec = spec
        self.operator = compile_operator(spec, groups=groups, ticks=ticks)
        self.table = self.operator.new_table()

    def open(self, keys: KeyRange) -> None:
        """Nothing: compiled functions were loaded when they were built."""

    def process(self, given: Input, epoch: int, watermark: int) -> Output:
        return self.operator.process(given, self.table, epoch, watermark)

    def fire(self, keys: KeyRange, epoch: int, watermark: int, *, last: bool) -> Output | None:
        if self.table is None or self.table.next_due > watermark:
            return None
        return self.operator.fire(self.table, keys, epoch, watermark, last=last)
