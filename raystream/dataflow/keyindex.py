"""Structured rows for batch operators whose keys may be text, which is numbered as it comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from raystream.api.operators import OperatorSpec
from raystream.schema.columns import read_only
from raystream.schema.types import BEFORE_ALL
from raystream.state.rows import StructuredTable
from raystream.state.texts import TextNumbers


class KeyedRows:
    """A structured table by the operator's key columns. texts: per key column that is text or
    bytes what its numbers stand for."""

    def __init__(self, spec: OperatorSpec, groups: int) -> None:
        assert spec.state is not None
        self.table = StructuredTable(spec.state, keys=len(spec.key), groups=groups)
        fields = [spec.inputs[0].field(k) for k in spec.key]
        self.texts = [
            TextNumbers() if f is not None and f.kind in ("text", "bytes") else None for f in fields
        ]

    def warm(self) -> None:
        """Load what finds and writes rows, by a row of no key; not of a table in use."""
        from raystream.state.kernels import ordinals

        keys = [np.zeros(1, np.int64) if t is None else pa.array(["-"]) for t in self.texts]
        slots, index = self.slots(keys, 0)
        ordinals(read_only(index), len(slots))
        for texts in self.texts:
            if texts is not None:
                texts.warm()
        self.table.warm()
        view = self.table.view(BEFORE_ALL, 0)
        self.table.write(slots, {}, 0)  # which the view has yet to copy
        view.close()

    def slots(self, columns: list[Any], epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """(the slot of each distinct key, for each record the number of its key): int64 both."""
        numbered = [
            c if texts is None else texts.number(c)
            for c, texts in zip(columns, self.texts, strict=True)
        ]
        return self.table.slots_of(numbered, epoch)
