"""Structured rows for batch operators whose keys may be text, which is numbered as it comes."""

from __future__ import annotations

from typing import Any

import numpy as np

from raystream.api.operators import OperatorSpec
from raystream.state.rows import StructuredTable


class KeyedRows:
    """A structured table by the operator's key columns.

    Text and bytes columns are stored as numbers, which mean something inside this instance only:
    `names` turns them back. A number is kept as long as the instance lives.
    """

    def __init__(self, spec: OperatorSpec, groups: int) -> None:
        assert spec.state is not None
        self.table = StructuredTable(spec.state, keys=len(spec.key), groups=groups)
        fields = [spec.inputs[0].field(k) for k in spec.key]
        self.numbers: list[dict[Any, int] | None] = [
            {} if f is not None and f.kind in ("text", "bytes") else None for f in fields
        ]
        self.names: list[list[Any]] = [[] for _ in spec.key]

    def slots(self, columns: list[Any], epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """(the slot of each distinct key, for each record the number of its key): int64 both."""
        numbered = [
            c if isinstance(c, np.ndarray) else self.number(i, c) for i, c in enumerate(columns)
        ]
        return self.table.slots_of(numbered, epoch)

    def number(self, at: int, column: Any) -> np.ndarray:
        """int64: the numbers of the text of a key column; new text gets new ones."""
        known, names = self.numbers[at], self.names[at]
        assert known is not None
        encoded = column.dictionary_encode()
        ids = []
        for value in encoded.dictionary.to_pylist():
            number = known.get(value)
            if number is None:
                number = known[value] = len(names)
                names.append(value)
            ids.append(number)
        return np.array(ids, np.int64)[encoded.indices.to_numpy()]
