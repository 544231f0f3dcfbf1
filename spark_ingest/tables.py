"""Makes tables of the prepared layout from columns of numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_ingest import layout

Columns = dict[str, npt.NDArray[np.int64]]


def rows_table(columns: Columns) -> pa.Table:
    """Rows of schema `layout.ROWS`: adds the slot, and -1 in the columns that are not given.

    `columns` are int64 of one length, with at least `vid`; their values fit the schema.
    """
    unused = np.full(len(columns["vid"]), layout.UNUSED)
    given = {**columns, "slot": layout.slot(columns["vid"])}
    return _table(layout.ROWS, [given.get(name, unused) for name in layout.ROWS.names])


def history_table(vid: npt.NDArray[np.int64], *others: npt.NDArray[np.int64]) -> pa.Table:
    """Rows of schema `layout.HISTORY`; `others` are day, expressway and toll."""
    return _table(layout.HISTORY, [vid, *others])


def _table(schema: pa.Schema, columns: list[npt.NDArray[np.int64]]) -> pa.Table:
    arrays = [
        pa.array(values.astype(field.type.to_pandas_dtype()))
        for values, field in zip(columns, schema, strict=True)
    ]
    return pa.table(arrays, schema=schema)
