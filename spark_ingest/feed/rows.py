"""Rows as they are pushed into a running job, and the marks between them.

After the rows of a batch each lane gets a *mark*: a row of type `MARK`, which says that all rows
before its time have come, and when that time was due. So the job knows how far each lane is,
although a lane may have no rows for a while, and by what clock answers are late.

This needs neither Spark nor the job.
"""

from __future__ import annotations

import pyarrow as pa

from spark_ingest.layout import ROWS, SLOTS, UNUSED

MARK = 9
"""The type of a mark. Its `vid` is -1, its `time` the first second that may follow."""

_TAKEN = ("type", "time", "vid", "spd", "xway", "lane", "dir", "seg", "pos", "qid", "day")

PUSHED = pa.schema(
    [
        pa.field("release", pa.int32(), nullable=False),
        *(ROWS.field(name) for name in _TAKEN),
        pa.field("due", pa.int64(), nullable=False),
    ]
)
"""The columns of a pushed row. release: slots since second 0. due: of a mark the Unix time in
microseconds at which it was due; -1 of every other row, and where there is no pace."""


def pushed(rows: pa.Table) -> pa.Table:
    """Prepared rows as they are pushed."""
    import pyarrow.compute as pc

    second = pc.multiply(rows["time"], pa.scalar(SLOTS, pa.int32()))
    release = pc.add(second, rows["slot"].cast(pa.int32()))
    due = pa.array([UNUSED] * rows.num_rows, pa.int64())
    return pa.table([release, *(rows[name] for name in _TAKEN), due], schema=PUSHED)


def mark(time: int, due: int) -> pa.Table:
    """The row that says that all rows before a second have come."""
    values = {"release": time * SLOTS, "type": MARK, "time": time, "due": due}
    columns = [[values.get(field.name, UNUSED)] for field in PUSHED]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, PUSHED, strict=True)],
        schema=PUSHED,
    )
