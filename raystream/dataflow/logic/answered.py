"""The logic of an operator that asks the world: it emits what was answered."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from raystream.api.operators import OperatorSpec
from raystream.dataflow.asking.answers import output_of
from raystream.dataflow.logic.base import Logic
from raystream.dataflow.register import Boundary
from raystream.schema.blocks import Input, Output, sizes
from raystream.schema.types import BEFORE_ALL, KeyRange


class AnsweredLogic(Logic):
    """The answers of an epoch are put in before the epoch is applied."""

    def __init__(self, spec: OperatorSpec) -> None:
        self.spec = spec
        self.answers: dict[int, Mapping[int, Boundary]] = {}
        """By epoch the entries of the register, by key group."""

    def process(self, given: Input, epoch: int, watermark: int, upto: int = BEFORE_ALL) -> Output:
        counts = sizes(given.offsets)
        asked = {given.lo + int(g): int(counts[g]) for g in np.flatnonzero(counts)}
        keys = KeyRange(given.lo, given.lo + len(counts))
        return output_of(self.spec, keys, epoch, asked, self.answers.pop(epoch, {}))
