"""Bodies of requests as batches of records: JSON Lines and Arrow IPC streams."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from raystream.api.batch import Batch
from raystream.errors import InputError, RaystreamError
from raystream.io.files.columns import columns_of
from raystream.io.files.declared import batch_of, batch_of_records
from raystream.io.files.jsonlines import JsonLine
from raystream.io.files.parquet import as_usual, usual_kind
from raystream.schema.records import record_schema
from raystream.security.ipc_sizes import is_view, refuse_large, refuse_long, refuse_rows

ARROW = "application/vnd.apache.arrow.stream"
"""The content type of an Arrow IPC stream. Any other one stands for JSON Lines."""
MOST_BYTES = 128 << 20
"""How many bytes the records of a body may have in memory, unless given otherwise."""


def decoded(record: type, body: bytes, *, arrow: bool, most: int = MOST_BYTES) -> Batch[Any]:
    """The records of a body.

    Args:
        most: how many bytes it may become.

    Raises:
        InputError: something in it is no record; the message says where.
    """
    try:
        return _arrow(record, body, most) if arrow else _lines(record, body)
    except InputError:
        raise
    except (RaystreamError, pa.ArrowException, OSError, ValueError, RecursionError) as error:
        raise InputError(f"the body is damaged: {error}") from None


def _lines(record: type, body: bytes) -> Batch[Any]:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        before = body.count(b"\n", 0, error.start)
        raise InputError(f"line {before + 1}: it is not UTF-8") from None
    refuse_rows(text.count("\n"))
    parse: JsonLine[Any] = JsonLine(record)
    rows, numbers = [], []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            found = parse(line)
        except InputError as error:
            raise InputError(f"line {number}: {error.message}", hint=error.hint) from None
        if found is not None:
            rows.append(found)
            numbers.append(number)
    return batch_of_records(record, rows, lambda n: f"line {numbers[n]}")


def _arrow(record: type, body: bytes, most: int) -> Batch[Any]:
    refuse_large(body, most)
    with pa.ipc.open_stream(body) as reader:
        table = reader.read_all()
    table.validate(full=True)
    schema = record_schema(record)
    kinds = pa.schema([f.with_type(_usual_kind(f.type)) for f in table.schema])
    columns = columns_of(schema, kinds, "the stream")
    for at in columns.taken.values():
        refuse_long(table.column(at), table.schema.names[at], most)
    arrays = {
        name: as_usual(_one(table.column(at)), kinds.field(at).type)
        for name, at in columns.taken.items()
    }
    rows = columns.rows(arrays, table.num_rows)
    return batch_of(schema, rows, lambda n: f"row {n} (from 0)")


def _usual_kind(kind: Any) -> Any:
    """As `usual_kind`, but not of views inside of other values, whose bytes are not measured."""
    return usual_kind(kind) if is_view(kind) or _is_plain_list(kind) else kind


def _is_plain_list(kind: Any) -> bool:
    """Whether it is a list of one size of values that hold no others."""
    if not pa.types.is_fixed_size_list(kind):
        return False
    return not pa.types.is_nested(kind.value_type) and not is_view(kind.value_type)


def _one(column: Any) -> Any:
    """A column in one piece."""
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
